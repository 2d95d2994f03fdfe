"""Files that were cut, removed or changed without the engine: writers must notice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

from storage_core import Store
from storage_core.errors import StorageError
from storage_core.format.frame import HEADER_BYTES, unpack_header
from tests.crash.explorer.disk import File, Folder, kept
from tests.crash.explorer.invariants import CONFIG, History, World, look, new_store
from tests.crash.explorer.recording import MemoryVfs
from tests.support.faulty_vfs import CrashError
from tests.support.stores import flip

VALUES = [b"first", b"second", b"third"]
_LOG = "topics/t/0/segments/00000000000000000000.log"


def left_cleanly() -> MemoryVfs:
    vfs = new_store({"t": 1})
    world = World(vfs, History(), CONFIG)
    for value in VALUES:
        world.append("t", 0, value)
    world.store.close()
    return vfs


def write(file: File, data: bytes) -> None:
    file.data = file.synced = data
    file.sectors, file.sizes = {}, []


def must_refuse(vfs: MemoryVfs, what: str) -> None:
    with suppress(StorageError):
        Store(vfs, CONFIG).append("t", 0, [b"more"])
        raise AssertionError(f"{what}, and an append went on")


def wrong_words() -> None:
    """Every bit of the state word, with the log a writer left cleanly in the same boot."""
    base = left_cleanly()
    for bit in range(8 * len(base.top.files()["topics/t/0/lock"].data)):
        vfs = base.kill()
        word = vfs.top.files()["topics/t/0/lock"]
        write(word, flip(word.data, bit))
        try:
            Store(vfs, CONFIG).append("t", 0, [b"more"])
        except (ArithmeticError, OSError, ValueError) as error:
            raise AssertionError(f"bit {bit}: an untyped error: {error!r}") from error
        view = look(vfs)
        assert view == {("t", 0): (0, [*VALUES, b"more"])}, f"bit {bit}: {view}"


def cut_logs() -> None:
    """The last record is gone, with its frame; in the same boot, and in another."""
    for rebooted in (False, True):
        vfs = left_cleanly()
        vfs = vfs.power_cut(kept, b"a boot of its own") if rebooted else vfs.kill()
        log = vfs.top.files()[_LOG]
        ends = [0]
        while ends[-1] < len(log.data):
            at = ends[-1]
            ends.append(at + unpack_header(memoryview(log.data)[at : at + HEADER_BYTES]).length)
        assert all(one < two for one, two in pairwise(ends))
        write(log, log.data[: ends[-2]])
        must_refuse(vfs, "a durable record is gone")


def removed_logs() -> None:
    """All segments are gone."""
    vfs = left_cleanly().power_cut(kept, b"a boot of its own")
    folder = vfs.top
    for name in ("topics", "t", "0", "segments"):
        below = folder.names[name]
        assert isinstance(below, Folder)
        folder = below
    folder.names.clear()
    must_refuse(vfs, "the whole log is gone")


def wrong_parts() -> None:
    """A byte of a staged file is wrong: the commit is refused, and nobody has to wait for it."""
    vfs = new_store({"t": 1})
    world = World(vfs, History(), CONFIG)
    staged = world.stage("app", 1, {("t", 0): 1})
    for at in range(0, staged.parts[0].size, 4):
        left = vfs.kill()
        file = left.top.files()[staged.parts[0].path]
        write(file, flip(file.data, 8 * at))
        refused = False
        try:
            Store(left, CONFIG).commit(staged.job, staged.parts, app="app", version=1)
        except StorageError:
            refused = True
        Store(left, CONFIG).append("t", 0, [b"next"])
        assert refused, f"byte {at} is wrong, and the commit went on"


def other_parts() -> None:
    """After the commit point a staged file is another one, sound and as long: it stays out."""
    vfs = new_store({"t": 1})
    world = World(vfs, History(), CONFIG)
    staged, other = (world.stage("app", version, {("t", 0): 1}) for version in (1, 2))

    def die(kind: str, path: str) -> None:
        if kind == "pwritev" and path == _LOG:
            raise CrashError(path)

    vfs.hook = die
    with suppress(CrashError):
        world.commit(staged)
    left = vfs.kill()
    files = left.top.files()
    write(files[staged.parts[0].path], files[other.parts[0].path].data)
    must_refuse(left, "a staged file is another one")


FILES: dict[str, Callable[[], None]] = {
    "wrong words": wrong_words,
    "cut logs": cut_logs,
    "removed logs": removed_logs,
    "wrong parts": wrong_parts,
    "other parts": other_parts,
}
