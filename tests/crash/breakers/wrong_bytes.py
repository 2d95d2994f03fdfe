"""Bytes that changed on the disk by themselves, and files that went: noticed, or without effect.

Every byte of every file of a small store gets a wrong bit. A reader may then see less, or get an
error, but never see a wrong record; and no writer may cut or overwrite what was durable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from random import Random
from typing import NamedTuple, TypeVar

from storage_core import Store
from storage_core.errors import StorageError
from tests.crash.explorer.disk import File, Folder, kept
from tests.crash.explorer.invariants import CONFIG, History, View, World, _look, new_store
from tests.crash.explorer.recording import MemoryVfs
from tests.support.faulty_vfs import CrashError
from tests.support.stores import T0, flip

Answer = TypeVar("Answer")
HINTS = (".idx", ".timeidx", "/times")
KINDS = (".log", *HINTS, ".json", "watermark", "broker.id")


def small_store() -> MemoryVfs:
    """Three segments of two frames and an entry for each, a commit, a checkpoint and a group."""
    vfs = new_store({"t": 1}, segment_bytes=4096, index_interval_bytes=0, frame_records=1)
    world = World(vfs, History(), CONFIG)
    for number in range(6):
        world.store.append("t", 0, [b"%d" % number], timestamps=[T0 + number])
        if number % 2:
            world.store.roll("t", 0)
    world.commit(world.stage("app", 1, {("t", 0): 2}))
    world.store.commit_offsets("readers", {"t": {0: 3}})
    world.store.close()
    return vfs.power_cut(kept, b"a boot of its own")


def unfinished_store() -> MemoryVfs:
    """A merge and a commit of two partitions that were killed when they were decided."""
    vfs = new_store({"t": 2, "merged": 1}, segment_bytes=4096, frame_bytes=1024, frame_records=1)
    world = World(vfs, History(), CONFIG)
    for number in range(3):
        world.store.append("merged", 0, [b"%d" % number])
        world.store.append("t", 0, [b"%d again" % number], timestamps=[T0 + number])
        world.store.roll("merged", 0)
    world.store.append("merged", 0, [b"active"])
    world.store.append("t", 1, [b"other"])
    world.store.commit_offsets("readers", {"t": {0: 3}})

    def die(kind: str, path: str) -> None:
        if path.endswith(".log") and kind == "unlink":
            raise CrashError(path)
        if path.endswith(".log") and kind == "pwritev" and vfs.listdir("meta/intents"):
            raise CrashError(path)

    vfs.hook = die
    with suppress(CrashError):
        world.store.merge("merged")
    with suppress(CrashError):
        # One part is copied into its log, the other, which is larger than a segment, linked.
        World(vfs, History(), CONFIG).commit(
            world.stage("app", 1, {("t", 0): 1, ("t", 1): 4}, 1400)
        )
    vfs.hook = None
    return vfs.power_cut(kept, b"a boot of its own")


class Answers(NamedTuple):
    """What a fresh reader is answered; None where the answer is an error."""

    view: View | None
    each: tuple[bytes, ...] | None
    """The first record from every offset on."""
    since: tuple[int | None, ...] | None
    committed: dict[str, dict[int, int]] | None

    def contradicts(self, sound: Answers) -> bool:
        """Whether any of it is another answer than that of sound files."""
        assert sound.view is not None
        view = self.view or {}
        return (
            any(seen != sound.view[place] for place, seen in view.items())
            or (self.each is not None and self.each != sound.each)
            or self.since not in (None, sound.since)
            or self.committed not in (None, sound.committed)
        )


def read_all(vfs: MemoryVfs) -> Answers:
    """Everything that a fresh reader can ask for.

    Raises:
        AssertionError: it is reported in a way that no program can understand.
    """

    def times(store: Store) -> tuple[int | None, ...]:
        return tuple(store.offset_for_timestamp("t", 0, T0 + n) for n in (0, 1, 2, 9))

    def each(store: Store) -> tuple[bytes, ...]:
        here = store.offsets("t", 0)
        found = (store.read("t", 0, start=at, max_records=1) for at in range(here.start, here.end))
        return tuple(next(batches).column("value")[0].as_py() for batches in found)

    return Answers(
        _answer(vfs, _look),
        _answer(vfs, each),
        _answer(vfs, times),
        _answer(vfs, lambda store: store.committed_offsets("readers")),
    )


def _answer(vfs: MemoryVfs, ask: Callable[[Store], Answer]) -> Answer | None:
    try:
        return ask(Store(vfs, CONFIG))
    except StorageError:
        return None
    except (ArithmeticError, OSError, ValueError) as error:
        raise AssertionError(f"an untyped error: {error!r}") from error


def slot_bytes(watermark: bytes) -> list[int]:
    """The positions in a ``watermark`` file that count, and one of the zeros in each half."""
    count, half = int.from_bytes(watermark[8:12], "big"), len(watermark) // 2
    used = [*range(44 + 8 * count), half - 1]
    return [start + at for start in (0, half) for at in used]


def flipped_files(
    vfs: MemoryVfs, rng: Random, kinds: tuple[str, ...], step: int = 1
) -> Iterator[tuple[str, int, File]]:
    """The same store again and again, each time with one wrong bit in another ``step``th byte."""
    bits: Sequence[int] | None
    for path, file in vfs.top.files().items():
        if path.endswith(kinds):
            sound = file.data
            # Every bit of small numbers: a wrong one is not always a smaller one.
            bits = range(8 * len(sound)) if path.endswith(".tomb") else None
            if path.endswith("watermark"):
                bits = [8 * at + bit for at in slot_bytes(sound) for bit in range(8)]
            for bit in bits or (8 * at + rng.randrange(8) for at in range(0, len(sound), step)):
                file.data = file.synced = flip(sound, bit)
                yield path, bit // 8, file
            file.data = file.synced = sound


def flipped_bytes(rng: Random, kinds: tuple[str, ...] = KINDS) -> int:
    """Read with every wrong byte of these kinds of files; how many there were.

    Raises:
        AssertionError: a reader got something else than what was written.
    """
    vfs, count = small_store(), 0
    expected = read_all(vfs)
    assert None not in expected
    for path, at, _ in flipped_files(vfs, rng, kinds):
        count += 1
        found = read_all(vfs)
        assert not found.contradicts(expected), f"byte {at} of {path}"
        # With a wrong hint the answers are the same.
        assert found == expected or not path.endswith(HINTS), f"byte {at} of {path}: {found}"
    return count


def unfinished_bytes(rng: Random, kinds: tuple[str, ...], step: int = 1) -> Counter[str]:
    """Read and write with every wrong byte of what a crashed process left; what came of the writes.

    Raises:
        AssertionError: a reader got something that was not written, or a part of the commit.
    """
    vfs, outcomes = unfinished_store(), Counter[str]()
    before, after = read_all(vfs), read_all(written_on(vfs, rng))
    assert None not in before
    assert None not in after
    assert after.contradicts(before)
    for path, at, _ in flipped_files(vfs, rng, kinds, step):
        assert not read_all(vfs).contradicts(before), f"byte {at} of {path}"
        found = read_all(written_on(vfs, rng))
        whole = not found.contradicts(after)
        assert whole or not found.contradicts(before), f"byte {at} of {path}, after a writer"
        outcomes["finished" if whole else "refused"] += 1
    return outcomes


def written_on(vfs: MemoryVfs, rng: Random) -> MemoryVfs:
    """The files after a writer came to each partition."""
    left = vfs.power_cut(kept, rng.randbytes(16))
    for topic, partition in (("t", 0), ("t", 1), ("merged", 0)):
        with suppress(StorageError):
            Store(left, CONFIG).append(topic, partition, [])
    return left


def durable_bytes_stay(rng: Random) -> int:
    """Write with every wrong byte of the log; how many there were.

    Raises:
        AssertionError: a writer removed bytes that were durable.
    """
    vfs, count = small_store(), 0
    for path, at, file in flipped_files(vfs, rng, (".log",)):
        count += 1
        left = vfs.power_cut(kept, rng.randbytes(16))
        before = {p: f.data for p, f in left.top.files().items() if p.endswith(".log")}
        with suppress(StorageError):
            Store(left, CONFIG).append("t", 0, [b"more"])
        after = left.top.files()
        for name, data in before.items():
            assert name in after, f"byte {at} of {path}: {name} is gone"
            assert after[name].data.startswith(data), f"byte {at} of {path}: {name} was cut"
        assert file.data == before[path]
    return count


def missing_segment() -> None:
    """A segment in the middle is gone.

    Raises:
        AssertionError: a writer went on as if nothing had happened.
    """
    vfs = small_store()
    folder = vfs.top
    for name in ("topics", "t", "0", "segments"):
        below = folder.names[name]
        assert isinstance(below, Folder)
        folder = below
    middle = sorted(name for name in folder.names if name.endswith(".log"))[1]
    del folder.names[middle]
    try:
        Store(vfs, CONFIG).append("t", 0, [b"more"])
    except StorageError:
        return
    raise AssertionError(f"{middle} is missing and nobody noticed")


def wrong_bytes(seed: int) -> int:
    """All of it; how many wrong bytes were looked at."""
    rng = Random(seed)
    missing_segment()
    return durable_bytes_stay(rng) + flipped_bytes(rng)
