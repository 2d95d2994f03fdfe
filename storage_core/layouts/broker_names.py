"""File names in the brokers' directories. ``format`` and ``parse`` are inverses.

============= =============================================================== ==========
layout        log file                                                        number is
============= =============================================================== ==========
cursus        ``<topic>/partition_<p>_segment_<n>.log``                       ordinal
cursus        ``<topic>/partition_<p>/<topic>_partition_<p>_segment_<n>.log`` ordinal
cursus-broker ``<topic>/partition_<p>_segment_<base:020>.log``                base offset
rustlog       ``topics/<topic>/partition-<p>/<base:020>.log``                 base offset
kafka         ``<topic>-<p>/<base:020>.log``                                  base offset
============= =============================================================== ==========

Everything else in these directories (``.deleted``, ``.compacting``, ``.tmp``, ``.hwm``, side
directories of event-sourced topics) is not a log and is passed over. In a Kafka broker's
directory these are names with ``.deleted``, ``.cleaned`` or ``.swap`` at their end, and directories
that end in ``-delete``, ``-stray`` or ``-future``: work that the broker has not finished.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol, TypeAlias

from ..errors import LayoutMismatchError
from ..vfs import Vfs

STATE_DIRECTORY = ".cursus-spark"
"""Our own files in a broker's directory."""
BROKER_TOPICS = "__topic_metadata.json"
"""The list of topics that the cursus broker keeps."""
KAFKA_FILES = ("meta.properties", "replication-offset-checkpoint")
"""One of these files in a directory tells that it is a Kafka broker's."""
MAX_OFFSET = (1 << 63) - 1
MOST_PARTITIONS = 1 << 17
"""More of one topic no Kafka broker has: the directory is a copy with a date in its name."""

_PLAIN = r"(0|[1-9]\d{0,17})"
_FLAT = re.compile(rf"partition_{_PLAIN}_segment_{_PLAIN}\.log")
_FLAT_PADDED = re.compile(rf"partition_{_PLAIN}_segment_(\d{{20}})\.log")
_NESTED_DIRECTORY = re.compile(rf"partition_{_PLAIN}")
_RUSTLOG_DIRECTORY = re.compile(rf"partition-{_PLAIN}")
_RUSTLOG = re.compile(r"(\d{20}|\d{12})\.log")
_KAFKA_DIRECTORY = re.compile(r"([A-Za-z0-9._-]{1,249})-(0|[1-9]\d{0,9})")
_KAFKA = re.compile(r"(\d{20})\.log")
_KAFKA_SWAP = re.compile(r"(\d{20})\.log\.swap")
_KAFKA_CLEANED = re.compile(r"(\d{20})\.log\.cleaned")
_TOPIC = re.compile(r"[A-Za-z0-9._=-]{1,249}")


Numbers: TypeAlias = dict[str, list[int]]
"""Partitions by topic."""


class SegmentName(NamedTuple):
    """One log file: its ordinal or base offset, and its name in the partition's directory."""

    number: int
    name: str


class Names(Protocol):
    """The naming of one layout. Stateless."""

    def topics(self, vfs: Vfs) -> list[str]:
        """Topics that have at least one log file, sorted."""

    def partitions(self, vfs: Vfs, topic: str) -> int:
        """One more than the highest partition with a log file; 0 for an unknown topic."""

    def has_own_directories(self, vfs: Vfs, topic: str) -> bool:
        """Whether partitions may come without a change in the topic's directory."""

    def directory(self, vfs: Vfs, topic: str, partition: int) -> str:
        """Where the partition's log files stand, or will."""

    def topic_directory(self, topic: str) -> str:
        """Where everything of a topic stands."""

    def segments(self, vfs: Vfs, topic: str, partition: int) -> list[SegmentName]:
        """The partition's log files in numeric order."""

    def format(self, vfs: Vfs, topic: str, partition: int, number: int) -> str:
        """Name of a log file in the partition's directory."""


def list_directory(vfs: Vfs, directory: str) -> list[str]:
    """The names in a directory; none if it is missing or a file."""
    try:
        return vfs.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _directories(vfs: Vfs, parent: str) -> list[str]:
    prefix = f"{parent}/" if parent else ""
    found = []
    for name in list_directory(vfs, parent):
        if not _TOPIC.fullmatch(name) or name in (".", "..", STATE_DIRECTORY):
            continue
        if is_directory(vfs, prefix + name):
            found.append(name)
    return sorted(found)


