"""Power cuts in narrow places that stories of the explorer seldom come to.

Each raises an ``AssertionError``, or the engine's own error, when something was lost or invented.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random

from storage_core import Store
from tests.crash.breakers.failing_calls import STORIES, Fault, play
from tests.crash.explorer.disk import Choice, Item, kept, lost
from tests.crash.explorer.explorer import recover, recover_partitions
from tests.crash.explorer.invariants import CONFIG, History, World, check_recovered, new_store
from tests.crash.explorer.recording import MemoryVfs
from tests.crash.explorer.typed_rows import TYPED, columns_in, wanted
from tests.support.faulty_vfs import CrashError


def cut_at_every_call(vfs: MemoryVfs, history: History, when: Callable[[], bool]) -> None:
    """Let the power fail before every call from now on, and look at what is left."""

    def cut(kind: str, path: str) -> None:
        if not when():
            return
        vfs.hook = None
        for choose in (lost, kept):
            left, then = vfs.power_cut(choose, Random(f"{kind} {path}").randbytes(16)), history
            check_recovered(left, recover(left, then.copy(), Random(0)), then.copy())
        vfs.hook = cut

    vfs.hook = cut


def repaired_syncs() -> None:
    """A sync fails; the power fails at every call of who copies the doubtful file to a new one."""
    story = STORIES["appends"]
    base = new_store(story.topics, **story.settings)
    calls = play(base, story)[2].calls
    last = max(nth for nth, kind in enumerate(calls, 1) if kind == "fsync")
    vfs, history, _ = play(base, story, Fault(last, "pages kept"))
    left = vfs.kill()
    cut_at_every_call(left, history, lambda: True)
    recover_partitions(Store(left, CONFIG), Random(0))


def old_frames() -> None:
    """A torn tail is cut, a commit of the same size takes its place, and the power fails again.

    After the torn frame stood a whole one, which begins where a sector does: if the cut was not
    durable before the commit was written, it stands after the commit's records now.
    """
    settings = {"fsync": "interval", "fsync_interval_ms": 3_600_000}
    vfs, history = new_store({"t": 1}, **settings), History()
    world = World(vfs, history, CONFIG)
    for letter, size in zip((b"f", b"a", b"b"), (600, 1480, 1480), strict=True):
        world.append_lazily("t", 0, letter * size)
    torn = vfs.power_cut(lambda items: {**kept(items), **_sector(items, 2, 0)}, b"a torn frame....")
    world = World(torn, history, CONFIG)
    staged = world.stage("app", 1, {("t", 0): 1}, size=1480)

    def cut(kind: str, path: str) -> None:
        if kind == "fsync" and path.endswith(".log"):
            left = torn.power_cut(_old_after_new, b"old frames......")
            check_recovered(left, recover(left, history.copy(), Random(0)), history.copy())

    torn.hook = cut
    world.commit(staged)
    assert history.acked["t", 0, 1] == staged.values["t", 0][0], "the commit is somewhere else"


def _sector(items: Sequence[Item], sector: int, age: int) -> dict[Item, int]:
    return {item: age for item in items if item.what >= 0 and item.part == sector}


def _old_after_new(items: Sequence[Item]) -> Choice:
    """Sizes and all from the sixth sector on as they were; the others are new."""
    old = (item for item in items if item.what >= 0 and (item.part < 0 or item.part > 4))
    return {**kept(items), **dict.fromkeys(old, 0)}


def killed_stagers() -> None:
    """Two tasks stage for one job; the first is killed at every call, and the power fails."""
    calls = 0
    while True:
        vfs = new_store({"t": 1})
        first = World(vfs, History(), CONFIG)
        vfs.crash_after = vfs.calls + calls
        with suppress(CrashError):
            first.stage("app", 1, {("t", 0): 1})
            return
        left = vfs.kill()
        second = World(left, History(), CONFIG)
        staged = second.stage("app", 1, {("t", 0): 1})
        cut_at_every_call(left, second.history, lambda: True)
        second.commit(staged)
        calls += 1


def closed_unsynced() -> None:
    """A topic without syncs seals a segment and begins another; then comes a commit."""
    vfs = new_store({"t": 1}, fsync="none")
    world = World(vfs, History(), CONFIG)
    world.append_lazily("t", 0, b"closed")
    world.store.roll("t", 0)
    world.append_lazily("t", 0, b"open")
    world.commit(world.stage("app", 1, {("t", 0): 1}))
    left = vfs.power_cut(lost, b"a boot of its own")
    check_recovered(left, recover(left, world.history.copy(), Random(0)), world.history)


def killed_makers() -> None:
    """The maker of a topic is killed at any call, another writes to it, and the power fails."""
    written = 0
    for calls in range(80):
        vfs = new_store({"t": 1})
        vfs.crash_after = vfs.calls + calls
        with suppress(CrashError):
            Store(vfs, CONFIG).create_topic("u")
        vfs = vfs.kill()
        if "u" in Store(vfs, CONFIG).topics():
            written += 1
            Store(vfs, CONFIG).append("u", 0, [b"acknowledged"])
            left = Store(vfs.power_cut(lost, b"the next boot..."), CONFIG)
            left.append("u", 0, [b"next"])
            assert left.offsets("u", 0).end == 2, f"killed at {calls}: a record is lost"
    assert written > 1


def killed_registrars() -> None:
    """A writer is killed while it registers a column, another brings the same or another one.

    The power fails at every call of the other that touches schemas, and when it is done.
    """
    killed = 0
    for columns in ("a", "b"):
        for calls in range(40):
            vfs = new_store({"t": 2}, **TYPED)
            first = World(vfs, History(), CONFIG)
            vfs.crash_after = vfs.calls + calls
            try:
                first.register("t", "a")
                break
            except CrashError:
                killed += 1
            left = vfs.kill()
            world = World(left, History(), CONFIG)
            _cut_around_schemas(left, world.history)
            world.commit(world.stage("app", 1, {("t", 1): 1}, columns=columns))
            world.add_columns("t", "c")
            left.hook = None
            cut = left.power_cut(lost, b"the next boot...")
            check_recovered(cut, recover(cut, world.history, Random(0)), world.history)
    assert killed > 6


def killed_alterers() -> None:
    """A writer is killed while it adds a column; another appends rows elsewhere with what it sees.

    Then the power fails. The rows must not be shown without the column, whoever comes first.
    """
    # A commit to both partitions leaves clean logs and durable high watermarks, an append does not.
    both = {("t", 0): 1, ("t", 1): 1}
    seen = _alter_and_die(lambda world: world.commit(world.stage("app", 1, both)))
    assert seen + _alter_and_die(lambda world: world.append("t", 1, b"before")) > 2


def _alter_and_die(prepare: Callable[[World], None]) -> int:
    """How often the rows had a column whose commit was not finished."""
    seen = 0
    for calls in range(200):
        vfs = new_store({"t": 2}, **TYPED)
        before = World(vfs, History(), CONFIG)
        prepare(before)
        vfs.crash_after = vfs.calls + calls
        try:
            Store(vfs, CONFIG).alter_topic("t", add_columns=wanted("a"))
            break
        except CrashError:
            left = vfs.kill()
        world = World(left, before.history, CONFIG)
        world.history.tried.update(columns_in("t", wanted("a")))
        world.append("t", 1, b"elsewhere")
        seen += b"elsewhere+a" in world.history.tried
        for choose in (lost, _torn_ends):
            # Whichever partition is recovered first.
            for order in range(2):
                cut, then = left.power_cut(choose, b"the next boot..."), world.history.copy()
                check_recovered(cut, recover(cut, then, Random(3 * order)), then)
    return seen


def _torn_ends(items: Sequence[Item]) -> Choice:
    """New names but for the first, old bytes, and half of each slot of high watermarks.

    A file that was renamed into its place is empty, and the first one that was removed is back.
    """
    names = [item for item in items if item.what < 0]
    halves = {item: 1 for item in items if item.what >= 0 and item.part >= 0 and item.ages == 3}
    return halves | {item: item.ages - 1 for item in names[1:]}


def _cut_around_schemas(vfs: MemoryVfs, history: History) -> None:
    def cut(kind: str, path: str) -> None:
        if "/schemas" in path or path.endswith("watermark"):
            vfs.hook = None
            left = vfs.power_cut(lost, Random(f"{kind} {path}").randbytes(16))
            then = history.copy()
            check_recovered(left, recover(left, then, Random(0)), then)
            vfs.hook = cut

    vfs.hook = cut


CUTS: dict[str, Callable[[], None]] = {
    "killed makers": killed_makers,
    "repaired syncs": repaired_syncs,
    "old frames": old_frames,
    "killed stagers": killed_stagers,
    "killed registrars": killed_registrars,
    "killed alterers": killed_alterers,
    "sealed segments": closed_unsynced,
}
