"""Power cuts and kills in stores of objects, at every call.

Each raises an ``AssertionError``, or the engine's own error, when something was lost or invented.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from storage_core import Store
from storage_core.errors import StorageError
from storage_core.objects.engine import create_store
from tests.crash.explorer.disk import lost
from tests.crash.explorer.explorer import choices
from tests.crash.explorer.invariants import CONFIG
from tests.crash.explorer.recording import MemoryVfs
from tests.support.faulty_vfs import CrashError
from tests.support.stores import columns_of

TOPIC = "t"
_LARGE = b"x" * 3000


@dataclass
class Known:
    """What must be there: by partition the acknowledged values, and the offsets of a group."""

    values: dict[int, list[bytes]] = field(default_factory=lambda: {0: [], 1: []})
    group: int = 0
    topic: bool = False
    looks: int = 0


def open_store(vfs: MemoryVfs) -> Store:
    """The store as a new process opens it."""
    return Store(vfs, CONFIG, "objects")


def story(vfs: MemoryVfs, known: Known) -> None:
    """Topics, appends, commits, offsets of a group, deletions: every way to write."""
    create_store(vfs, CONFIG)
    store = open_store(vfs)
    store.create_topic(TOPIC, 2, exist_ok=True)
    known.topic = True
    for number in range(2):
        _append(store, known, 0, b"a%d" % number)
    for version, value in enumerate((b"c", b"d" + _LARGE), 1):
        stage = store.stage(f"job-{version}")
        for partition in (0, 1):
            stage.write(TOPIC, partition, columns_of([value]))
        result = store.commit(f"job-{version}", stage.finish(), app="app", version=version)
        if not result.skipped:
            for partition in (0, 1):
                known.values[partition].append(value)
    _append(store, known, 1, b"e")
    store.commit_offsets("g", {TOPIC: {0: 2}})
    known.group = 2


def _append(store: Store, known: Known, partition: int, value: bytes) -> None:
    store.append(TOPIC, partition, [value])
    known.values[partition].append(value)


def values_in(store: Store) -> dict[int, list[bytes]]:
    """All values by partition; a topic that is not there has none."""
    if TOPIC not in store.topics():
        return {0: [], 1: []}
    return {
        partition: [
            value for batch in store.read(TOPIC, partition) for value in batch["value"].to_pylist()
        ]
        for partition in (0, 1)
    }


def check(vfs: MemoryVfs, known: Known) -> None:
    """What is left holds everything that was acknowledged, and whole commits only."""
    store = open_store(vfs)
    if known.topic:
        assert TOPIC in store.topics(), "the topic is gone"
    found = values_in(store)
    for partition, values in known.values.items():
        assert found[partition][: len(values)] == values, "acknowledged records are gone"
    for value in (b"c", b"d" + _LARGE):
        counts = [found[partition].count(value) for partition in (0, 1)]
        assert counts in ([0, 0], [1, 1]), "a commit is half there, or twice"
    if known.group:
        assert store.committed_offsets("g") == {TOPIC: {0: known.group}}, "offsets are gone"
    assert [problem for problem in store.check() if problem.severity == "error"] == []


def cut_everywhere(samples: int = 4) -> int:
    """The power fails before every call. Returns how many states were checked."""
    vfs, known, rng = MemoryVfs(), Known(), Random(1)
    vfs.hook = _cutting(vfs, known, rng, samples)
    story(vfs, known)
    vfs.hook("end", "")
    return known.looks


def _cutting(vfs: MemoryVfs, known: Known, rng: Random, samples: int) -> Callable[[str, str], None]:
    def cut(kind: str, path: str) -> None:  # noqa: ARG001
        hook, vfs.hook = vfs.hook, None
        for choice in choices(vfs.unsynced(), rng, samples):
            left = vfs.power_cut(lambda _, choice=choice: choice, rng.randbytes(16))  # type: ignore[misc]
            if left.stat("store.json") is not None:
                check(left, known)
                known.looks += 1
        vfs.hook = hook

    return cut


def seen_by_readers() -> int:
    """A reader looks before every call; what it saw must survive a power cut right after it.

    Returns how often it looked.
    """
    vfs, known = MemoryVfs(), Known()
    seen: dict[int, list[bytes]] = {0: [], 1: []}

    def look(kind: str, path: str) -> None:  # noqa: ARG001
        vfs.hook = None
        if vfs.stat("store.json") is not None:
            copy = vfs.kill()  # with what is not synced, and no writer that waits for the reader
            found = values_in(open_store(copy))
            known.looks += 1
            left = values_in(open_store(copy.power_cut(lost, b"seen by a reader")))
            for partition, values in found.items():
                assert values[: len(seen[partition])] == seen[partition], "seen records changed"
                seen[partition] = values
                assert left[partition][: len(values)] == values, "records that were seen are gone"
        vfs.hook = look

    vfs.hook = look
    story(vfs, known)
    assert seen[0]
    return known.looks


def killed_writers() -> int:
    """A writer is killed before each call; the next one repeats its work, and the power fails.

    Returns how many calls there are.
    """
    calls = 0
    while True:
        vfs = MemoryVfs()
        create_store(vfs, CONFIG)
        vfs.crash_after = vfs.calls + calls
        try:
            story(vfs, Known())
            break
        except CrashError:
            left, known = vfs.kill(), Known()
            _repeat(left, known)
            check(left.power_cut(lost, b"after the next.."), known)
        calls += 1
    return calls


def _repeat(vfs: MemoryVfs, known: Known) -> None:
    """The same work again: what is there already is acknowledged, too."""
    create_store(vfs, CONFIG)
    try:
        known.values = values_in(open_store(vfs))
    except StorageError as error:
        raise AssertionError(f"the store cannot be read after a kill: {error}") from error
    story(vfs, known)


CUTS: dict[str, Callable[[], int]] = {
    "objects": cut_everywhere,
    "objects seen by readers": seen_by_readers,
    "objects after a kill": killed_writers,
}