def is_directory(vfs: Vfs, path: str) -> bool:
    """Whether there is a directory."""
    stat = vfs.stat(path)
    return stat is not None and stat.kind == "directory"


def _sorted(found: list[SegmentName]) -> list[SegmentName]:
    return sorted(segment for segment in found if segment.number <= MAX_OFFSET)


class FlatNames:
    """Files of all partitions side by side in the topic's directory."""

    def __init__(self, *, padded: bool) -> None:
        self._pattern = _FLAT_PADDED if padded else _FLAT
        self._padded = padded

    def topics(self, vfs: Vfs) -> list[str]:
        return [topic for topic in _directories(vfs, "") if self.partitions(vfs, topic)]

    def partitions(self, vfs: Vfs, topic: str) -> int:
        matches = (self._pattern.fullmatch(name) for name in list_directory(vfs, topic))
        return max((int(match[1]) + 1 for match in matches if match), default=0)

    def has_own_directories(self, vfs: Vfs, topic: str) -> bool:  # noqa: ARG002
        return False

    def topic_directory(self, topic: str) -> str:
        return topic

    def directory(self, vfs: Vfs, topic: str, partition: int) -> str:  # noqa: ARG002
        return topic

    def segments(self, vfs: Vfs, topic: str, partition: int) -> list[SegmentName]:
        found = []
        for name in list_directory(vfs, topic):
            match = self._pattern.fullmatch(name)
            if match and int(match[1]) == partition:
                found.append(SegmentName(int(match[2]), name))
        return _sorted(found)

    def format(self, vfs: Vfs, topic: str, partition: int, number: int) -> str:  # noqa: ARG002
        shown = f"{number:020d}" if self._padded else str(number)
        return f"partition_{partition}_segment_{shown}.log"


class CursusNames(FlatNames):
    """Seed 000's flat names; a partition that has seed 001's nested directory keeps using it."""

    def __init__(self) -> None:
        super().__init__(padded=False)

    def partitions(self, vfs: Vfs, topic: str) -> int:
        nested = [
            int(match[1]) + 1
            for match in map(_NESTED_DIRECTORY.fullmatch, list_directory(vfs, topic))
            if match and self._nested(vfs, topic, int(match[1]))
        ]
        return max([super().partitions(vfs, topic), *nested])

    def has_own_directories(self, vfs: Vfs, topic: str) -> bool:
        return any(_NESTED_DIRECTORY.fullmatch(name) for name in list_directory(vfs, topic))

    def directory(self, vfs: Vfs, topic: str, partition: int) -> str:
        if self._nested(vfs, topic, partition):
            return f"{topic}/partition_{partition}"
        return topic

    def segments(self, vfs: Vfs, topic: str, partition: int) -> list[SegmentName]:
        nested = self._nested(vfs, topic, partition)
        flat = super().segments(vfs, topic, partition)
        if nested and flat:
            raise LayoutMismatchError(
                f"{topic}-{partition} has files both in {topic}/ and in "
                f"{topic}/partition_{partition}/, and nothing tells which come first. "
                "Move one kind away.",
                topic=topic,
                partition=partition,
            )
        return nested or flat

    def format(self, vfs: Vfs, topic: str, partition: int, number: int) -> str:
        if self._nested(vfs, topic, partition):
            return f"{topic}_partition_{partition}_segment_{number}.log"
        return super().format(vfs, topic, partition, number)

    def _nested(self, vfs: Vfs, topic: str, partition: int) -> list[SegmentName]:
        """Segments in the nested directory. An event-sourced topic has one without any."""
        pattern = re.compile(rf"{re.escape(topic)}_partition_{partition}_segment_{_PLAIN}\.log")
        names = list_directory(vfs, f"{topic}/partition_{partition}")
        matches = [(name, pattern.fullmatch(name)) for name in names]
        return _sorted([SegmentName(int(match[1]), name) for name, match in matches if match])


