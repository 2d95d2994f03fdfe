"""Compacting sealed files of a cursus broker's partition the way the broker itself does.

A record goes if all of this is true: it has a key; it belongs to no transaction and is no control
record; a sealed file has a later such record of the same key; and a sealed file has a later record
of its producer, if it names one. Empty values are values. Offsets stay; log and index get their old
names.

``<log>.compacted-<size>`` beside a log tells the broker that the holes are meant. It counts only
for a log of that size, so it is written first. Then the new file is renamed over the log, which is
the decision. Then the index follows, and last the sidecar of an earlier size goes. Until then the
old index may lead to wrong places, but every reader checks the record that an entry leads to. The
broker is stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..errors import BrokenFrameError
from ..format.sparse_index import SparseIndex
from ..io.byte_source import WindowSource
from ..io.durable import create_file, make_directories, parent, replace_file, sync_file, write_all
from ..io.io_errors import typed_read_errors, typed_write_errors
from ..io.locks import ensure_lock_file, locked
from ..layouts.broker_names import STATE_DIRECTORY
from ..maintenance.compaction import Bools, Change, Compaction, Keyed
from ..maintenance.compaction_policy import CleanerCheckpoint, LogToClean
from ..maintenance.key_table import Digests, KeyTable, digests
from ..maintenance.partition import FileMaintenance, Guard
from ..maintenance.report import Pace
from ..segments.sealed import Sealed
from ..types import Int64s
from ..vfs import Buffer, Vfs
from .codecs.index import encode_index
from .codecs.records import Bodies, parse_bodies
from .codecs.row_walk import walk_indexed
from .codecs.rows import CURSUS_BROKER, Ending, Rows
from .log import RowLog
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
    """All records of a sealed file; none if retention has removed it.

    Raises:
        BrokenFrameError: a record is damaged.
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
            rows = walk_indexed(data, 0, len(data), CURSUS_BROKER, _NO_ENTRIES)
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


class Compacted(NamedTuple):
    """A file that waits to take a log's place: path, size and index entries."""

    path: str
    size: int
    entries: bytes


