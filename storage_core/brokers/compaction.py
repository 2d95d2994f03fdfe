"""Compacting closed files of a cursus broker's partition the way the broker itself does.

A record goes if it has a key, belongs to no transaction and is no control record, a later record of
that kind has the same key in a closed file, and its producer, if it names one, has a later record
there too. Empty values are values. Offsets stay; log and index get their old names.

``<log>.compacted-<size>`` beside a log says that its holes are meant, and counts only for a log of
that size. So it comes first: then the new file is renamed over the log, which decides it, then the
index follows, and last the mark of an earlier size goes. The old index may lead astray meanwhile,
but whoever uses it looks whether the record is there. The broker is stopped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..errors import BrokenFrameError
from ..format.columns import Int64s
from ..io.byte_source import WindowSource
from ..io.durable import create_file, replace_file, write_all
from ..maintenance.key_digest import SEED_BYTES, Digests, digests
from ..maintenance.key_table import KeyTable
from ..maintenance.report import Pace
from ..segments.sealed import Sealed
from ..vfs import Buffer, Vfs
from .codecs.index import IndexEntries, encode_index
from .codecs.records import Bodies, parse_bodies
from .codecs.row_walk import walk_lanes
from .codecs.rows import CURSUS_BROKER, Ending, Rows
from .segments import COMPACTED

_WINDOW_BYTES = 8 << 20
_INDEX_INTERVAL = 4096
_NO_ENTRIES = np.empty(0, dtype=np.int64)
_TRANSACTIONAL = (
    "txn_id",
    "txn_state",
    "txn_marker",
    "control_type",
    "control_key",
    "control_value",
)


class _Chunk(NamedTuple):
    """Whole records of a file: their bytes, rows and fields."""

    data: pa.Buffer
    rows: Rows
    bodies: Bodies


def _chunks(vfs: Vfs, segment: Sealed) -> Iterator[_Chunk]:
    """All records of a closed file; none if retention was faster.

    Raises:
        BrokenFrameError: where one is not sound.
    """
    try:
        fd = vfs.open(segment.path, "read")
    except FileNotFoundError:
        return
    source = WindowSource(vfs, fd, vfs.fstat(fd).size, _WINDOW_BYTES)
    try:
        position, wanted = 0, _WINDOW_BYTES
        while position < source.size:
            data = pa.py_buffer(source.read(position, wanted))
            rows = walk_lanes(data, 0, len(data), CURSUS_BROKER, _NO_ENTRIES)
            at_end = position + len(data) >= source.size
            bodies = parse_bodies(data, rows)
            problem = bodies.damage
            if rows.ending is Ending.DAMAGED or (rows.ending is Ending.TORN and at_end):
                problem = problem or rows.problem
            if problem is not None:
                raise BrokenFrameError(problem, path=segment.path, position=position + rows.end)
            if not rows.count:
                wanted *= 2  # a record larger than the window
                continue
            yield _Chunk(data, rows, bodies)
            position, wanted = position + rows.end, _WINDOW_BYTES
    finally:
        source.close()


class BrokerCompactor:
    """The keys and producers of a pass, and what may go. Not thread-safe."""

    def __init__(self, vfs: Vfs, memory_bytes: int, pace: Pace) -> None:
        self._vfs = vfs
        self._memory = memory_bytes
        self._pace = pace
        self._seed = os.urandom(SEED_BYTES)
        self._keys = self._producers = KeyTable(0)
        self.removed = 0

    def note_producers(self, segments: Sequence[Sealed]) -> None:
        """Note the last record of each producer in all closed files, before the first ``fill``.

        Where there is no room for more, later ones are not known: then earlier ones stay.
        """
        self._producers = KeyTable(self._memory // 4)
        for segment in segments:
            for chunk in _chunks(self._vfs, segment):
                self._pace.advance(chunk.rows.end)
                named = np.flatnonzero(_lengths(chunk, "producer") > 0)
                if self._put(self._producers, chunk, "producer", named) is not None:
                    return

    def fill(self, segments: Sequence[Sealed], start: int) -> int:
        """Note the keys from offset ``start`` on; return how far it got."""
        self._keys = KeyTable(self._memory * 3 // 4)
        upto = start
        for segment in segments:
            if segment.end <= start:
                continue
            for chunk in _chunks(self._vfs, segment):
                self._pace.advance(chunk.rows.end)
                keyed = np.flatnonzero(_plain_keyed(chunk) & (chunk.bodies.offsets >= start))
                full_at = self._put(self._keys, chunk, "key", keyed)
                if full_at is not None:
                    return full_at
            upto = segment.end
        return upto

    def _put(self, table: KeyTable, chunk: _Chunk, name: str, rows: Int64s) -> int | None:
        """Note some of a chunk's records; the offset of the first that found no room, or None."""
        offsets, at = chunk.bodies.offsets, 0
        while at < len(rows):
            room = table.capacity - table.count
            if room <= 0:
                return int(offsets[rows[at]])
            part = rows[at : at + room]
            table.put(self._digests(chunk, name, part), offsets[part])
            at += room
        return None

    def survivors(self, chunk: _Chunk) -> Int64s:
        """Rows that stay."""
        offsets = chunk.bodies.offsets
        gone = np.zeros(chunk.rows.count, dtype=np.bool_)
        keyed = np.flatnonzero(_plain_keyed(chunk))
        latest = self._keys.latest(self._digests(chunk, "key", keyed))
        gone[keyed[latest > offsets[keyed]]] = True
        named = np.flatnonzero(gone & (_lengths(chunk, "producer") > 0))
        last = self._producers.latest(self._digests(chunk, "producer", named)) <= offsets[named]
        gone[named[last]] = False
        return np.flatnonzero(~gone)

    def rewrite(self, segment: Sealed) -> Compacted | None:
        """A file without what may go, durable beside the log; None if nothing may."""
        path, removed = f"{segment.path}.compacting", 0
        with suppress(FileNotFoundError):
            self._vfs.unlink(path)
        fd = self._vfs.open(path, "create")
        try:
            size, entries = 0, _Entries()
            for chunk in _chunks(self._vfs, segment):
                stays = self.survivors(chunk)
                removed += chunk.rows.count - len(stays)
                size = self._write(fd, chunk, stays, size, entries)
                self._pace.advance(chunk.rows.end)
            self._vfs.fsync(fd)
        except BaseException:
            self._vfs.close(fd)
            self._vfs.unlink(path)
            raise
        self._vfs.close(fd)
        if not removed:
            self._vfs.unlink(path)
            return None
        self.removed += removed
        return Compacted(path, size, entries.encoded(), removed)

    def estimate(self, segment: Sealed) -> tuple[int, int]:
        """Records that would go from a file, and their bytes."""
        gone = size = 0
        for chunk in _chunks(self._vfs, segment):
            stays = self.survivors(chunk)
            kept = int((chunk.rows.lengths[stays] + CURSUS_BROKER.header_bytes).sum())
            gone, size = gone + chunk.rows.count - len(stays), size + chunk.rows.end - kept
            self._pace.advance(chunk.rows.end)
        return gone, size

    def _write(
        self, fd: int, chunk: _Chunk, stays: Int64s, position: int, entries: _Entries
    ) -> int:
        """Write the rows that stay, neighbours together; return the position behind them."""
        lengths = chunk.rows.lengths[stays] + CURSUS_BROKER.header_bytes
        starts = chunk.rows.positions[stays]
        places = position + np.cumsum(lengths) - lengths
        entries.add(chunk.bodies.offsets[stays], places)
        breaks = np.flatnonzero(starts[1:] != starts[:-1] + lengths[:-1]) + 1
        view = memoryview(chunk.data)
        edges = [0, *breaks.tolist(), len(starts)] if len(starts) else []
        runs: list[Buffer] = [
            view[int(starts[first]) : int(starts[last - 1] + lengths[last - 1])]
            for first, last in pairwise(edges)
        ]
        return write_all(self._vfs, fd, runs, position)

    def _digests(self, chunk: _Chunk, name: str, rows: Int64s) -> Digests:
        return digests(chunk.bodies.text(name).column(chunk.data).take(pa.array(rows)), self._seed)


