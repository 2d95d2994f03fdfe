"""Arrow record batch messages as the buffers they consist of, without copying the records.

``RecordBatch.serialize`` copies every byte into one buffer, which costs as much as the checksum and
the write together. Arrow's stream writer hands each piece to a sink instead: the metadata as small
byte strings and the columns as the very buffers they are in. A vectored write takes them as such.
"""

from __future__ import annotations

import struct
import threading
from typing import Any

import pyarrow as pa

_FORWARD, _BACKWARD, _SHORT = (struct.Struct(form) for form in ("<I", "<i", "<H"))
Piece = Any  # bytes or pyarrow.Buffer, which has no type stub


class _Sink:
    """A file that keeps what is written to it."""

    closed = False

    def __init__(self) -> None:
        self.pieces: list[Piece] = []

    def write(self, piece: Piece) -> int:
        self.pieces.append(piece)
        return len(piece)

    def flush(self) -> None: ...

    def close(self) -> None: ...


class _Writer:
    """Makes messages of one schema. Used by one thread."""

    def __init__(self, schema: pa.Schema) -> None:
        self._sink = _Sink()
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._sink, mode="w"), schema)
        # The writer sends the schema with the first batch; frames leave it out.
        empty = [pa.nulls(0, field.type) for field in schema]
        self._writer.write_batch(pa.RecordBatch.from_arrays(empty, schema=schema))

    def pieces(self, batch: pa.RecordBatch) -> list[Piece]:
        self._sink.pieces = []
        self._writer.write_batch(batch)
        return self._sink.pieces


_writers = threading.local()


def message_pieces(batch: pa.RecordBatch) -> list[Piece]:
    """The pieces of the batch's message; joined they are what ``batch.serialize()`` returns."""
    known: dict[pa.Schema, _Writer] = _writers.__dict__.setdefault("by_schema", {})
    writer = known.get(batch.schema)
    if writer is None:
        writer = known[batch.schema] = _Writer(batch.schema)
    return writer.pieces(batch)


def has_compressed_buffers(message: pa.Buffer) -> bool:
    """Whether an IPC message asks Arrow to decompress buffers to sizes that it names itself.

    Arrow allocates such a size before looking further, so a damaged or hostile length could ask
    for all memory. The flag stands in slot 3 of the flatbuffer table ``RecordBatch``.
    """
    view = memoryview(message)
    message_table = 8 + _FORWARD.unpack_from(view, 8)[0]
    header_slot = _table_slot(view, message_table, 2)
    if header_slot == 0:
        raise struct.error("the message has no header")
    batch_table = header_slot + _FORWARD.unpack_from(view, header_slot)[0]
    return _table_slot(view, batch_table, 3) != 0


def _table_slot(view: memoryview, table: int, slot: int) -> int:
    """Position of a flatbuffer table's field, 0 when the table leaves it out."""
    vtable = table - _BACKWARD.unpack_from(view, table)[0]
    if vtable < 0:
        raise struct.error("the message points before its start")
    (size,) = _SHORT.unpack_from(view, vtable)
    entry = 4 + 2 * slot
    if entry + 2 > size:
        return 0
    (offset,) = _SHORT.unpack_from(view, vtable + entry)
    return table + offset if offset else 0
