"""The numbers of a store, from names, sizes, small files and indexes: no read of all data.

Of the records only single frames are read: the one where a group stands, and the one that is five
minutes old. In stores of objects what the commits say of slices takes their place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..._version import __version__
from ...errors import StorageError, TopicNotFoundError
from ...layouts.registry import LAYOUTS
from ...store.store import Store
from ...types import SegmentInfo
from ..inspect.store_facts import recovery_due
from .exposition import Sample

RATE_WINDOW_S = 300
# Garbage of a store of objects is known by listing all its objects.
_GARBAGE_IS_FRESH_S = 600


@dataclass(frozen=True, slots=True)
class _Partition:
    """What several metrics of one partition need."""

    topic: str
    number: int
    end: int
    segments: Sequence[SegmentInfo]

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.number}"

    @property
    def labels(self) -> tuple[str, str]:
        return self.topic, str(self.number)

    @property
    def start(self) -> int:
        return min(self.segments[0].base, self.end) if self.segments else self.end


class Measures:
    """Measures one store again and again. Used by one thread at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._timed = "timestamp" in LAYOUTS[store.layout].columns
        self._garbage: tuple[float, list[Sample]] | None = None
        self._errors: dict[tuple[str, str], StorageError] = {}

    @property
    def errors(self) -> list[StorageError]:
        """What could not be read at the last collection."""
        return list(self._errors.values())

    def collect(self) -> list[Sample]:
        """All samples now."""
        self._errors, clock = {}, self._store.vfs.monotonic
        begun = clock()
        return [*self._samples(), Sample("cursus_collection_seconds", clock() - begun)]

    def _samples(self) -> Iterator[Sample]:
        store, now_us = self._store, self._store.vfs.now_us()
        yield Sample("cursus_store_info", 1, (store.layout, __version__))
        names = store.topics()
        yield Sample("cursus_topics", len(names))
        found: dict[str, list[_Partition]] = {}
        for name in names:
            try:
                found[name] = self._partitions(name)
                yield from [each for part in found[name] for each in self._partition(part, now_us)]
            except TopicNotFoundError:  # deleted meanwhile
                continue
            except StorageError as error:
                self._errors["topic", name] = error
        for group in store.groups():
            try:
                yield from list(self._group(group, found, now_us))
            except StorageError as error:
                self._errors["group", group] = error
        yield from self._leftovers(now_us)
        for (kind, name), problem in self._errors.items():
            yield Sample("cursus_unreadable", 1, (kind, name, problem.code))

    def _partitions(self, topic: str) -> list[_Partition]:
        with self._store.reading_once():
            ends = self._store.visible_ends(topic)
            return [
                _Partition(topic, number, end, self._store.segments(topic, number, by_names=True))
                for number, end in enumerate(ends)
            ]

    def _partition(self, part: _Partition, now_us: int) -> Iterator[Sample]:
        store, labels = self._store, part.labels
        size = sum(segment.size for segment in part.segments)
        skipped = sum(map(len, store.skipped(part.topic, part.number)))
        due = recovery_due(store, part.topic, part.number)
        for name, value in (
            ("start_offset", part.start),
            ("end_offset", part.end),
            ("size_bytes", size),
            ("segments", len(part.segments)),
            ("recovery_due", int(due)),
            ("skipped_records", skipped),
        ):
            yield Sample(f"cursus_partition_{name}", value, labels)
        if self._timed:
            try:
                records, written = self._since(part, now_us - RATE_WINDOW_S * 1_000_000)
            except StorageError as error:
                self._errors["partition", part.name] = error
            else:
                yield Sample("cursus_partition_records_per_second", records / RATE_WINDOW_S, labels)
                yield Sample("cursus_partition_bytes_per_second", written / RATE_WINDOW_S, labels)

    def _since(self, part: _Partition, cutoff_us: int) -> tuple[float, float]:
        """Records and bytes that are not older than a time."""
        store = self._store
        if LAYOUTS[store.layout].frames == "slices":
            return self._slices_since(part, cutoff_us)
        older = store.end_of_older(part.topic, part.number, cutoff_us)
        first = part.start if older is None else max(older, part.start)
        return max(0, part.end - first), self._bytes_after(part, first)

    def _slices_since(self, part: _Partition, cutoff_us: int) -> tuple[float, float]:
        """The same, with the times of a slice taken as even."""
        records = written = 0.0
        bounds = self._store.time_bounds(part.topic, part.number, part.segments)
        for segment, times in zip(part.segments, bounds, strict=True):
            if times is not None and times.largest >= cutoff_us:
                span = times.largest - times.smallest
                share = min(1.0, (times.largest - cutoff_us) / span) if span else 1.0
                records += share * (segment.end - segment.base)
                written += share * segment.size
        return records, written

    def _bytes_after(self, part: _Partition, offset: int) -> float:
        """Bytes of log from an offset on, to an entry of the index."""
        total = 0.0
        for segment in reversed(part.segments):
            if segment.end <= offset:
                break
            if segment.base >= offset:
                total += segment.size
            else:
                total += segment.size - self._position(part, segment, offset)
        return total

    def _position(self, part: _Partition, segment: SegmentInfo, offset: int) -> float:
        if LAYOUTS[self._store.layout].frames == "files":
            offsets, positions = self._store.index_entries(part.topic, part.number, segment)
            at = int(np.searchsorted(offsets, offset, side="right")) - 1
            return float(positions[at]) if at >= 0 else 0.0
        return segment.size * (offset - segment.base) / (segment.end - segment.base)

    def _group(
        self, group: str, topics: dict[str, list[_Partition]], now_us: int
    ) -> Iterator[Sample]:
        for topic, committed in sorted(self._store.committed_offsets(group).items()):
            parts = topics.get(topic, [])
            for number, offset in sorted(committed.items()):
                if number < len(parts):
                    yield from self._lag(group, parts[number], offset, now_us)

    def _lag(self, group: str, part: _Partition, offset: int, now_us: int) -> Iterator[Sample]:
        labels = (group, *part.labels)
        waiting = max(0, part.end - offset)
        first = max(offset, part.start)
        for name, value in (
            ("committed_offset", offset),
            ("lag_records", waiting),
            ("lag_bytes", self._bytes_after(part, first) if waiting else 0),
            ("lost_records", max(0, part.start - offset)),
        ):
            yield Sample(f"cursus_group_{name}", value, labels)
        if self._timed:
            try:
                oldest = self._time_of(part, first) if waiting else None
            except StorageError as error:
                self._errors["partition", part.name] = error
            else:
                age = 0.0 if oldest is None else max(0.0, (now_us - oldest) / 1e6)
                yield Sample("cursus_group_lag_seconds", age, labels)

    def _time_of(self, part: _Partition, offset: int) -> int | None:
        """The time of the first record from an offset on; of a slice its smallest time."""
        store, name = self._store, "_timestamp"
        if LAYOUTS[store.layout].frames == "slices":
            holding = [each for each in part.segments if each.end > offset][:1]
            (bounds,) = store.time_bounds(part.topic, part.number, holding) or [None]
            return None if bounds is None else bounds.smallest
        batches = store.read(
            part.topic, part.number, offset, part.end, max_records=1, columns=[name]
        )
        for batch in batches:
            return int(batch.column(name).cast("int64")[0].as_py())
        return None

    def _leftovers(self, now_us: int) -> Iterator[Sample]:
        pending = self._store.pending_commits()
        yield Sample("cursus_pending_commits", len(pending))
        ages = [(now_us - commit.written_us) / 1e6 for commit in pending]
        yield Sample("cursus_pending_commit_oldest_seconds", max(0.0, *ages, 0.0))
        if LAYOUTS[self._store.layout].garbage:
            yield from self._garbage_samples()
            return
        jobs = self._store.staged_jobs()
        yield Sample("cursus_staging_jobs", len(jobs))
        yield Sample("cursus_staging_bytes", sum(job.size for job in jobs))
        ages = [(now_us - job.changed_us) / 1e6 for job in jobs]
        yield Sample("cursus_staging_oldest_seconds", max(0.0, *ages, 0.0))

    def _garbage_samples(self) -> list[Sample]:
        now = self._store.vfs.monotonic()
        if self._garbage is None or now - self._garbage[0] > _GARBAGE_IS_FRESH_S:
            count, size = self._store.collect_garbage(dry_run=True)
            samples = [
                Sample("cursus_garbage_objects", count),
                Sample("cursus_garbage_bytes", size),
            ]
            self._garbage = now, samples
        return self._garbage[1]
