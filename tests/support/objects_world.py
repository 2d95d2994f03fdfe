"""Writers, readers and a garbage collector on one log, over a network that does what networks do.

One thread plays all. Whenever one of them calls the store, others may act first: so a writer
sleeps between any two of its calls while hours pass. Calls fail before or after they happen, happen
later, happen twice, and listings show what was there before. The world keeps the truth: which
commit was the first under its number.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from random import Random
from typing import Any
from uuid import UUID

from storage_core.errors import CommitUnknownError, StorageError
from storage_core.metadata.topic_file import TopicFile
from storage_core.objects import document
from storage_core.objects.backend import Contents, ObjectInfo
from storage_core.objects.commit_log import CommitLog, Committed, Draft
from storage_core.objects.garbage import collect_log
from storage_core.objects.patience import Patience, PatientBackend
from storage_core.objects.slices import Slice
from storage_core.objects.state import Commit, LogState, Transaction
from storage_core.vfs import Buffer
from tests.support.memory_objects import MemoryBackend

TTL_S = 24 * 3600
_DEPTH = 3


class Clock:
    """A clock of one machine: it is some hours off, and sleeping costs nothing."""

    def __init__(self, world: World, skew_s: float) -> None:
        self._world = world
        self._skew_s = skew_s

    def now_us(self) -> int:
        return int((self._world.time_s + self._skew_s) * 1e6)

    def monotonic(self) -> float:
        return self._world.time_s

    def sleep(self, seconds: float) -> None:
        self._world.time_s += seconds
        self._world.deliver_some()


class Wire:
    """The way of one machine to the store."""

    name = "wire"

    def __init__(self, world: World) -> None:
        self._world = world
        self._last: dict[str, list[ObjectInfo]] = {}

    def create(self, key: str, data: Sequence[Buffer]) -> None:
        self._write(key, lambda: self._world.create(key, data))

    def put(self, key: str, data: Sequence[Buffer]) -> None:
        self._write(key, lambda: self._world.store.put(key, data))

    def replace_if(self, key: str, data: Sequence[Buffer], tag: str | None) -> None:
        self._write(key, lambda: self._world.store.replace_if(key, data, tag))

    def delete(self, keys: Sequence[str]) -> None:
        self._write("", lambda: self._world.store.delete(keys))

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]] | None = None) -> Contents:
        self._world.others_act()
        if self._world.chance("read fails"):
            raise ConnectionError("500")
        return self._world.store.get_ranges(key, ranges)

    def list_after(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        self._world.others_act()
        if self._world.chance("stale list") and prefix in self._last:
            self._world.stale_lists += 1
            listed = self._last[prefix]
        else:
            listed = self._last[prefix] = list(self._world.store.list_after(prefix))
        return iter([info for info in listed if info.key > after])

    def _write(self, key: str, call: Callable[[], None]) -> None:
        world = self._world
        world.others_act()
        if world.chance("lost request"):
            raise TimeoutError("the request was lost")
        if world.chance("delayed"):
            world.delayed.append(call)
            raise TimeoutError("no reply")
        if key.endswith(".commit") and world.chance("overlap"):
            raise FileExistsError("409: two creates at once, and nothing was stored")
        call()
        if world.chance("repeated"):
            call()
        if world.chance("lost reply"):
            raise TimeoutError("the reply was lost")
        world.others_act()


class World:
    """All of them. ``likely`` gives each trouble a probability."""

    def __init__(self, random: Random, likely: dict[str, float], writers: int = 3) -> None:
        self.random = random
        self.likely = likely
        self.store = MemoryBackend()
        self.time_s = 1_700_000_000.0
        self.delayed: list[Callable[[], None]] = []
        self.canonical: list[tuple[str, dict[str, Any]]] = []
        self.ghosts = self.stale_lists = self.unknown = self.quiet = 0
        self.acknowledged: list[str] = []
        self.refused: list[str] = []
        self._names = itertools.count()
        self._depth = 0
        self.logs = [self.open_log(each * 3600.0) for each in range(writers)]
        self.busy: set[int] = set()

    def open_log(self, skew_s: float = 0.0) -> CommitLog:
        clock: Any = Clock(self, skew_s)
        backend = PatientBackend(Wire(self), Patience(clock, 30))
        return CommitLog(backend, clock, "log", ttl_s=TTL_S)

    def chance(self, what: str) -> bool:
        return not self.quiet and self.random.random() < self.likely.get(what, 0.0)

    def others_act(self) -> None:
        if self._depth < _DEPTH and self.chance("others act"):
            self._depth += 1
            try:
                self.act()
            finally:
                self._depth -= 1

    def deliver_some(self) -> None:
        while self.delayed and self.chance("delivery"):
            self.deliver(self.random.randrange(len(self.delayed)))

    def deliver(self, at: int) -> None:
        with suppress(FileExistsError):
            self.delayed.pop(at)()

    def create(self, key: str, data: Sequence[Buffer]) -> None:
        """Create an object, and know which commit is the true one of its number."""
        self.store.create(key, data)
        if not key.endswith(".commit"):
            return
        number = int(key.rpartition("/")[2].removesuffix(".commit"))
        body = memoryview(b"".join(bytes(piece) for piece in data))
        fields = document.decode("commit", body, key).fields
        if number < len(self.canonical):
            self.ghosts += 1
            boundary = self.quietly(self.logs[0].boundary)
            assert number < boundary, f"commit {number} was created twice above {boundary}"
            return
        assert number == len(self.canonical), "a number was left out"
        self.canonical.append((str(fields["id"]), fields))

    def quietly(self, call: Callable[[], Any]) -> Any:
        self.quiet += 1
        try:
            return call()
        finally:
            self.quiet -= 1

    def act(self) -> None:
        """A machine that is idle writes, reads or collects garbage."""
        self.deliver_some()
        if self.chance("hours pass"):
            self.time_s += self.random.choice((60, 3600 * 5, 3600 * 30))
        free = [at for at in range(len(self.logs)) if at not in self.busy]
        if not free:
            return
        who = self.random.choice(free)
        self.busy.add(who)
        try:
            if self.chance("collect"):
                with suppress(OSError, StorageError):
                    collect_log(self.logs[who], TTL_S * 10**6, dry_run=False)
            elif self.chance("read"):
                self.read(self.logs[who])
            else:
                self.write(self.logs[who])
        finally:
            self.busy.discard(who)

    def write(self, log: CommitLog) -> None:
        name = f"data/{next(self._names)}"
        piece = Slice(0, self.random.randrange(1, 4), name, 0, 100, 0, 0, 1, 0, 0, 0)
        versioned = self.random.random() < 0.5
        app, version = f"app{self.random.randrange(2)}", self.random.randrange(30)

        def build(state: LogState) -> Draft | None:
            who = Transaction(app, version, plain=False) if versioned else None
            if who is not None and state.has_version(app, version, exact=True):
                return None
            topic = TOPIC if state.topic is None else None
            partition = self.random.randrange(2)
            return Draft(
                Commit([(partition, piece)], who, topic=topic, written_at="now"),
                repeatable=versioned,
            )

        try:
            done: Committed = log.commit(build)
        except CommitUnknownError:
            self.unknown += 1
        except (OSError, StorageError):
            self.refused.append(name)
        else:
            self.check_state(done.state)
            # Otherwise the version is there already, perhaps by an earlier try of this call.
            if done.happened:
                self.acknowledged.append(name)

    def read(self, log: CommitLog) -> None:
        before, stale = len(self.canonical), self.stale_lists
        try:
            state = log.refresh()
        except (OSError, StorageError):
            return
        self.check_state(state)
        if self.stale_lists == stale:
            assert state.number + 1 >= before, "a reader missed commits that had happened"

    def check_state(self, state: LogState) -> None:
        """What a reader sees is what the first commits say, in their order."""
        assert [names(state, each) for each in (0, 1)] == self.names_upto(state.number)
        for partition in state.partitions:
            ends = [0, *(each.end for each in partition.all())]
            assert [each.base for each in partition.all()] == ends[:-1]

    def names_upto(self, number: int) -> list[list[str]]:
        found: list[list[str]] = [[], []]
        for _, fields in self.canonical[: number + 1]:
            for row in fields["slices"]:
                found[row[0]].append(fields["objects"][row[3]])
        return found

    def check_end(self) -> None:
        """After all: late requests arrive, and a new reader sees the truth."""
        self.quiet = 1
        while self.delayed:
            self.deliver(0)
        state = self.open_log().refresh()
        assert state.number == len(self.canonical) - 1
        self.check_state(state)
        every = [name for part in self.names_upto(state.number) for name in part]
        assert len(set(every)) == len(every), "a commit happened twice"
        assert set(self.acknowledged) <= set(every), "an acknowledged commit is lost"
        assert set(self.refused).isdisjoint(every), "a commit happened that was refused"
        versions = [tuple(f["transaction"]) for _, f in self.canonical if "transaction" in f]
        assert len(set(versions)) == len(versions), "a version was committed twice"


def names(state: LogState, partition: int) -> list[str]:
    """The objects of a partition in the order of their records."""
    if partition >= len(state.partitions):
        return []
    return [each.key for each in state.partitions[partition].all()]


TOPIC = TopicFile(UUID(int=1), UUID(int=2), 2, "now", {})
