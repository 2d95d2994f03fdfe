"""A reader beside an append that fails and is taken back, which happens before any of its calls.

Run as a module, in a process of its own: who touches a page of a map that was cut off is killed.
"""

from __future__ import annotations

import errno
import sys
import tempfile
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path

from storage_core import Store
from storage_core.errors import DiskFullError
from storage_core.io.byte_source import MappedSource
from tests.support.faulty_vfs import faulty
from tests.support.stores import T0, TOPIC, make_store, on, segment, values

OLD = [b"old"]
NEW = [b"%04d" % number * 1000 for number in range(25)]
_ROLLED = segment(Path(), 0).name


class FailingAppend:
    """Appends until the second segment cannot be written; then goes on when asked, call by call."""

    def __init__(self, path: Path, *, again: bool, rolled: str = _ROLLED) -> None:
        self._rolled = rolled
        self._vfs = faulty(path)
        self._vfs.real_syncs = False
        self._vfs.hook = self._before
        self._again = again
        self._failed = self._over = False
        self._turn, self._parked = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._parked.acquire(timeout=30)

    def go_on(self, calls: int) -> None:
        """Let it make this many calls."""
        while calls and not self._over:
            calls -= 1
            self._turn.release()
            assert self._parked.acquire(timeout=30)

    def finish(self) -> None:
        self.go_on(1 << 30)
        self._thread.join()

    def _run(self) -> None:
        with on(self._vfs) as store:
            try:
                store.append(TOPIC, 0, NEW, timestamps=[T0 + 1] * len(NEW))
            except DiskFullError:
                if self._again:
                    store.append(TOPIC, 0, NEW, timestamps=[T0 + 3] * len(NEW))
        self._over = True
        self._parked.release()

    def _before(self, kind: str, path: str) -> None:
        fails = not self._failed and kind == "pwritev" and path.endswith(".log")
        if fails and not path.endswith(self._rolled):
            self._failed = True
            self._wait()
            raise OSError(errno.ENOSPC, "no space left", path)
        if self._failed:
            self._wait()

    def _wait(self) -> None:
        self._parked.release()
        assert self._turn.acquire(timeout=30)


def read_all(store: Store, *, old: list[bytes]) -> None:
    assert values(store) in (old, [*old, *NEW])


def look_up_times(store: Store, *, old: list[bytes]) -> None:
    assert store.offset_for_timestamp(TOPIC, 0, T0) in ({0} if old else {None, 0})
    for time in (T0 + 1, T0 + 2, T0 + 3):
        assert store.offset_for_timestamp(TOPIC, 0, time) in (None, len(old))
    assert store.offset_for_timestamp(TOPIC, 0, T0 + 4) is None


def look_up_times_after(store: Store, *, again: bool) -> None:
    """What the same reader says when all is over: nothing it saw before may mislead it."""
    found = store.offset_for_timestamp(TOPIC, 0, T0 + 2)
    assert found == (store.offsets(TOPIC, 0).end - len(NEW) if again else None), found


def check(store: Store, *, old: list[bytes]) -> None:  # noqa: ARG001
    found = store.check()
    assert found == [], found


LOOKS = {look.__name__: look for look in (read_all, look_up_times, check)}


def sweep(look: Callable[..., None], *, old: list[bytes], again: bool, step: int) -> int:
    """Look once for each call the look makes, the append going on before it; return how many."""
    for nth in count(1):
        with tempfile.TemporaryDirectory() as folder:
            if look_beside(look, Path(folder), nth, old=old, again=again, step=step) < nth:
                return nth
    raise AssertionError


def look_beside(
    look: Callable[..., None], path: Path, nth: int, *, old: list[bytes], again: bool, step: int
) -> int:
    """Look while an append goes on before the ``nth`` call and all that follow; return how many."""
    settings = {"segment_bytes": 65_536, "frame_bytes": 8192, "index_interval_bytes": 4096}
    with make_store(path, **settings) as store:
        store.append(TOPIC, 0, old, timestamps=[T0] * len(old))
    append, calls = FailingAppend(path, again=again), 0

    def before(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls >= nth:
            append.go_on(step)

    def read_later(source: MappedSource, position: int, size: int) -> memoryview:
        before()
        return read(source, position, size)

    vfs = faulty(path)
    vfs.hook = before
    read = MappedSource.read
    MappedSource.read = read_later  # type: ignore[method-assign, assignment]
    store = on(vfs)
    try:
        look(store, old=old)
    finally:
        MappedSource.read = read  # type: ignore[method-assign]
        append.finish()
    looks, calls = calls, -1 << 62
    if look is look_up_times:
        look_up_times_after(store, again=again)
    return looks


if __name__ == "__main__":
    _, name, again, *steps = sys.argv
    for old in (OLD,) if name == "look_up_times" else (OLD, []):
        for step in steps:
            looks = sweep(LOOKS[name], old=old, again=again == "again", step=int(step))
            print(f"{looks} looks")
