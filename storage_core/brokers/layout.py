"""The brokers' layouts as small objects: names, framing, record codec, index codec, limits."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from ..config import GIB, MIB
from ..errors import BrokenFrameError, InvalidRecordError
from ..format.columns import Columns
from ..format.sparse_index import SparseIndex
from ..layouts import registry
from ..layouts.broker_names import (
    BROKER_NAMES,
    CURSUS_NAMES,
    RUSTLOG_NAMES,
    Names,
    SegmentName,
)
from ..layouts.registry import Layout
from ..types import Int64s
from ..vfs import Vfs
from .codecs.encode import encode_control, encode_messages
from .codecs.headers import fields_from_headers, headers_column
from .codecs.index import parse_broker_index, parse_rustlog_index
from .codecs.ordinal import parse_ordinal
from .codecs.records import Bodies, parse_bodies
from .codecs.rows import (
    CURSUS,
    CURSUS_BROKER,
    RUSTLOG,
    Framed,
    RowFormat,
    Rows,
    frame_rows,
    payload_column,
)
from .codecs.rows import row_offsets as rustlog_offsets
from .transactions import TransactionColumns

# Bytes of a framed form E without any text.
_FORM_E = 80


class Place(NamedTuple):
    """Where some bytes come from: the partition, the position of byte 0, the next offset due."""

    topic: str
    partition: int
    position: int
    offset: int
    holes: bool


class Decoded(NamedTuple):
    """Records of some rows; ``transactions`` is there when some take part in one.

    ``columns`` copies the fields. Whoever looks for the end, or for transactions, needs none.
    """

    offsets: Int64s
    columns: Callable[[], dict[str, pa.Array]]
    transactions: TransactionColumns | None = None


class Decode(Protocol):
    def __call__(self, data: pa.Buffer, rows: Rows, place: Place) -> Decoded:
        """Decode all of ``rows``.

        Raises:
            BrokenFrameError: at the first row that cannot be what its writer wrote; ``rows`` before
                it are sound and are asked for again without it.
        """


class Encode(Protocol):
    def __call__(self, columns: Columns, topic: str, partition: int, offset: int) -> Framed: ...


@dataclass(frozen=True, slots=True)
class RowLayout:
    """One kind of broker directory. Stateless.

    ``encode`` is None where we only read; ``closing`` gives records that must follow an append;
    ``prefix`` is what all payloads of a partition begin with.
    """

    kind: Layout
    names: Names
    format: RowFormat
    decode: Decode
    encode: Encode | None
    ordinal: bool
    segment_bytes: int
    parse_index: Callable[[bytes, int], SparseIndex] | None = None
    index_every: int | None = None
    isolated: bool = False
    closing: Callable[[Columns, str, int, int], list[bytes]] | None = None
    prefix: Callable[[str, int], bytes] = lambda _topic, _partition: b""

    @property
    def name(self) -> str:
        return self.kind.name

    def overhead(self, topic: str) -> int:
        """Most bytes that a stored record has beside those of its columns."""
        return self.format.header_bytes if self.closing is None else _FORM_E + len(topic)


def _broken(reason: str, rows: Rows, row: int, place: Place, offset: int) -> BrokenFrameError:
    position = place.position + (int(rows.positions[row]) if row < rows.count else rows.end)
    return BrokenFrameError(reason, position=position, offset=offset)


def check_offsets(offsets: Int64s, rows: Rows, place: Place) -> None:
    """Offsets must go on from the one due; with ``holes`` they only have to rise."""
    if not len(offsets):
        return
    if place.holes:
        steps = np.diff(offsets, prepend=place.offset - 1)
        wrong = steps <= 0
    else:
        wrong = offsets != np.arange(place.offset, place.offset + len(offsets))
    if wrong.any():
        row = int(np.argmax(wrong))
        due = place.offset if row == 0 else int(offsets[row - 1]) + 1
        raise _broken(f"expected offset {due}, found {int(offsets[row])}", rows, row, place, due)


def _decode_raw(data: pa.Buffer, rows: Rows, place: Place) -> Decoded:
    offsets = np.arange(place.offset, place.offset + rows.count)
    return Decoded(offsets, lambda: {"value": payload_column(data, rows, CURSUS)})


def _decode_rustlog(data: pa.Buffer, rows: Rows, place: Place) -> Decoded:
    offsets = rustlog_offsets(data, rows)
    check_offsets(offsets, rows, place)
    return Decoded(offsets, lambda: {"value": payload_column(data, rows, RUSTLOG)})


def _decode_broker(data: pa.Buffer, rows: Rows, place: Place) -> Decoded:
    bodies = parse_bodies(data, rows)
    check_offsets(bodies.offsets, rows, place)
    if bodies.damage is not None:
        due = int(bodies.offsets[-1]) + 1 if bodies.count else place.offset
        raise _broken(bodies.damage, rows, bodies.count, place, due)
    transactions = TransactionColumns.of(data, bodies) if bodies.transactional else None
    return Decoded(bodies.offsets, lambda: _message_columns(data, bodies), transactions)


def _decode_ordinal(data: pa.Buffer, rows: Rows, place: Place) -> Decoded:
    bodies = parse_ordinal(data, rows, place.topic, place.partition, first_offset=place.offset)
    return Decoded(bodies.offsets, lambda: _message_columns(data, bodies))


def _message_columns(data: pa.Buffer, bodies: Bodies) -> dict[str, pa.Array]:
    columns = {"value": bodies.value_column(data), "headers": headers_column(data, bodies)}
    key = bodies.key_column(data)
    if key.null_count < len(key):
        columns["key"] = key
    return columns


def _encode_raw(columns: Columns, topic: str, partition: int, offset: int) -> Framed:  # noqa: ARG001
    return frame_rows(_values(columns), CURSUS)


def _encode_rustlog(columns: Columns, topic: str, partition: int, offset: int) -> Framed:  # noqa: ARG001
    return frame_rows(_values(columns), RUSTLOG, offset)


def _encode_broker(columns: Columns, topic: str, partition: int, offset: int) -> Framed:
    return encode_messages(
        _values(columns),
        columns.key,
        columns.headers,
        topic=topic,
        partition=partition,
        first_offset=offset,
    )


def _commits(columns: Columns, topic: str, partition: int, offset: int) -> list[bytes]:
    """A commit for every transaction that some records name: they stay invisible without."""
    fields = fields_from_headers(columns.headers, columns.count)
    ids = fields.texts.get("txn_id")
    if ids is None:
        return []
    epochs = fields.numbers.get("epoch", np.zeros(columns.count, dtype=np.int64))
    pairs = dict.fromkeys(zip(ids.to_pylist(), epochs.tolist(), strict=True))
    try:
        return [
            encode_control(
                topic=topic,
                partition=partition,
                offset=offset + row,
                txn_id=name.decode(),
                epoch=epoch,
            )
            for row, (name, epoch) in enumerate(pair for pair in pairs if pair[0])
        ]
    except (UnicodeDecodeError, struct.error) as error:
        raise InvalidRecordError(
            f"a transaction cannot be committed under its txn_id and epoch: {error}"
        ) from error


def _route(topic: str, partition: int) -> bytes:
    """The topic and the partition, with which every message begins."""
    name = topic.encode()
    return struct.pack(f">H{len(name)}sI", len(name), name, partition)


def _values(columns: Columns) -> pa.Array:
    return pa.nulls(columns.count, pa.binary()) if columns.value is None else columns.value


class RowPartition(NamedTuple):
    """One partition of a broker's directory: where its files are, and how they are coded."""

    vfs: Vfs
    layout: RowLayout
    topic: str
    partition: int

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    def directory(self) -> str:
        """Where the log files are, or will be."""
        return self.layout.names.directory(self.vfs, self.topic, self.partition)

    def files(self) -> list[SegmentName]:
        """The log files in numeric order."""
        return self.layout.names.segments(self.vfs, self.topic, self.partition)

    def number(self, path: str, base: int) -> int:
        """The ordinal or base offset in the name of a log file that begins at offset ``base``."""
        if not self.layout.ordinal:
            return base
        return int(path.removesuffix(".log").rpartition("_")[2])

    def file_name(self, number: int) -> str:
        """The name of a log file by its ordinal or base offset."""
        return self.layout.names.format(self.vfs, self.topic, self.partition, number)