class BrokerCompaction(Compaction[Sealed, _Chunk, Compacted]):
    """The compaction of a cursus broker's files. A dry run does not use ``log`` and ``guard``."""

    def __init__(
        self,
        of: FileMaintenance,
        pace: Pace,
        log: Callable[[], RowLog],
        guard: Guard,
    ) -> None:
        super().__init__(of, f"{STATE_DIRECTORY}/cleaned/{of.topic}-{of.partition}.json", pace)
        self._vfs = of.vfs
        self._files = of
        self._log = log
        self._guard = guard
        # Keys and producers share the memory.
        self._table_bytes = of.config.compaction_memory_bytes * 3 // 4
        self._producers = KeyTable(of.config.compaction_memory_bytes // 4)

    @contextmanager
    def held(self) -> Iterator[None]:
        of = self._of
        where = f"{of.topic}-{of.partition}"
        lock = f"{STATE_DIRECTORY}/locks/{where}.upkeep"
        with typed_write_errors(f"compacting {where}", of.topic):
            ensure_lock_file(self._vfs, lock)
            with locked(self._vfs, lock, of.config.lock_timeout_ms):
                yield

    def sealed(self) -> list[Sealed]:
        return self._files.sealed(self._of.high_watermark())

    def sync(self, segments: Sequence[Sealed]) -> None:
        for segment in segments:
            with suppress(FileNotFoundError):  # retention was faster
                sync_file(self._vfs, segment.path)

    def save(self, checkpoint: CleanerCheckpoint) -> None:
        make_directories(self._vfs, parent(self._path))
        super().save(checkpoint)

    def prepare(self, log: LogToClean[Sealed], checkpoint: CleanerCheckpoint) -> int:  # noqa: ARG002
        """Note the last record of each producer in all sealed files.

        Once the table is full, later producers are not known: then their earlier records stay. The
        first pass begins with the first file: a record that stayed for its producer goes once that
        producer has a later one.
        """
        total = log.total_bytes + log.bytes_to_read(0)
        self._pace.begin("compact", self._of.topic, self._of.partition, total)
        for segment in log.segments:
            for chunk in self.batches(segment):
                named = np.flatnonzero(_lengths(chunk, "producer") > 0)
                keys = self._digests(chunk, "producer", named)
                if self._producers.put_while_room(keys, chunk.bodies.offsets[named]) is not None:
                    return 0
        return 0

    def batches(self, segment: Sealed) -> Iterator[_Chunk]:
        with typed_read_errors(self._of.topic, self._of.partition, segment.path):
            for chunk in _chunks(self._vfs, segment):
                self._pace.advance(chunk.rows.end)
                yield chunk

    def keyed(self, batch: _Chunk, start: int) -> Keyed | None:
        rows = np.flatnonzero(_plain_keyed(batch) & (batch.bodies.offsets >= start))
        if not len(rows):
            return None
        keys = self._digests(batch, "key", rows)
        # An empty value is a value: the broker has no tombstones.
        no_tombstones = np.zeros(len(rows), dtype=np.bool_)
        return Keyed(batch.rows.count, rows, batch.bodies.offsets[rows], keys, no_tombstones)

    def gone(self, batch: _Chunk, keyed: Keyed) -> Bools:
        gone = super().gone(batch, keyed)
        named = np.flatnonzero(gone & (_lengths(batch, "producer")[keyed.rows] > 0))
        last = self._producers.latest(self._digests(batch, "producer", keyed.rows[named]))
        gone[named[last <= keyed.offsets[named]]] = False
        return gone

    def rewritten(self, segment: Sealed) -> Compacted | None:
        path, before = f"{segment.path}.compacting", self._removed
        with suppress(FileNotFoundError):
            self._vfs.unlink(path)
        fd = self._vfs.open(path, "create")
        try:
            size, entries = 0, _Entries()
            for chunk in self.batches(segment):
                size = self._write(fd, chunk, self._staying(chunk), size, entries)
            self._vfs.fsync(fd)
        except BaseException:
            self._vfs.close(fd)
            self._vfs.unlink(path)
            raise
        self._vfs.close(fd)
        if self._removed == before:
            self._vfs.unlink(path)
            return None
        return Compacted(path, size, entries.encoded())

    def replaced(
        self, changes: Iterator[Change[Sealed, Compacted]]
    ) -> Iterator[tuple[Change[Sealed, Compacted], bool]]:
        for change in changes:
            yield change, self._replace(change.segment, change.new)

    def _replace(self, segment: Sealed, new: Compacted) -> bool:
        log = self._log()

        def swap() -> bool:
            with log.exclusive():
                return put_in_place(self._vfs, parent(segment.path), segment, new)

        return self._guard(swap)

    def size_after(self, segment: Sealed) -> int:
        return sum(
            int((chunk.rows.lengths[self._staying(chunk)] + CURSUS_BROKER.header_bytes).sum())
            for chunk in self.batches(segment)
        )

    def _staying(self, chunk: _Chunk) -> Int64s:
        rows = self.survivors(chunk)
        return np.arange(chunk.rows.count) if rows is None else rows

    def _write(
        self, fd: int, chunk: _Chunk, stays: Int64s, position: int, entries: _Entries
    ) -> int:
        """Write the rows that stay, neighbours together; return the position after them."""
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
        return encode_index(SparseIndex(offsets, np.array(self._positions, dtype=np.int64)))


def put_in_place(vfs: Vfs, directory: str, segment: Sealed, new: Compacted) -> bool:
    """Replace a log by its compacted form; False if it is no longer what was read.

    The caller holds the partition's lock.
    """
    if vfs.stat(segment.path) != segment.stat:
        vfs.unlink(new.path)
        return False
    sidecar = f"{segment.path}.compacted-{new.size}"
    # An existing one too: its writer may have crashed before the sync.
    with suppress(FileNotFoundError):
        vfs.unlink(sidecar)
    create_file(vfs, sidecar, COMPACTED)
    vfs.fsync_dir(directory)
    vfs.rename(new.path, segment.path)
    vfs.fsync_dir(directory)
    replace_file(vfs, segment.path.removesuffix(".log") + ".index", new.entries)
    prefix = f"{segment.path.rpartition('/')[2]}.compacted-"
    for name in vfs.listdir(directory):
        if name.startswith(prefix) and name != sidecar.rpartition("/")[2]:
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
