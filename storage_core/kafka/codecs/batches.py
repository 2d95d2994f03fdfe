"""Record batches of magic 2: where they are, what their headers say, whether their bytes are sound.

All integers are big-endian; batches follow each other without padding.

====== ==== ===================================================================
offset size field
====== ==== ===================================================================
0      8    base offset
8      4    length of what follows this field
12     4    leader epoch
16     1    magic
17     4    CRC-32C of all bytes from 21 on
21     2    attributes: codec (bits 0 to 2), append time (3), transactional (4), control (5)
23     4    last offset, less the base offset
27     8    base timestamp, milliseconds
35     8    largest timestamp, milliseconds
43     8    producer id
51     2    producer epoch
53     4    base sequence
57     4    number of records
61     …    records, compressed together
====== ==== ===================================================================

Not guaranteed: the checksum does not cover the first 17 bytes. A wrong length leads to bytes whose
checksum differs. A wrong base offset is noticed if it overlaps the batches beside it or the next
segment; between two holes that compaction left it may not be. Nothing served depends on the leader
epoch.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...brokers.codecs.row_walk import walk_indexed
from ...brokers.codecs.rows import Ending, RowFormat, Rows
from ...format.file_names import MAX_OFFSET
from ...io.checksum import crc32c
from ...types import Int64s

HEADER_BYTES = 61
MAGIC = 2
_BEFORE_LENGTH, _BEFORE_BODY, _CHECKED_FROM = 8, 12, 21
_LEAST_BODY = HEADER_BYTES - _BEFORE_BODY
CODEC_BITS, APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
_INT32_MAX = (1 << 31) - 1
# From the length of one batch to that of the next it is a row of the brokers' framing. Sets of
# older magics have 14 bytes at least: they are framed too, and refused by their magic.
_FRAMING = RowFormat(_BEFORE_BODY, has_offset=False, max_payload=_INT32_MAX, min_payload=14)
_LENGTH = struct.Struct(">i")
HEADER = np.dtype(
    [
        ("base", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_delta", ">i4"),
        ("base_time", ">i8"),
        ("max_time", ">i8"),
        ("producer", ">i8"),
        ("producer_epoch", ">i2"),
        ("sequence", ">i4"),
        ("count", ">i4"),
    ]
)
_NO_ROWS: Int64s = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Batches:
    """Batches that stand in one run of bytes.

    ``positions`` are those of their first bytes, ``ends`` of the first byte after each. ``last`` is
    the last offset of each.
    """

    positions: Int64s
    ends: Int64s
    base: Int64s
    last: Int64s
    attributes: Int64s
    base_time: Int64s
    max_time: Int64s
    producer: Int64s
    count: Int64s

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, chosen: slice | Int64s | npt.NDArray[np.bool_]) -> Batches:
        return Batches(*(getattr(self, name)[chosen] for name in self.__slots__))

    def _has(self, bit: int) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = (self.attributes & bit) != 0
        return found

    @property
    def codecs(self) -> Int64s:
        return self.attributes & CODEC_BITS

    @property
    def is_control(self) -> npt.NDArray[np.bool_]:
        return self._has(CONTROL)

    @property
    def is_transactional(self) -> npt.NDArray[np.bool_]:
        return self._has(TRANSACTIONAL)

    @property
    def has_append_time(self) -> npt.NDArray[np.bool_]:
        return self._has(APPEND_TIME)


@dataclass(frozen=True, slots=True)
class Walked:
    """Sound batches from the start of some bytes, and how the bytes go on after them.

    ``problem`` says why the batch at ``end`` is none; None if the bytes end with a whole batch.
    With ``Ending.TORN`` more bytes might make it whole.
    """

    batches: Batches
    end: int
    ending: Ending
    problem: str | None


class Bounds(NamedTuple):
    """What offsets batches may have.

    The first begins with ``due`` or more. None reaches ``limit``, and none has ``edge`` inside it.
    """

    due: int
    limit: int = MAX_OFFSET
    edge: int = 0


def walk_batches(data: memoryview, entries: Int64s, bounds: Bounds) -> Walked:
    """Find the batches in some bytes that begin with one, up to the first that is not sound.

    ``entries`` are where batches may begin, in any quality: they only make the walk faster.
    """
    positions, ends, ending, problem = _frame(data, entries)
    if not len(positions):
        return Walked(NO_BATCHES, 0, ending, problem)
    table = np.frombuffer(data, dtype=np.uint8)
    heads = np.zeros(len(positions), dtype=HEADER)
    whole = int(np.searchsorted(positions, len(data) - HEADER_BYTES, side="right"))
    gathered = table[positions[:whole, None] + np.arange(HEADER_BYTES)]
    heads[:whole] = gathered.view(HEADER)[:, 0]
    # A last set of an older magic may be shorter than a header. Its magic is there.
    for row in range(whole, len(positions)):
        part = bytes(data[positions[row] :]).ljust(HEADER_BYTES, b"\0")[:HEADER_BYTES]
        heads[row] = np.frombuffer(part, dtype=HEADER)[0]
    batches = _batches_of(heads, positions, ends)
    sound = _sound(heads, batches, bounds)
    count = len(sound) if sound.all() else int(np.argmin(sound))
    count = _checked(data, heads, positions[:count], ends[:count])
    if count == len(positions):
        return Walked(batches, int(ends[-1]), ending, problem)
    intact = bool(_checked(data, heads[count:], positions[count:][:1], ends[count:][:1]))
    due = bounds.due if count == 0 else int(batches.last[count - 1]) + 1
    reason = _reason(heads[count], batches, count, bounds._replace(due=due), intact=intact)
    if count and intact and 0 <= batches.base[count] < due:
        before = bounds.due if count == 1 else int(batches.last[count - 2]) + 1
        # No checksum tells which of the two has the wrong offsets, but one may fit to those before.
        count -= batches.base[count - 1] != before
    return Walked(batches[:count], int(positions[count]), Ending.DAMAGED, reason)


def _frame(data: memoryview, entries: Int64s) -> tuple[Int64s, Int64s, Ending, str | None]:
    """Positions and ends of what is framed like batches, and how the bytes go on."""
    rows = Rows(_NO_ROWS, _NO_ROWS, 0)
    if len(data) > _BEFORE_LENGTH:
        rows = walk_indexed(data[_BEFORE_LENGTH:], 0, len(data) - _BEFORE_LENGTH, _FRAMING, entries)
    # A row ends after the base offset of the next batch, so the last batch may be no whole row.
    positions, at = rows.positions, rows.end
    left = len(data) - at
    if left >= _BEFORE_BODY:
        (length,) = _LENGTH.unpack_from(data, at + _BEFORE_LENGTH)
        if not _FRAMING.min_payload <= length:
            problem = f"batch length {length}, expected at least {_LEAST_BODY}"
            return positions, _ends(positions, at), Ending.DAMAGED, problem
        if at + _BEFORE_BODY + length <= len(data):
            positions = np.append(positions, at)
            at += _BEFORE_BODY + length
            left = len(data) - at
        else:
            problem = f"only {left} of the {_BEFORE_BODY + length} bytes of a batch"
            return positions, _ends(positions, at), Ending.TORN, problem
    if not left:
        return positions, _ends(positions, at), Ending.WHOLE, None
    problem = f"only {left} of the {HEADER_BYTES} bytes of a batch header"
    return positions, _ends(positions, at), Ending.TORN, problem


def _ends(positions: Int64s, end: int) -> Int64s:
    return np.append(positions[1:], end) if len(positions) else _NO_ROWS


def _batches_of(heads: npt.NDArray[np.void], positions: Int64s, ends: Int64s) -> Batches:
    def field(name: str) -> Int64s:
        found: Int64s = heads[name].astype(np.int64)
        return found

    base = field("base")
    return Batches(
        positions,
        ends,
        base,
        base + field("last_delta"),
        field("attributes"),
        field("base_time"),
        field("max_time"),
        field("producer"),
        field("count"),
    )


NO_BATCHES = _batches_of(np.empty(0, dtype=HEADER), _NO_ROWS, _NO_ROWS)


def _sound(heads: npt.NDArray[np.void], batches: Batches, bounds: Bounds) -> npt.NDArray[np.bool_]:
    """Which headers can be true, whatever their checksum; their offsets must rise."""
    delta = heads["last_delta"].astype(np.int64)
    sound = (heads["magic"] == MAGIC) & (heads["length"] >= _LEAST_BODY) & (delta >= 0)
    sound &= (batches.base >= 0) & (batches.base <= MAX_OFFSET - _INT32_MAX)
    sound &= (batches.count >= 0) & (batches.count <= delta + 1)
    sound &= batches.last < bounds.limit
    sound &= (batches.base >= bounds.edge) | (batches.last < bounds.edge)
    sound[0] &= batches.base[0] >= bounds.due
    sound[1:] &= batches.base[1:] > batches.last[:-1]
    return np.asarray(sound, dtype=np.bool_)


def _checked(data: memoryview, heads: npt.NDArray[np.void], positions: Int64s, ends: Int64s) -> int:
    """How many batches there are before the first whose checksum differs."""
    edges = zip((positions + _CHECKED_FROM).tolist(), ends.tolist(), strict=True)
    found = [crc32c(data[start:end]) for start, end in edges]
    same = np.array(found, dtype=np.uint32) == heads["crc"][: len(found)]
    return len(found) if same.all() else int(np.argmin(same))


def _reason(head: np.void, batches: Batches, row: int, bounds: Bounds, *, intact: bool) -> str:
    """What is wrong with a batch, in words."""
    magic, base, last = int(head["magic"]), int(batches.base[row]), int(batches.last[row])
    if magic in (0, 1):
        return (
            f"a message set of magic {magic}, which brokers before Kafka 0.11 wrote. Only record "
            "batches of magic 2 are read: let a broker with a later message format write the "
            "topic again"
        )
    if magic != MAGIC:
        return f"magic {magic}, expected {MAGIC}"
    if not intact:
        return "the checksum of a batch differs"
    if base < bounds.due:
        return f"offset {base}, expected {bounds.due} or more"
    if last >= bounds.limit:
        return f"a batch ends with offset {last}, expected less than {bounds.limit}"
    if base < bounds.edge <= last:
        return f"the high watermark {bounds.edge} is inside the batch of offsets {base} to {last}"
    return (
        f"a batch from offset {base} to {last} with {int(batches.count[row])} records, which no "
        "broker writes"
    )