class Compacted(NamedTuple):
    """What waits to take a log's place: file, size, index entries, and how many records went."""

    path: str
    size: int
    entries: bytes
    removed: int


class _Entries:
    """The entries of the new index: never the record at 0, then one per interval."""

    def __init__(self) -> None:
        self._last = 0
        self._offsets: list[int] = []
        self._positions: list[int] = []

    def add(self, offsets: Int64s, positions: Int64s) -> None:
        at = int(np.searchsorted(positions, self._last + _INDEX_INTERVAL))
        while at < len(positions):
            self._last = int(positions[at])
            self._offsets.append(int(offsets[at]))
            self._positions.append(self._last)
            at = int(np.searchsorted(positions, self._last + _INDEX_INTERVAL))

    def encoded(self) -> bytes:
        offsets = np.array(self._offsets, dtype=np.int64)
        return encode_index(IndexEntries(offsets, np.array(self._positions, dtype=np.int64)))


def put_in_place(vfs: Vfs, directory: str, segment: Sealed, new: Compacted) -> bool:
    """Replace a log by its compacted form; False if it is no longer what was read.

    The caller holds the partition's lock.
    """
    if vfs.stat(segment.path) != segment.stat:
        vfs.unlink(new.path)
        return False
    mark = f"{segment.path}.compacted-{new.size}"
    # Also one that is there: whoever made it may have died before its contents were durable.
    with suppress(FileNotFoundError):
        vfs.unlink(mark)
    create_file(vfs, mark, COMPACTED)
    vfs.fsync_dir(directory)
    vfs.rename(new.path, segment.path)
    vfs.fsync_dir(directory)
    replace_file(vfs, segment.path.removesuffix(".log") + ".index", new.entries)
    prefix = f"{segment.path.rpartition('/')[2]}.compacted-"
    for name in vfs.listdir(directory):
        if name.startswith(prefix) and name != mark.rpartition("/")[2]:
            vfs.unlink(f"{directory}/{name}")
    return True


def _lengths(chunk: _Chunk, name: str) -> Int64s:
    return chunk.bodies.text(name).lengths


def _plain_keyed(chunk: _Chunk) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Records with a key that take no part in a transaction."""
    plain: np.ndarray[tuple[int], np.dtype[np.bool_]] = _lengths(chunk, "key") > 0
    for name in _TRANSACTIONAL:
        plain &= _lengths(chunk, name) == 0
    for name in ("control_version", "control_epoch"):
        plain &= chunk.bodies.number(name) == 0
    return plain
