"""The body of frames of typed topics (version 2): columns by field id, each readable alone.

All integers are big-endian, except those inside buffers, which are Arrow's.

====== ==== =================================================================
offset size field
====== ==== =================================================================
0      4    schema version of the writer
4      4    number of columns
8      4    number of nodes
12     4    number of buffers
16     4    length of the statistics
20     4    CRC32C of the statistics
24     4    zero
28     4    CRC32C of bytes 0 to 27
32     s    statistics in JSON, padded with zeros to 8 bytes
..     12   for each column: field id, number of its nodes, number of its buffers
..     8    for each node: length, how many are null
..     12   for each buffer: stored length, length after decompression, codec, encoding,
            bytes of a value that are kept, zero; then zeros to 8 bytes
..     n    the buffers, each padded with zeros to 8 bytes
====== ==== =================================================================

A column that is null in all rows is left out. Types are not repeated: they follow from the schema
version. A checksum finds damage; it does not make a body safe to read. So every count and length is
checked before anything is allocated, and what is decoded is validated in full.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ..config import CODECS
from ..errors import BrokenFrameError
from ..io.checksum import crc32c
from ..schema.fields import Field, SchemaVersion, dotted
from ..schema.rows import TypedRows
from ..schema.soundness import forbidden_null
from .array_reader import ArrayReader, Directory
from .arrow_message import Piece
from .buffer_encodings import NAMES, Stored
from .column_buffers import Part, lay_out
from .encoding_choice import Choices, compressor_of

OFFSET_DELTA, TIMESTAMP_ID = 0xFFFFFFFE, 0xFFFFFFFF
"""Field ids of the columns that the log adds."""
PREAMBLE_BYTES = 32

_PREAMBLE = struct.Struct(">IIIIIII")
_CRC = struct.Struct(">I")
_COLUMN = np.dtype([("id", ">u4"), ("nodes", ">u4"), ("buffers", ">u4")])
_NODE = np.dtype([("length", ">u4"), ("nulls", ">u4")])
_BUFFER = np.dtype(
    [
        ("stored", ">u4"),
        ("length", ">u4"),
        ("codec", "u1"),
        ("encoding", "u1"),
        ("width", "u1"),
        ("zero", "u1"),
    ]
)
_SYSTEM = {
    OFFSET_DELTA: Field(OFFSET_DELTA, "offset_delta", pa.uint32(), nullable=False),
    TIMESTAMP_ID: Field(TIMESTAMP_ID, "timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
}
# A vectored write takes about a thousand pieces: small buffers are joined.
_SMALL_BYTES = 4096
_MOST_CHOICES = 64


class EncodedBody(NamedTuple):
    """A body in pieces for one vectored write. Its length is a multiple of 8.

    ``raw_length`` is what the body would have uncompressed: a bound of what decoding it takes.
    """

    pieces: list[Piece]
    length: int
    raw_length: int


class Preamble(NamedTuple):
    """The fields of a preamble that passed its checksum."""

    schema_version: int
    columns: int
    nodes: int
    buffers: int
    statistics_length: int
    statistics_crc: int

    @property
    def directory_start(self) -> int:
        """Where the directory begins: after preamble and statistics."""
        return PREAMBLE_BYTES + _padded(self.statistics_length)

    @property
    def directory_length(self) -> int:
        """Bytes of the directory with its padding."""
        return _padded(
            self.columns * _COLUMN.itemsize
            + self.nodes * _NODE.itemsize
            + self.buffers * _BUFFER.itemsize
        )


class StoredColumn(NamedTuple):
    """How a body stores one column: bytes as stored and decoded, and how each buffer is packed."""

    field_id: int
    stored: int
    raw: int
    codecs: tuple[str, ...]
    encodings: tuple[str, ...]


def encode_body(
    rows: TypedRows,
    system: Mapping[int, pa.Array],
    *,
    compression: str,
    level: int,
    statistics: bytes = b"",
) -> EncodedBody:
    """Encode rows as the body of one frame.

    Args:
        rows: The rows.
        system: The columns that the log adds, by their reserved ids.
        compression: Codec of the buffers. With none, buffers are not copied.
        level: Of zstd.
        statistics: Of the columns, in JSON.
    """
    columns, nodes, parts = list[tuple[int, int, int]](), list[int](), list[Part]()
    stored = list[Stored]()
    raw = 0
    named = zip(rows.schema.fields, rows.arrays, strict=True)
    arrays = [*system.items(), *((field.id, array) for field, array in named if array is not None)]
    choices = None if compression == "none" else _choices_of(rows.schema)
    compressor = compressor_of(compression, level)
    for number, array in arrays:
        first, nodes_before, parts = len(stored), len(nodes), []
        lay_out(array, nodes, parts)
        for place, part in enumerate(parts):
            raw += _padded(part.data.size)
            if part.texts is not None:
                raw += _padded(part.texts.size)
            if choices is not None:
                stored += choices.encode(number, place, part, compressor)
                continue
            stored.append(Stored(part.data, part.data.size))
            if part.texts is not None:
                stored.append(Stored(part.texts, part.texts.size))
        columns.append((number, (len(nodes) - nodes_before) // 2, len(stored) - first))
    head = _head(rows.schema.version, statistics, columns, nodes, stored)
    pieces = _joined(head, [buffer.data for buffer in stored])
    return EncodedBody(pieces, sum(map(len, pieces)), len(head) + raw)


def read_preamble(prefix: bytes | memoryview) -> Preamble:
    """The preamble of a body, from its first 32 bytes.

    Raises:
        BrokenFrameError: too short, or the preamble fails its checksum.
    """
    if len(prefix) < PREAMBLE_BYTES:
        raise BrokenFrameError(
            f"the frame body ends inside its preamble: {len(prefix)} of {PREAMBLE_BYTES} bytes"
        )
    head = bytes(prefix[:PREAMBLE_BYTES])
    if crc32c(head[:-4]) != _CRC.unpack_from(head, PREAMBLE_BYTES - 4)[0]:
        raise BrokenFrameError("the preamble of the frame body fails its checksum")
    *fields, zero = _PREAMBLE.unpack_from(head)
    if zero:
        raise BrokenFrameError(f"expected 0 in bytes 24 to 27 of the frame body, found {zero}")
    return Preamble._make(fields)


def read_statistics(preamble: Preamble, prefix: bytes | memoryview) -> bytes | None:
    """The statistics in the beginning of a body, or None if they are missing or damaged.

    They are a hint: without them a frame is read.
    """
    end = PREAMBLE_BYTES + preamble.statistics_length
    if not preamble.statistics_length or len(prefix) < end:
        return None
    found = bytes(prefix[PREAMBLE_BYTES:end])
    return found if crc32c(found) == preamble.statistics_crc else None


def stored_columns(body: bytes | memoryview) -> list[StoredColumn]:
    """The columns of a body as its directory describes them, for people.

    Raises:
        BrokenFrameError: the directory contradicts itself.
    """
    buffer = pa.py_buffer(body)
    places, directory = _read_directory(read_preamble(body), buffer)
    found = []
    for number, (_, _, first, last) in places.items():
        encodings = directory.encodings[first:last]
        if any(each >= len(NAMES) for each in encodings):
            raise BrokenFrameError(f"a buffer has encoding {max(encodings)}, which is unknown")
        found.append(
            StoredColumn(
                number,
                sum(directory.stored[first:last]),
                sum(directory.raw[first:last]),
                tuple(CODECS[each] for each in directory.codecs[first:last]),
                tuple(NAMES[each] for each in encodings),
            )
        )
    return found


def decode_columns(
    body: pa.Buffer | bytes | memoryview,
    *,
    records: int,
    raw_length: int,
    schema: SchemaVersion,
    wanted: Collection[int],
) -> dict[int, pa.Array]:
    """The wanted columns of a body; those that it leaves out are null in all rows.

    Only these are decompressed and validated. Buffers that are not compressed are not copied.

    Args:
        body: The body without the padding of the frame.
        records: Number of records by the frame's header.
        raw_length: Length of the uncompressed body by the header: no more is allocated.
        schema: The schema version that the preamble names.
        wanted: Ids of columns, also of those that the log adds.

    Raises:
        BrokenFrameError: the body is not what its header and its directory describe.
    """
    buffer = body if isinstance(body, pa.Buffer) else pa.py_buffer(body)
    preamble = read_preamble(memoryview(buffer)[:PREAMBLE_BYTES])
    if preamble.schema_version != schema.version:
        raise BrokenFrameError(
            f"expected schema version {schema.version} in the frame, found "
            f"{preamble.schema_version}"
        )
    columns, directory = _read_directory(preamble, buffer)
    found = {}
    try:
        reader = ArrayReader(buffer, directory, raw_length)
        for number, places in columns.items():
            if number in wanted:
                field = _field(schema, number)
                array = reader.column(field.type, records, places)
                if any(directory.nulls[places[0] : places[1]]):
                    _require_values(array, field)
                found[number] = array
    except (pa.ArrowException, ValueError, OverflowError) as error:
        text = " ".join(str(error).split())
        raise BrokenFrameError(f"the frame body is not sound: {text}") from error
    return found


def _require_values(array: pa.Array, field: Field) -> None:
    path = forbidden_null(array, field)
    if path is not None:
        raise BrokenFrameError(f"column {dotted(path)} is null where it may not be")


def _field(schema: SchemaVersion, number: int) -> Field:
    position = schema.positions.get(number)
    field = _SYSTEM.get(number) if position is None else schema.fields[position]
    if field is None:
        raise BrokenFrameError(
            f"the frame has a column with field id {number}, which schema version "
            f"{schema.version} does not have"
        )
    return field


def _read_directory(
    preamble: Preamble, body: pa.Buffer
) -> tuple[dict[int, tuple[int, int, int, int]], Directory]:
    """First and last node and buffer of each column, and the directory as plain numbers.

    Raises:
        BrokenFrameError: the numbers contradict each other or the length of the body.
    """
    first = preamble.directory_start + preamble.directory_length
    if first > body.size:
        raise BrokenFrameError(
            f"a frame body of {body.size} bytes cannot hold a directory of "
            f"{preamble.directory_length} bytes"
        )
    at = preamble.directory_start
    columns = np.frombuffer(body, _COLUMN, preamble.columns, at)
    at += columns.nbytes
    nodes = np.frombuffer(body, _NODE, preamble.nodes, at)
    at += nodes.nbytes
    buffers = np.frombuffer(body, _BUFFER, preamble.buffers, at)
    stored = buffers["stored"].astype(np.int64)
    ends = first + np.cumsum(stored + -stored % 8)
    node_ends = np.cumsum(columns["nodes"], dtype=np.int64)
    buffer_ends = np.cumsum(columns["buffers"], dtype=np.int64)
    if (
        (int(ends[-1]) if len(ends) else first) != body.size
        or (int(node_ends[-1]) if len(columns) else 0) != preamble.nodes
        or (int(buffer_ends[-1]) if len(columns) else 0) != preamble.buffers
        or (buffers["codec"] >= len(CODECS)).any()
        or buffers["zero"].any()
    ):
        raise BrokenFrameError("the directory of the frame body contradicts itself")
    edges = zip(
        (node_ends - columns["nodes"]).tolist(),
        node_ends.tolist(),
        (buffer_ends - columns["buffers"]).tolist(),
        buffer_ends.tolist(),
        strict=True,
    )
    places = dict(zip(columns["id"].tolist(), edges, strict=True))
    if len(places) != len(columns):
        raise BrokenFrameError("the frame body has a column twice")
    lists = (buffers[name].tolist() for name in ("stored", "length", "codec", "encoding", "width"))
    starts = (ends - (stored + -stored % 8)).tolist()
    return places, Directory(nodes["length"].tolist(), nodes["nulls"].tolist(), starts, *lists)


def _head(
    version: int,
    statistics: bytes,
    columns: list[tuple[int, int, int]],
    nodes: list[int],
    stored: list[Stored],
) -> bytes:
    """Everything before the buffers."""
    preamble = _PREAMBLE.pack(
        version, len(columns), len(nodes) // 2, len(stored), len(statistics), crc32c(statistics), 0
    )
    buffers = np.zeros(len(stored), _BUFFER)
    buffers["stored"] = [buffer.data.size for buffer in stored]
    for name in ("length", "codec", "encoding", "width"):
        buffers[name] = [getattr(buffer, name) for buffer in stored]
    directory = b"".join(
        [np.array(columns, _COLUMN).tobytes(), np.array(nodes, ">u4").tobytes(), buffers.tobytes()]
    )
    return b"".join(
        [
            preamble,
            _CRC.pack(crc32c(preamble)),
            statistics,
            bytes(-len(statistics) % 8),
            directory,
            bytes(-len(directory) % 8),
        ]
    )


def _joined(head: bytes, buffers: list[pa.Buffer]) -> list[Piece]:
    """The pieces of a body: large buffers as they are, what is between them joined."""
    pieces, small = list[Piece](), list[Any]([head])
    for buffer in buffers:
        if buffer.size > _SMALL_BYTES:
            pieces += (b"".join(small), buffer) if small else (buffer,)
            small = []
        else:
            small.append(buffer)
        if buffer.size % 8:
            small.append(bytes(-buffer.size % 8))
    return [*pieces, b"".join(small)] if small else pieces


def _padded(length: int) -> int:
    return length + -length % 8


_choices: dict[int, tuple[weakref.ref[SchemaVersion], Choices]] = {}


def _choices_of(schema: SchemaVersion) -> Choices:
    """What was chosen for earlier frames of the schema. Comparing schemas would take too long."""
    known = _choices.get(id(schema))
    if known is not None and known[0]() is schema:
        return known[1]
    if len(_choices) >= _MOST_CHOICES:
        _choices.clear()
    choices = Choices()
    _choices[id(schema)] = weakref.ref(schema), choices
    return choices
