"""Readers of the ``watermark`` file beside writers, at the smallest steps that a machine makes.

A write changes the file piece by piece, and a read takes each piece at another moment of its own
duration, in any order. Writers may be killed between two pieces. Whatever a reader finds must not
be older than what was whole when it began, and never be missing.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

from storage_core import Store
from storage_core.io.checksum import crc32c
from storage_core.io.durable import write_all
from storage_core.metadata import high_watermark, slots
from storage_core.metadata.slots import Watermark
from storage_core.vfs import Buffer, FileStat, OpenMode
from tests.crash.explorer.disk import File, lost
from tests.crash.explorer.invariants import CONFIG, History, World, look, new_store
from tests.crash.explorer.recording import MemoryVfs
from tests.support.faulty_vfs import CrashError, FaultyVfs

TOPIC = "t"
_PATH = high_watermark.path_of(TOPIC)


class Moment(NamedTuple):
    """The file between two steps of writers, and the ends that were published last by then."""

    file: int
    """Which file has the name: a writer may put another one in its place."""
    data: bytes
    ends: tuple[int, ...]


class _Recorder(FaultyVfs):
    """Notes the file after every piece of a write, and kills some writers between two pieces."""

    def start(self, piece: int, rng: Random, kills: float) -> None:
        self.moments: list[Moment] = []
        self.published: tuple[int, ...] = ()
        self._piece, self._rng, self._kills = piece, rng, kills

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        if not self._path(fd).endswith("watermark"):
            return super().pwritev(fd, buffers, position)
        data = b"".join(buffers)
        last = self._rng.randrange(len(data)) if self._rng.random() < self._kills else len(data)
        for at in range(0, len(data), self._piece):
            if at > last:
                raise CrashError("killed in the middle of a slot")
            write_all(self.inner, fd, [data[at : at + self._piece]], position + at)
            self.note()
        return len(data)

    def note(self) -> None:
        inner: Any = self.inner
        file = inner._find(_PATH)
        self.moments.append(Moment(file.number, file.data, self.published))


class _Reader(FaultyVfs):
    """Reads the file of some moments, each piece as it was at another one."""

    def start(self, moments: Sequence[Moment], piece: int, rng: Random) -> None:
        self.moments, self._piece, self._rng = moments, piece, rng
        self.now = rng.randrange(len(moments))
        self.first = self.now
        self._pace = rng.choice((1, 2, 5, 20, 60))

    def open(self, path: str, mode: OpenMode) -> int:
        # It stays as it was when another file takes its name.
        file, data = self.moments[self.now].file, self.moments[self.now].data
        self._data: list[bytes] = []
        for moment in self.moments[self.now :]:
            data = moment.data if moment.file == file else data
            self._data.append(data)
        self._opened = self.now
        return super().open(path, mode)

    def fstat(self, fd: int) -> FileStat:
        return super().fstat(fd)._replace(size=len(self._data[0]))

    def pread(self, fd: int, size: int, position: int) -> bytes:  # noqa: ARG002
        end = min(self.now + self._rng.randrange(self._pace + 1), len(self.moments) - 1)
        found = bytearray(min(size, len(self._data[0])))
        for at in range(0, len(found), self._piece):
            moment = self._rng.randint(self.now, end) - self._opened
            piece = self._data[moment][at : at + self._piece]
            found[at : at + len(piece)] = piece[: len(found) - at]
        self.now = min(end + self._rng.randrange(2), len(self.moments) - 1)
        return bytes(found)


def history(
    rng: Random, partitions: int, piece: int, kills: float
) -> tuple[MemoryVfs, list[Moment]]:
    """What writers do one after another, each under the lock of the topic."""
    vfs = new_store({TOPIC: partitions})
    uid = _uuid(vfs)
    ends = [0] * partitions
    if rng.random() < 0.2:
        file = vfs._find(_PATH)
        assert isinstance(file, File)
        file.data = file.synced = earlier(Watermark(uid, tuple(ends)))
    recorder = _Recorder(vfs)
    recorder.start(piece, rng, kills)
    recorder.published = tuple(ends)
    recorder.note()
    for _ in range(12):
        partition = rng.randrange(partitions)
        raised = {partition: ends[partition] + rng.randint(1, 1 << 40)}
        both, is_killed = rng.random() < 0.2, True
        with suppress(CrashError):
            if not high_watermark.publish(recorder, TOPIC, uid, raised, 1000, both=both):
                # The writer before was killed.
                high_watermark.rebuild(recorder, TOPIC, uid, raised, 1000)
            is_killed = False
        left = high_watermark.newest(vfs, TOPIC, uid)
        assert left is not None, "a writer that was killed left no whole slot"
        ends = list(left.watermark.ends)
        assert is_killed or ends[partition] == raised[partition], "what was published is not there"
        recorder.published = left.watermark.ends
        recorder.note()
    return vfs, recorder.moments


def _uuid(vfs: MemoryVfs) -> bytes:
    return Store(vfs, CONFIG).topic(TOPIC).uuid.bytes


def earlier(watermark: Watermark) -> bytes:
    """The file as earlier releases wrote it."""
    count, schema = len(watermark.ends), watermark.schema
    head = struct.pack(
        ">4sB3xI16s", b"CRSW", 1 if schema is None else 2, count, watermark.topic_uuid
    )
    head += b"" if schema is None else struct.pack(">I", schema)
    head += struct.pack(f">{count}Q", *watermark.ends)
    return head + struct.pack(">I", crc32c(head))


def damaged_slots() -> None:
    """The newest slot is damaged, and another partition is written next.

    Raises:
        AssertionError: a record that was acknowledged stays hidden.
    """
    vfs, history = new_store({TOPIC: 2}), History()
    world = World(vfs, history, CONFIG)
    world.append(TOPIC, 0, b"first")
    world.append(TOPIC, 1, b"second")
    _damage(vfs, newest=True)
    for number, partition in enumerate((0, 0, 1)):
        world.append(TOPIC, partition, b"later %d" % number)
        for (topic, place, offset), value in history.acked.items():
            start, values = look(vfs)[topic, place]
            assert values[offset - start : offset - start + 1] == [value], f"{place}@{offset}"


def stale_slots() -> None:
    """One slot is damaged after a commit, and after published records were lost.

    Raises:
        AssertionError: the other one has a part of the commit, or more than the log.
    """
    for newest in (True, False):
        vfs = new_store({TOPIC: 2})
        world = World(vfs, History(), CONFIG)
        world.append(TOPIC, 0, b"before")
        world.commit(world.stage("app", 1, {(TOPIC, 0): 1, (TOPIC, 1): 1}))
        _damage(vfs, newest=newest)
        assert _left(vfs) == (2, 1), "the commit is in one slot only"
        vfs = new_store({TOPIC: 1})
        uid = _uuid(vfs)
        for end in (5, 9):
            high_watermark.publish(vfs, TOPIC, uid, {0: end}, 1000)
        high_watermark.make_durable(vfs, TOPIC, uid, 1000)
        high_watermark.lower(vfs, TOPIC, uid, {0: 7}, 1000)
        after_cut = _left(vfs.power_cut(lost, b"a boot of its own"))
        assert after_cut in (None, (7,)), "the lower end is not durable"
        _damage(vfs, newest=newest)
        assert _left(vfs) == (7,), "a slot kept the higher end"


def unsynced_names() -> None:
    """A writer is killed when it has given the name to a new file; others commit, the power goes.

    Raises:
        AssertionError: the old file is back, and the commit is gone from it.
    """
    vfs, history = new_store({TOPIC: 3}), History()
    world = World(vfs, history, CONFIG)
    for partition in range(3):
        world.append(TOPIC, partition, b"%d" % partition)
    file = vfs._find(_PATH)
    assert isinstance(file, File)
    file.data = file.synced = earlier(Watermark(_uuid(vfs), (1, 1, 1)))
    vfs.dirty.pop(file.number, None)
    file.sectors, file.sizes = {}, []

    def die(kind: str, path: str) -> None:
        if (kind, path) == ("fsync_dir", f"topics/{TOPIC}"):
            raise CrashError(path)

    vfs.hook = die
    with suppress(CrashError):
        world.append(TOPIC, 0, b"killed")
    left = vfs.kill()
    world = World(left, history, CONFIG)
    world.commit(world.stage("app", 1, {(TOPIC, 1): 1, (TOPIC, 2): 1}))
    found = _left(left.power_cut(lost, b"a boot of its own"))
    assert found is None or found[1:] == (2, 2), "the commit is gone"


def _left(vfs: MemoryVfs) -> tuple[int, ...] | None:
    found = high_watermark.newest(vfs, TOPIC, _uuid(vfs))
    return None if found is None else found.watermark.ends


def _damage(vfs: MemoryVfs, *, newest: bool) -> None:
    """Change a byte of one slot."""
    file = vfs._find(_PATH)
    assert isinstance(file, File)
    found = slots.unpack(file.data)
    assert found is not None
    at = slots.position(found.generation + (not newest), found.half) + 41
    file.data = file.data[:at] + b"\xff" + file.data[at + 1 :]


def torn_reads(
    seed: int = 0, rounds: int = 60, reads: int = 60, partitions: Sequence[int] = (1, 3, 600)
) -> int:
    """Read beside many writers; how many reads there were.

    Raises:
        AssertionError: a reader found an older value than there was when it began, or none.
    """
    rng, count = Random(seed), 0
    for number in range(rounds):
        size = partitions[number % len(partitions)]
        # Pieces as small as a number, and as large as a page.
        piece = rng.choice((4, 8, 24)) if size < 100 else rng.choice((512, 4096))
        vfs, moments = history(rng, size, piece, kills=rng.choice((0, 0, 0.3)))
        uid = _uuid(vfs)
        for _ in range(reads):
            reader = _Reader(vfs)
            reader.start(moments, piece, rng)
            due, known = moments[reader.first].ends, {moment.ends for moment in moments}
            newest = high_watermark.newest(reader, TOPIC, uid)
            assert newest is not None, "the high watermarks are missing"
            found = newest.watermark
            assert all(a >= b for a, b in zip(found.ends, due, strict=True)), "they went back"
            assert found.ends in known, "nobody published them"
            count += 1
    return count
