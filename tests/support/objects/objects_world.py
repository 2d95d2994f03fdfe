"""Writers, readers and garbage collectors on one log, over a network that does what networks do.

One thread plays all. Whenever one of them calls the store, others may act first: so a writer
sleeps between any two of its calls while hours pass. Calls fail before or after they happen, happen
later, in another order or twice, replies are old when they arrive, clocks differ and jump, and
listings show what was there before. The world keeps the truth: which commit was the first under its
number, and what all of them say when they are applied in order, by code of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from storage_core.config import StoreConfig
from storage_core.errors import CommitUnknownError, StorageError
from storage_core.metadata.topic_file import TopicFile
from storage_core.objects import collector, commit_log, document, garbage
from storage_core.objects.backend import Contents, ObjectInfo
from storage_core.objects.collector import Collector
from storage_core.objects.commit_log import CommitLog, Committed, Draft
from storage_core.objects.manifests import block, moving
from storage_core.objects.names import hour_of
from storage_core.objects.patience import Patience, PatientBackend
from storage_core.objects.slices import Slice
from storage_core.objects.state import Commit, LogState, Replacement, Transaction
from storage_core.vfs import Buffer
from tests.support.objects.memory_objects import MemoryBackend

TTL_S = 24 * 3600
SKEWS_S = (0.0, 5 * 3600.0, -5 * 3600.0)
_DEPTH = 3
_PARTITIONS = 2
_CONFIG = StoreConfig(staging_ttl_ms=TTL_S * 1000)


class Clock:
    """A clock of one machine: it is some hours off, and sleeping costs nothing."""

    def __init__(self, world: World, skew_s: float) -> None:
        self._world = world
        self.skew_s = skew_s

    def now_us(self) -> int:
        return int((self._world.time_s + self.skew_s) * 1e6)

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
        self._last: dict[str, tuple[float, list[ObjectInfo]]] = {}

    @property
    def lists_whole(self) -> bool:
        """A directory and a store of objects are opened in two ways: this one is both."""
        return "whole listing" in self._world.likely and self._world.chance("whole listing")

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
        try:
            return self._world.store.get_ranges(key, ranges)
        finally:
            self._world.others_act()  # the reply is old when it arrives

    def list_after(
        self, prefix: str, after: str = "", most: int | None = None
    ) -> Iterator[ObjectInfo]:
        world = self._world
        world.others_act()
        since, listed = self._last.get(prefix, (0.0, []))
        # What garbage collection does not delete yet is listed by every store; see the gate.
        bounded = prefix.startswith("logs/log") or world.time_s - since < 3600
        if since and bounded and world.chance("stale list"):
            world.stale_lists += 1
        else:
            listed = list(world.store.list_after(prefix))
            self._last[prefix] = (world.time_s, listed)
        world.others_act()
        return iter([info for info in listed if info.key > after][:most])

    def _write(self, key: str, call: Callable[[], None]) -> None:
        world = self._world
        world.others_act()
        if world.chance("denied"):
            raise PermissionError("403")
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


class Machine:
    """One that writes, reads and collects garbage."""

    def __init__(self, world: World, skew_s: float) -> None:
        self.clock = Clock(world, skew_s)
        clock: Any = self.clock
        backend = PatientBackend(Wire(world), Patience(clock, 30))
        self.log = CommitLog(backend, clock, "log", ttl_s=TTL_S)
        self.collector = Collector(backend, clock, _CONFIG, self)  # type: ignore[arg-type]

    def open_log(self, log_id: str) -> CommitLog:
        """A log of this machine, as the catalog opens it for the collector."""
        return CommitLog(self.log.backend, self.log.clock, log_id, ttl_s=TTL_S)

    def names(self) -> list[str]:
        """The topics, as the catalog lists them for a sweep."""
        return ["t"]

    def states(self) -> Iterator[tuple[str, LogState]]:
        """Each of them with its state."""
        yield "t", self.open_log("log").refresh()


class Piece(NamedTuple):
    """A slice in the true state, and the records in it."""

    key: str
    base: int
    end: int
    number: int
    records: tuple[int, ...]


class World:
    """All of them. ``likely`` gives each trouble a probability."""

    def __init__(self, random: Random, likely: dict[str, float], writers: int = 3) -> None:
        self.random = random
        self.likely = likely
        self.store = MemoryBackend()
        self.time_s = 1_700_000_000.0
        self.delayed: list[Callable[[], None]] = []
        self.canonical: list[tuple[str, dict[str, Any]]] = []
        self.truth: list[list[list[Piece]]] = [[[] for _ in range(_PARTITIONS)]]
        self.ghosts = self.stale_lists = self.unknown = self.quiet = 0
        self.fenced = self.merges = self.collected = self.moves = self.outdated = self.swept = 0
        self.manifests: list[Any] = []
        self.acknowledged: list[int] = []
        self.refused: list[int] = []
        self.bodies: dict[int, bytes] = {}
        self._numbers = itertools.count(1)
        self._merged: dict[int, tuple[int, ...]] = {}
        self._depth = 0
        self.machines = [Machine(self, SKEWS_S[each % 3]) for each in range(writers)]
        self.logs = [machine.log for machine in self.machines]
        self.busy: set[int] = set()

    def open_log(self) -> CommitLog:
        return Machine(self, 0.0).log

    def play(self, steps: int) -> None:
        """Make the topic, as the catalog does before anybody stages records; then act."""
        first = Draft(Commit(topic=TOPIC, written_at="now"))
        self.quietly(lambda: self.open_log().commit(lambda s: None if s.topic else first))
        for _ in range(steps):
            self.act()
        self.check_end()

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
        self.fenced += "fence" in fields
        if "manifests" in fields:
            self.moves += 1
            self.manifests = fields["manifests"]
        self.truth.append(self._after(self.truth[-1], fields, key))

    def _after(
        self, before: list[list[Piece]], fields: dict[str, Any], key: str
    ) -> list[list[Piece]]:
        """What the records are after one more commit."""
        found, keys = [list(pieces) for pieces in before], fields.get("objects", [])
        for partition, old, (new,) in fields.get("replacements", []):
            pieces, places = found[partition], [(row[0], keys[row[2]] or key) for row in old]
            shown = [(piece.base, piece.key) for piece in pieces]
            assert places[0] in shown, "a slice was replaced that is not there"
            at = shown.index(places[0])
            assert shown[at : at + len(old)] == places, "slices were replaced that are not there"
            records = tuple(r for piece in pieces[at : at + len(old)] for r in piece.records)
            assert self._merged[new[-1]] == records, "a replacement has other records"
            pieces[at : at + len(old)] = [Piece(keys[new[2]], new[0], new[1], new[-1], records)]
        for partition, base, end, at, *_, number in fields.get("slices", []):
            pieces = found[partition]
            start = pieces[-1].end if pieces else 0  # no trim removes the last slice
            records = (number,)
            pieces.append(Piece(keys[at] or key, start, start + end - base, number, records))
        for text, offset in fields.get("trims", {}).items():
            found[int(text)] = [piece for piece in found[int(text)] if piece.end > offset]
        return found

    def quietly(self, call: Callable[[], Any]) -> Any:
        self.quiet += 1
        try:
            return call()
        finally:
            self.quiet -= 1

    def act(self) -> None:
        """A machine that is idle writes, reads, rewrites or collects garbage."""
        self.deliver_some()
        if self.chance("hours pass"):
            self.time_s += self.random.choice((60, 3600 * 5, 3600 * 30))
        free = [at for at in range(len(self.logs)) if at not in self.busy]
        if not free:
            return
        who = self.random.choice(free)
        machine = self.machines[who]
        if self.chance("clock jumps"):
            machine.clock.skew_s = self.random.choice(SKEWS_S)
        self.busy.add(who)
        try:
            for what, do in (
                ("collect", self.collect),
                ("merge", self.merge),
                ("trim", self.trim),
                ("read", lambda machine: self.read(machine.log)),
            ):
                if self.chance(what):
                    do(machine)
                    return
            self.write(machine)
        finally:
            self.busy.discard(who)

    def collect(self, machine: Machine) -> None:
        with suppress(OSError, StorageError):
            if self.random.random() < 0.5:
                self.collected += len(machine.collector.collect(dry_run=False).keys)
            else:  # as after a commit
                garbage.collect_log(machine.log, TTL_S * 10**6, dry_run=False, bounded=True)
                self.swept += len(machine.collector.sweep_if_due().keys)
        self.check_live()

    def _body(self) -> tuple[int, bytes]:
        number = next(self._numbers)
        self.bodies[number] = b"records of slice %d" % number
        return number, self.bodies[number]

    def _upload(self, machine: Machine, number: int) -> str:
        key = f"data/{hour_of(machine.clock.now_us())}/job/{number}.frames"
        machine.log.backend.put(key, [self.bodies[number]])
        return key

    def write(self, machine: Machine) -> None:
        number, body = self._body()
        inline, versioned = self.random.random() < 0.4, self.random.random() < 0.5
        app, version = f"app{self.random.randrange(2)}", self.random.randrange(30)
        partition = self.random.randrange(_PARTITIONS)
        try:
            key = "" if inline else self._upload(machine, number)
        except OSError:
            self.refused.append(number)
            return
        count = self.random.randrange(1, 4)
        piece = Slice(0, count, key, 0, len(body), 0, 0, count, 0, 0, number)

        def build(state: LogState) -> Draft | None:
            who = Transaction(app, version, plain=False) if versioned else None
            if who is not None and state.has_version(app, version, exact=True):
                return None
            commit = Commit([(partition, piece)], who, written_at="now")
            return Draft(commit, [body] if inline else (), repeatable=versioned)

        self._commit(machine, build, number)

    def trim(self, machine: Machine) -> None:
        partition, part = self.random.randrange(_PARTITIONS), self.random.random()

        def build(state: LogState) -> Draft | None:
            if not state.partitions:
                return None
            here = state.partitions[partition]
            offset = here.start + int((here.end - here.start) * part / 2)
            if offset <= here.start:
                return None
            return Draft(Commit(trims={partition: offset}, written_at="now"))

        self._commit(machine, build)

    def merge(self, machine: Machine) -> None:
        """Two neighbours become one, as a rewrite does it: upload, then these for those."""
        log, partition = machine.log, self.random.randrange(_PARTITIONS)
        try:
            state = log.refresh()
            found = state.partitions[partition].all() if state.partitions else []
            if len(found) < 2:
                return
            at = self.random.randrange(len(found) - 1)
            old = tuple(found[at : at + 2])
            if any(each.checksum not in self.bodies for each in old):
                return
            records = tuple(
                r for each in old for r in self._merged.get(each.checksum, (each.checksum,))
            )
            number, body = self._body()
            self._merged[number] = records
            key = self._upload(machine, number)
        except (OSError, StorageError):
            return
        base, end = old[0].base, old[1].end
        new = Slice(base, end, key, 0, len(body), 0, 0, end - base, 0, 0, number)
        change = Replacement(partition, old, (new,))

        def build(state: LogState) -> Draft | None:
            if not state.partitions[partition].has(change):
                return None
            return Draft(Commit(replacements=(change,), written_at="now"))

        self.merges += 1
        self._commit(machine, build)

    def _commit(self, machine: Machine, build: Any, number: int | None = None) -> None:
        try:
            done: Committed = machine.log.commit(build)
        except CommitUnknownError:
            self.unknown += 1
        except (OSError, StorageError):
            if number is not None:
                self.refused.append(number)
        else:
            self.check_state(done.state)
            # Otherwise the version is there already, perhaps by an earlier try of this call.
            if done.happened and number is not None:
                self.acknowledged.append(number)

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
        try:
            seen = [
                [(each.key, each.base, each.end, each.checksum) for each in partition.all()]
                for partition in state.partitions
            ]
            self.check_windows(state)
        except FileNotFoundError:
            # Only of a state that later commits have left behind.
            named = {each if isinstance(each, str) else each["key"] for each in self.manifests}
            gone = {each.key for each in state.manifests if each.key not in self.store.objects}
            assert gone, "no manifest of this state is gone"
            assert gone.isdisjoint(named), f"manifests were deleted: {gone & named}"
            self.outdated += 1
            return
        except OSError:
            return
        seen += [[] for _ in range(_PARTITIONS - len(seen))]
        wanted = self.truth[state.number + 1]
        assert seen == [[piece[:4] for piece in pieces] for pieces in wanted]

    def check_windows(self, state: LogState) -> None:
        """Every offset leads to the window that has its slice."""
        for partition in state.partitions:
            found = partition.all() if partition.archived else []
            for each in self.random.sample(found, min(3, len(found))):
                for offset in (max(each.base, partition.start), each.end - 1):
                    window = partition.window(partition.window_at(offset))
                    assert each in window, f"offset {offset} leads to another window"

    def check_live(self) -> None:
        """No record that is in the log has lost its bytes."""
        live = [piece for pieces in self.truth[-1] for piece in pieces]
        gone = [
            piece
            for piece in live
            if piece.number in self.bodies and piece.key not in self.store.objects
        ]
        assert not gone, f"live data was deleted: {gone}"
        named = [each if isinstance(each, str) else each["key"] for each in self.manifests]
        lost = [key for key in named if key not in self.store.objects]
        assert not lost, f"manifests were deleted: {lost}"

    def check_end(self) -> None:
        """After all: late requests arrive, and a new reader sees the truth."""
        self.quiet = 1
        while self.delayed:
            self.deliver(0)
        state = self.open_log().refresh()
        assert state.number == len(self.canonical) - 1
        self.check_state(state)
        self.check_live()
        for partition in state.partitions:
            for each in partition.all():
                if each.checksum in self.bodies:
                    place = [(each.position, each.size)]
                    data = self.store.get_ranges(each.key, place).pieces[0]
                    assert bytes(data) == self.bodies[each.checksum], "a record has other bytes"
        every = [row[-1] for _, fields in self.canonical for row in fields.get("slices", [])]
        known = [number for number in every if number in self.bodies]
        assert len(set(known)) == len(known), "a commit happened twice"
        assert set(self.acknowledged) <= set(every), "an acknowledged commit is lost"
        assert set(self.refused).isdisjoint(every), "a commit happened that was refused"
        versions = [tuple(f["transaction"]) for _, f in self.canonical if "transaction" in f]
        assert len(set(versions)) == len(versions), "a version was committed twice"


def in_small(patch: pytest.MonkeyPatch) -> None:
    """Checkpoints after a few commits, and no thread: what happens is what the seed says."""
    patch.setattr(commit_log, "CHECKPOINT_INTERVAL", 3)
    patch.setattr(garbage, "_LISTED", 9)
    patch.setattr(collector, "_SWEPT", 9)
    patch.setattr(commit_log, "map_on_threads", lambda call, each, _: map(call, each))


def with_manifests(patch: pytest.MonkeyPatch) -> None:
    """Manifests of a few slices."""
    patch.setattr(moving, "LOADED_SLICES", 3)
    patch.setattr(moving, "_FAN", 3)
    patch.setattr(moving, "_LARGEST_MERGE", 40)
    patch.setattr(block, "BLOCK_SLICES", 4)


def names(state: LogState, partition: int) -> list[str]:
    """The objects of a partition in the order of their records."""
    if partition >= len(state.partitions):
        return []
    return [each.key for each in state.partitions[partition].all()]


TOPIC = TopicFile(UUID(int=1), UUID(int=2), _PARTITIONS, "now", {})
