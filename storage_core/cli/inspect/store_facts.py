"""What several commands show of a store: topics, partitions, segments, consumer lag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...checks.inspect import contents, time_order
from ...errors import StorageError
from ...format.file_names import segments_directory
from ...layouts.registry import LAYOUTS
from ...metadata.schema_files import RegisteredSchema
from ...metadata.topic_file import TopicFile
from ...segments.listing import list_segments
from ...store.store import Store
from ...types import OffsetRange, SegmentContents, SegmentInfo

_SHOWN = 10


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """One segment. Its smallest and largest time are None if the layout stores no timestamps."""

    base: int
    end: int
    path: str
    size: int
    sealed: bool
    records: int
    first_time: int | None = None
    last_time: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """One partition up to its high watermark.

    ``times_in_order``: whether no frame has a record that is older than one of an earlier frame;
    None if nobody looked.
    """

    topic: str
    partition: int
    start: int
    end: int
    segments: tuple[SegmentFacts, ...]
    recovery_due: bool
    times_in_order: bool | None = None
    skipped: tuple[OffsetRange, ...] = ()
    """Damaged records that were given up."""

    @property
    def records(self) -> int:
        """Number of records in the log, without the holes that compaction leaves."""
        return sum(segment.records for segment in self.segments)

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """One topic; ``problem`` says why its partitions cannot be read.

    ``schemas`` are the schema versions of a typed topic, the published one last.
    """

    name: str
    file: TopicFile | None = None
    schemas: tuple[RegisteredSchema, ...] = ()
    partitions: tuple[PartitionFacts, ...] = ()
    problem: StorageError | None = None

    @property
    def count(self) -> int:
        """Number of partitions."""
        return 0 if self.file is None else self.file.partitions

    @property
    def settings(self) -> Mapping[str, Any]:
        return {} if self.file is None else self.file.settings

    @property
    def records(self) -> int:
        return sum(partition.records for partition in self.partitions)

    @property
    def size(self) -> int:
        return sum(partition.size for partition in self.partitions)

    @property
    def segments(self) -> int:
        return sum(len(partition.segments) for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class Lag:
    """A group's committed offset in one partition, and the end of the log."""

    group: str
    topic: str
    partition: int
    committed: int
    end: int

    @property
    def lag(self) -> int:
        return max(0, self.end - self.committed)


def facts_of_topic(store: Store, name: str, *, times: bool = False) -> TopicFacts:
    """A topic as it is now. If it cannot be read, ``problem`` holds the error.

    Raises:
        TopicNotFoundError: the topic does not exist.
    """
    found = store.topic(name)
    known = TopicFacts(name, found)
    try:
        schemas = tuple(store.schema_versions(name)) if found.is_typed else ()
        partitions = tuple(
            _facts_of_partition(store, name, partition, times)
            for partition in range(found.partitions)
        )
    except StorageError as error:
        return replace(known, problem=error)
    return replace(known, partitions=partitions, schemas=schemas)


def facts_of_topics(store: Store, *, times: bool = False) -> list[TopicFacts]:
    """Every topic, also one with a damaged ``topic.json``."""
    found = []
    for name in store.topics():
        try:
            found.append(facts_of_topic(store, name, times=times))
        except StorageError as error:
            found.append(TopicFacts(name, problem=error))
    return found


def consumer_lags(store: Store, group: str | None = None, topic: str | None = None) -> list[Lag]:
    """The lag of consumer groups, by group, topic and partition."""
    found = []
    for name in store.groups() if group is None else [group]:
        for of_topic, committed in sorted(store.committed_offsets(name).items()):
            if topic in (None, of_topic):
                ends = store.visible_ends(of_topic)
                found += [
                    Lag(name, of_topic, partition, offset, ends[partition])
                    for partition, offset in sorted(committed.items())
                    if partition < len(ends)
                ]
    return found


def recovery_due(store: Store, topic: str, partition: int) -> bool:
    """Whether the next writer must recover the partition; never if it has no segments."""
    if not store.recovery_due(topic, partition):
        return False
    return bool(list_segments(store.vfs, segments_directory(topic, partition)).bases)


def _facts_of_partition(store: Store, topic: str, partition: int, times: bool) -> PartitionFacts:
    bounds = store.offsets(topic, partition)
    segments = [
        _facts_of_segment(store, topic, partition, found)
        for found in store.segments(topic, partition)
    ]
    due = recovery_due(store, topic, partition)
    in_files = LAYOUTS[store.layout].frames == "files"
    in_order = _times_in_order(store, segments) if times and in_files else None
    skipped = tuple(store.skipped(topic, partition))
    return PartitionFacts(
        topic, partition, bounds.start, bounds.end, tuple(segments), due, in_order, skipped
    )


def _facts_of_segment(store: Store, topic: str, partition: int, found: SegmentInfo) -> SegmentFacts:
    inside = SegmentContents(found.end - found.base, None, None)
    frames = LAYOUTS[store.layout].frames
    try:
        if frames == "files":
            inside = contents(store.vfs, found.path, found.base, found.end)
        elif frames == "slices":
            inside = store.slice_contents(topic, partition, found) or inside
        elif _is_compacted(store, found.path):
            batches = store.read(topic, partition, found.base, found.end, columns=["offset"])
            inside = inside._replace(records=sum(batch.num_rows for batch in batches))
    except (OSError, StorageError):  # deleted meanwhile, or unreadable: check reports it
        pass
    return SegmentFacts(found.base, found.end, found.path, found.size, found.sealed, *inside)


def _is_compacted(store: Store, path: str) -> bool:
    """Whether the cursus broker's mark of a compacted file is there."""
    directory, _, name = path.rpartition("/")
    return any(each.startswith(f"{name}.compacted-") for each in store.vfs.listdir(directory))


def _times_in_order(store: Store, segments: Sequence[SegmentFacts]) -> bool:
    latest = None
    for segment in segments:
        try:
            found = time_order(store.vfs, segment.path, segment.base, sealed=segment.sealed)
        except OSError:  # as above
            continue
        if found is not None:
            if not found.in_order or (latest is not None and found.smallest < latest):
                return False
            latest = found.largest if latest is None else max(latest, found.largest)
    return True


def out_of_order(partitions: Sequence[PartitionFacts]) -> str | None:
    """Which partitions have times that are not in the order of offsets, in words."""
    found = [str(each.partition) for each in partitions if each.times_in_order is False]
    if not found:
        return None
    some = ", ".join(found[:_SHOWN]) + (" ..." if len(found) > _SHOWN else "")
    return f"{'partition' if len(found) == 1 else 'partitions'} {some}"