CURSUS_LAYOUT = RowLayout(
    registry.CURSUS,
    CURSUS_NAMES,
    CURSUS,
    _decode_raw,
    _encode_raw,
    ordinal=True,
    segment_bytes=MIB,
)
BROKER_LAYOUT = RowLayout(
    registry.CURSUS_BROKER,
    BROKER_NAMES,
    CURSUS_BROKER,
    _decode_broker,
    _encode_broker,
    ordinal=False,
    segment_bytes=GIB,
    parse_index=parse_broker_index,
    isolated=True,
    closing=_commits,
    prefix=_route,
)
BROKER_ORDINAL_LAYOUT = RowLayout(
    registry.CURSUS_BROKER,
    CURSUS_NAMES,
    CURSUS,
    _decode_ordinal,
    encode=None,
    ordinal=True,
    segment_bytes=MIB,
)
RUSTLOG_LAYOUT = RowLayout(
    registry.RUSTLOG,
    RUSTLOG_NAMES,
    RUSTLOG,
    _decode_rustlog,
    _encode_rustlog,
    ordinal=False,
    segment_bytes=GIB,
    parse_index=parse_rustlog_index,
    index_every=100,
)
_BY_NAME = {each.name: each for each in (CURSUS_LAYOUT, BROKER_LAYOUT, RUSTLOG_LAYOUT)}


def find_layout(vfs: Vfs, name: str) -> RowLayout:
    """How a directory of a layout is read; ``cursus-broker`` also reads its ordinal era."""
    found = _BY_NAME[name]
    if found is BROKER_LAYOUT and CURSUS_NAMES.topics(vfs) and not BROKER_NAMES.topics(vfs):
        return BROKER_ORDINAL_LAYOUT
    return found
