"""What is done to a broker's directory while the power is cut, and what was promised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from storage_core import StagedPart, Store, StoreConfig
from tests.crash.explorer.recording import MemoryVfs
from tests.support.stores import columns_of

LAYOUTS = ("cursus", "cursus-broker", "rustlog")
CONFIG = StoreConfig(segment_bytes=4096, lock_timeout_ms=50)
Place = tuple[str, int]


@dataclass(frozen=True)
class Job:
    """A commit that is tried."""

    job: str
    version: int
    values: dict[Place, list[bytes]]
    parts: tuple[StagedPart, ...] = ()


@dataclass(frozen=True)
class Answers:
    """What the outside world knows."""

    acked: dict[tuple[str, int, int], bytes] = field(default_factory=dict)
    tried: dict[Place, list[bytes]] = field(default_factory=dict)
    """Records of plain appends, whose end of the log may be damaged until they are acknowledged."""
    jobs: list[Job] = field(default_factory=list)
    starts: dict[Place, int] = field(default_factory=dict)
    """The highest start that a writer asked for."""
    topics: dict[str, int] = field(default_factory=dict)
    """Topics that were said to be made, with their partitions."""
    gone: set[bytes] = field(default_factory=set)
    """Records that were given up, or deleted with their topic."""

    def forget(self, topic: str) -> None:
        """Nothing of a topic is expected any more."""
        for at in [at for at in self.acked if at[0] == topic]:
            del self.acked[at]
        self.topics.pop(topic, None)
        self.jobs.clear()

    def copy(self) -> Answers:
        tried = {place: list(values) for place, values in self.tried.items()}
        return replace(
            self,
            acked=dict(self.acked),
            tried=tried,
            jobs=list(self.jobs),
            starts=dict(self.starts),
            topics=dict(self.topics),
            gone=set(self.gone),
        )


class Writer:
    """A writer that notes what it was answered."""

    def __init__(self, vfs: MemoryVfs, layout: str, answers: Answers) -> None:
        self.vfs, self.layout, self.answers = vfs, layout, answers
        self.store = Store(vfs, CONFIG, layout)
        self.staged = 0

    def create(self, topic: str, partitions: int) -> None:
        made = self.store.create_topic(topic, partitions, exist_ok=True)
        self.answers.topics[topic] = made.partitions

    def append(self, topic: str, partition: int, *values: bytes, first: int | None = None) -> None:
        """Append records; with ``first`` they bring their offsets along."""
        self.answers.tried.setdefault((topic, partition), []).extend(values)
        columns = columns_of(list(values))
        if first is not None:
            columns = replace(columns, offsets=np.arange(first, first + len(values)))
        written = self.store.append_columns(topic, partition, columns)
        for offset, value in zip(range(written.start, written.end), values, strict=True):
            self.answers.acked[topic, partition, offset] = value

    def stage(self, version: int, values: dict[Place, list[bytes]]) -> Job:
        self.staged += 1
        job = f"job-{version}-{self.staged}"
        stage = self.store.stage(job)
        for (topic, partition), records in values.items():
            stage.write(topic, partition, columns_of(records))
        return Job(job, version, values, tuple(stage.finish()))

    def commit(self, job: Job) -> None:
        self.answers.jobs.append(job)
        result = self.store.commit(job.job, job.parts, app="app", version=job.version)
        for place, offsets in result.offsets.items():
            for n, value in enumerate(job.values[place]):
                self.answers.acked[*place, offsets.start + n] = value

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        self.answers.starts[topic, partition] = offset
        self.store.delete_records(topic, {partition: offset})


Story = Callable[[Writer], None]


def appends(writer: Writer) -> None:
    """Small and large ones, rolls in between and inside."""
    writer.append("t", 0, b"first")
    writer.append("t", 1, b"other".ljust(300, b"."))
    for number in range(3):
        writer.append("t", 0, b"%d" % number, (b"%d long" % number).ljust(3000, b"."))
    writer.store.roll("t", 1)
    writer.append("t", 1, b"behind a roll")


def commits(writer: Writer) -> None:
    """Two partitions at once, small and over several files, an append between, one given up."""
    writer.append("t", 0, b"before")
    writer.commit(writer.stage(1, {("t", 0): [b"a0"], ("t", 1): [b"a1"]}))
    writer.append("t", 1, b"between")
    large = [(b"large %d" % n).ljust(2000, b".") for n in range(3)]
    job = writer.stage(2, {("t", 0): large, ("t", 1): [b"b1"]})
    writer.commit(job)
    given_up = writer.stage(3, {("t", 0): [b"never"]})
    writer.answers.gone.add(b"never")
    writer.store.abort(given_up.job, app="app")
    writer.append("t", 0, b"behind")


def topics(writer: Writer) -> None:
    """A topic is made, grows and is written to."""
    writer.create("u", 1)
    writer.append("u", 0, b"u0")
    writer.store.add_partitions("u", 2)
    writer.answers.topics["u"] = 2
    writer.append("u", 1, b"u1")
    writer.commit(writer.stage(1, {("t", 0): [b"c0"], ("u", 1): [b"c1"]}))


def recreated(writer: Writer) -> None:
    """A topic is deleted, another of its name takes the same versions, and they count once."""
    writer.create("u", 1)
    writer.commit(writer.stage(1, {("u", 0): [b"old"]}))
    writer.answers.forget("u")
    writer.store.delete_topic("u")
    writer.answers.gone.add(b"old")
    writer.create("u", 1)
    writer.commit(writer.stage(2, {("t", 0): [b"t"], ("u", 0): [b"new"]}))


def later_beginning(writer: Writer) -> None:
    """Records that keep their offsets are the first of an empty log."""
    writer.append("t", 0, b"five", b"six", first=5)
    writer.append("t", 0, b"seven".ljust(3000, b"."), b"eight".ljust(3000, b"."))


def watermarks(writer: Writer) -> None:
    """The broker's own high watermark is raised with what is added."""
    fd = writer.vfs.open("t/partition_0.hwm", "create")
    writer.vfs.pwritev(fd, [b"0\n"], 0)
    writer.vfs.fsync(fd)
    writer.vfs.close(fd)
    writer.vfs.fsync_dir("t")
    writer.append("t", 0, b"one")
    writer.commit(writer.stage(1, {("t", 0): [b"a0"], ("t", 1): [b"a1"]}))


def deletions(writer: Writer) -> None:
    """Old files go."""
    for number in range(4):
        writer.append("t", 0, (b"%d" % number).ljust(3000, b"."))
    writer.delete_before("t", 0, 2)
    writer.append("t", 0, b"behind")


STORIES: dict[str, Story] = {
    "appends": appends,
    "commits": commits,
    "topics": topics,
    "recreated topics": recreated,
    "deletions": deletions,
    "later beginning": later_beginning,
    "high watermarks": watermarks,
}
# Offsets of ordinal files are counted from the first, so that must stay; only one broker has
# high watermarks.
_NOT_FOR = {
    "deletions": {"cursus"},
    "later beginning": {"cursus"},
    "high watermarks": {"cursus", "rustlog"},
}
PLAYED = [(layout, name) for name in STORIES for layout in LAYOUTS
          if layout not in _NOT_FOR.get(name, ())]  # fmt: skip