class RustlogNames:
    """One directory per partition, files named by base offset."""

    def topics(self, vfs: Vfs) -> list[str]:
        return [topic for topic in _directories(vfs, "topics") if self.partitions(vfs, topic)]

    def partitions(self, vfs: Vfs, topic: str) -> int:
        found = [
            _RUSTLOG_DIRECTORY.fullmatch(name) for name in list_directory(vfs, f"topics/{topic}")
        ]
        return max((int(match[1]) + 1 for match in found if match), default=0)

    def has_own_directories(self, vfs: Vfs, topic: str) -> bool:  # noqa: ARG002
        return False

    def topic_directory(self, topic: str) -> str:
        return f"topics/{topic}"

    def directory(self, vfs: Vfs, topic: str, partition: int) -> str:  # noqa: ARG002
        return f"topics/{topic}/partition-{partition}"

    def segments(self, vfs: Vfs, topic: str, partition: int) -> list[SegmentName]:
        found = []
        for name in list_directory(vfs, self.directory(vfs, topic, partition)):
            match = _RUSTLOG.fullmatch(name)
            if match:
                found.append(SegmentName(int(match[1]), name))
        return _sorted(found)

    def format(self, vfs: Vfs, topic: str, partition: int, number: int) -> str:  # noqa: ARG002
        return f"{number:020d}.log"


class KafkaNames:
    """One directory per partition at the top, files named by base offset."""

    def partition_numbers(self, vfs: Vfs) -> Numbers:
        """The partitions of every topic that have a directory here, sorted."""
        return self.found(vfs)[0]

    def found(self, vfs: Vfs) -> tuple[Numbers, Numbers]:
        """The same, and those that have a link here: a broker follows it, a reader does not."""
        kinds: dict[str, Numbers] = {"directory": {}, "other": {}}
        for name in list_directory(vfs, ""):
            match = _KAFKA_DIRECTORY.fullmatch(name)
            stat = vfs.stat(name) if match else None
            if match is None or int(match[2]) >= MOST_PARTITIONS:
                continue
            if stat is not None and stat.kind in kinds:
                kinds[stat.kind].setdefault(match[1], []).append(int(match[2]))
        here, linked = kinds.values()
        return _in_order(here), _in_order(linked)

    def topics(self, vfs: Vfs) -> list[str]:
        return [
            topic
            for topic, numbers in self.partition_numbers(vfs).items()
            if any(self.segments(vfs, topic, number) for number in numbers)
        ]

    def partitions(self, vfs: Vfs, topic: str) -> int:
        """One more than the highest partition here; others may be on other disks."""
        numbers = self.partition_numbers(vfs).get(topic, [])
        return numbers[-1] + 1 if numbers else 0

    def has_own_directories(self, vfs: Vfs, topic: str) -> bool:  # noqa: ARG002
        return True

    def topic_directory(self, topic: str) -> str:  # noqa: ARG002
        """The root: a topic has no directory of its own."""
        return ""

    def directory(self, vfs: Vfs, topic: str, partition: int) -> str:  # noqa: ARG002
        return f"{topic}-{partition}"

    def segments(self, vfs: Vfs, topic: str, partition: int) -> list[SegmentName]:
        names = list_directory(vfs, self.directory(vfs, topic, partition))
        return _matching(_KAFKA, names)

    def swapped(self, vfs: Vfs, topic: str, partition: int) -> list[SegmentName]:
        """Whole new segments that the broker is about to put in the place of others.

        A crash may leave them. Those at or after one that is not whole yet are not valid: the
        broker deletes them when it starts.
        """
        names = list_directory(vfs, self.directory(vfs, topic, partition))
        unfinished = [found.number for found in _matching(_KAFKA_CLEANED, names)]
        swaps = _matching(_KAFKA_SWAP, names)
        return [swap for swap in swaps if swap.number < min(unfinished, default=MAX_OFFSET + 1)]

    def format(self, vfs: Vfs, topic: str, partition: int, number: int) -> str:  # noqa: ARG002
        return f"{number:020d}.log"


def _in_order(numbers: Numbers) -> Numbers:
    return {topic: sorted(numbers[topic]) for topic in sorted(numbers)}


def _matching(pattern: re.Pattern[str], names: list[str]) -> list[SegmentName]:
    matches = [(name, pattern.fullmatch(name)) for name in names]
    return _sorted([SegmentName(int(match[1]), name) for name, match in matches if match])


CURSUS_NAMES = CursusNames()
BROKER_NAMES = FlatNames(padded=True)
RUSTLOG_NAMES = RustlogNames()
KAFKA_NAMES = KafkaNames()


def base_of(path: str) -> int:
    """The base offset in the name of a segment's log file."""
    return int(path.rpartition("/")[2].partition(".")[0])
