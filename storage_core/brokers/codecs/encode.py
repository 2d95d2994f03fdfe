"""Messages written the way the cursus broker writes them today: framed bodies of form E.

The byte table is in ``records``. Everything is built column by column: runs of fixed fields
become one array of structs, and Arrow joins these with the fields of variable length row by row.

A record with a ``txn_id`` belongs to a transaction and gets the state ``open``: consumers do not
see it, nor anything after it, before a control record ends that transaction. ``encode_control``
makes that record; a writer writes it after the others, in the same append.
"""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InvalidRecordError, RecordTooLargeError
from ...types import Int64s
from .headers import fields_from_headers
from .rows import CURSUS_BROKER, Framed, fixed_column, join_bytes, payload_lengths

CONTROL_PAYLOAD = b"__cursus_txn_control_marker__"
OPEN, COMMIT, ABORT = b"open", b"commit", b"abort"
_MARKED_STATE = {COMMIT: b"committed", ABORT: b"aborted"}
_CONTROL_VERSION = 2
_MAX_TEXT = 2**16 - 1
# Only a body must not be empty; what its other fields add to a value is checked at the end.
_VALUE = replace(CURSUS_BROKER, min_payload=0)


def encode_messages(
    values: pa.BinaryArray,
    keys: pa.BinaryArray | None,
    headers: pa.ListArray | None,
    *,
    topic: str,
    partition: int,
    first_offset: int,
) -> Framed:
    """Encode records as frames of form E, at offsets rising by one from ``first_offset``.

    A null key is stored as the empty key, which is how the broker says that there is none.

    Raises:
        InvalidRecordError: a value is null, or a header cannot be what its field needs.
        RecordTooLargeError: a record or one of its fields is longer than the broker accepts.
        UnsupportedColumnError: a header has a name that the broker has no field for.
    """
    count = len(values)
    if not count:
        return join_bytes([values])
    payload_lengths(values, _VALUE)
    fields = fields_from_headers(headers, count)
    texts, numbers = fields.texts, fields.numbers
    body = _Join(count)
    body.number(">u4", 0)
    body.constant(_s16(topic.encode()) + struct.pack(">I", partition))
    body.number(">u8", np.arange(first_offset, first_offset + count))
    body.text("producer", texts.get("producer"))
    body.number(">u8", numbers.get("seq", 0))
    body.number(">i8", numbers.get("epoch", 0))
    body.text("value", values, ">u4")
    body.text("event_type", texts.get("event_type"))
    body.number(">u4", numbers.get("schema_version", 0))
    body.number(">u8", numbers.get("aggregate_version", 0))
    body.text("metadata", texts.get("metadata"))
    body.text("key", None if keys is None else pc.fill_null(keys, b""))
    body.text("txn_id", texts.get("txn_id"))
    body.text("txn_state", _states(texts.get("txn_id")))
    # Neither marker nor control type, version, epoch, key and value.
    body.constant(bytes(2 + 2 + 2 + 8 + 2 + 2))
    return body.finish()


def encode_control(
    *, topic: str, partition: int, offset: int, txn_id: str, epoch: int, marker: bytes = COMMIT
) -> bytes:
    """The control record that ends a transaction in a partition, framed."""
    key = struct.pack(">HH", 0, 1 if marker == ABORT else 0)
    value = struct.pack(">hi", 0, epoch)
    body = b"".join(
        (
            _s16(topic.encode()),
            struct.pack(">IQ", partition, offset),
            _s16(b"txn-marker:" + txn_id.encode() + b":" + marker),
            struct.pack(">QqI", 1, epoch, len(CONTROL_PAYLOAD)),
            CONTROL_PAYLOAD,
            # Neither event type, versions, metadata nor key.
            bytes(2 + 4 + 8 + 2 + 2),
            *map(_s16, (txn_id.encode(), _MARKED_STATE[marker], marker, b"transaction")),
            struct.pack(">hq", _CONTROL_VERSION, epoch),
            _s16(key),
            _s16(value),
        )
    )
    return struct.pack(">I", len(body)) + body


class _Join:
    """Collects the fields of a body in order; adjoining fixed ones share one array of structs."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._fixed: list[tuple[str, npt.ArrayLike]] = []
        self._columns: list[pa.Array] = []
        self._structs: list[npt.NDArray[np.void]] = []
        self._sizes: Int64s = np.zeros(count, dtype=np.int64)

    def number(self, kind: str, values: npt.ArrayLike) -> None:
        self._fixed.append((kind, values))

    def constant(self, octets: bytes) -> None:
        self._fixed.append((f"V{len(octets)}", np.void(octets)))

    def text(self, name: str, column: pa.Array | None, kind: str = ">u2") -> None:
        """A field of variable length, after its length."""
        if column is None:
            self.number(kind, 0)
            return
        lengths = pc.binary_length(column).to_numpy(zero_copy_only=False)
        if kind == ">u2" and (longest := int(lengths.max())) > _MAX_TEXT:
            raise RecordTooLargeError(
                f"record {int(lengths.argmax())} of the append has a {name} of {longest} bytes, "
                f"more than the {_MAX_TEXT} that layout cursus-broker can store."
            )
        self.number(kind, lengths)
        self._flush()
        self._columns.append(column)
        self._sizes += lengths

    def finish(self) -> Framed:
        """Fill in the frame lengths, which the first field is for, and join."""
        self._flush()
        limit = CURSUS_BROKER.max_payload
        fixed = sum(part.dtype.itemsize for part in self._structs)
        self._sizes += fixed - CURSUS_BROKER.header_bytes
        if (longest := int(self._sizes.max())) > limit:
            raise RecordTooLargeError(
                f"record {int(self._sizes.argmax())} of the append has {longest} bytes as the "
                f"broker stores it, which accepts {limit}. Split it."
            )
        self._structs[0]["f0"] = self._sizes
        return join_bytes(self._columns)

    def _flush(self) -> None:
        if not self._fixed:
            return
        kinds = [(f"f{index}", kind) for index, (kind, _) in enumerate(self._fixed)]
        part = np.empty(self._count, dtype=kinds)
        for (name, _), (_, values) in zip(kinds, self._fixed, strict=True):
            part[name] = values
        self._structs.append(part)
        self._columns.append(fixed_column(part))
        self._fixed = []


def _states(ids: pa.Array | None) -> pa.Array | None:
    """State ``open`` for the records of transactions."""
    if ids is None:
        return None
    return pc.if_else(pc.equal(pc.binary_length(ids), 0), b"", OPEN).cast(pa.binary())


def _s16(octets: bytes) -> bytes:
    if len(octets) > _MAX_TEXT:
        raise InvalidRecordError(
            f"a field has {len(octets)} bytes, more than the {_MAX_TEXT} that can be stored."
        )
    return struct.pack(">H", len(octets)) + octets
