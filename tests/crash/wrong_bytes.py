"""Bytes that changed on the disk by themselves, and files that went: noticed, or without effect.

Every byte of every file of a small store gets a wrong bit. A reader may then see less, or be told,
but never see a wrong record; and no writer may cut or overwrite what was durable.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from random import Random

from storage_core import Store
from storage_core.errors import StorageError
from tests.crash.disk import File, Folder, kept
from tests.crash.invariants import CONFIG, History, View, World, _look, new_store
from tests.crash.recording import MemoryVfs
from tests.stores import T0, flip

KINDS = (".log", ".idx", ".timeidx", ".json", "watermark", "broker.id")


def small_store() -> MemoryVfs:
    """Three segments with an entry for every frame, a commit, a checkpoint and a group."""
    vfs = new_store({"t": 1}, segment_bytes=4096, index_interval_bytes=0, frame_records=1)
    world = World(vfs, History(), CONFIG)
    for number in range(3):
        world.store.append("t", 0, [b"%d" % number], timestamps=[T0 + number])
        world.store.roll("t", 0)
    world.commit(world.stage("app", 1, {("t", 0): 2}))
    world.store.commit_offsets("readers", {"t": {0: 3}})
    world.store.close()
    return vfs.power_cut(kept, b"a boot of its own")


def read_all(vfs: MemoryVfs) -> View | None:
    """Everything a fresh reader gets; None if it is told that something is wrong.

    Raises:
        AssertionError: it is told in a way that no program can understand.
    """
    try:
        view = _look(Store(vfs, CONFIG))
        Store(vfs, CONFIG).offset_for_timestamp("t", 0, T0 + 1)
        Store(vfs, CONFIG).committed_offsets("readers")
    except StorageError:
        return None
    except (ArithmeticError, OSError, ValueError) as error:
        raise AssertionError(f"an untyped error: {error!r}") from error
    return view


def flipped_files(
    vfs: MemoryVfs, rng: Random, kinds: tuple[str, ...]
) -> Iterator[tuple[str, int, File]]:
    """The same store again and again, each time with one wrong bit in another byte."""
    for path, file in vfs.top.files().items():
        if path.endswith(kinds):
            sound = file.data
            # Every bit of the visible ends: a wrong number is not always a smaller one.
            bits = range(8 * len(sound)) if path.endswith("watermark") else None
            for bit in bits or (8 * at + rng.randrange(8) for at in range(len(sound))):
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
    assert expected is not None
    for path, at, _ in flipped_files(vfs, rng, kinds):
        count += 1
        found = read_all(vfs)
        for place, seen in (found or {}).items():
            assert seen == expected[place], f"byte {at} of {path}"
    return count


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
