"""Power cuts and kills at every call of the operations that maintain a log.

Merging, recompressing and deleting are explored like everything else: what was acknowledged stays
at its offset. Compaction has its own explorer, in ``compactions.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from storage_core import UpkeepProgress
from tests.crash.explorer.compactions import COMPACTIONS
from tests.crash.explorer.explorer import Explorer
from tests.crash.explorer.invariants import World, new_store
from tests.support.sizes import MAINTENANCE_SAMPLES, SEED

SMALL: dict[str, Any] = {"segment_bytes": 4096, "frame_bytes": 1024}
BIG = 1400


def small_segments(world: World, count: int = 5) -> None:
    for number in range(count):
        world.append("t", 0, b"%d" % number, b"%d again" % number)
        world.store.roll("t", 0)
    world.append("t", 0, b"active")


def merges(world: World) -> None:
    small_segments(world)
    assert world.store.merge("t")[0].segments_before == 5
    world.append("t", 0, b"behind")


def merges_beside_commits(world: World) -> None:
    world.commit(world.stage("app", 1, {("t", 0): 3, ("t", 1): 1}, size=BIG))
    small_segments(world, 3)
    world.store.merge("t")
    world.commit(world.stage("app", 2, {("t", 0): 1, ("t", 1): 1}))


def recompresses(world: World) -> None:
    for number in range(4):
        world.append("t", 0, (b"%d" % number).ljust(BIG, b"."))
        world.store.roll("t", 0)
    world.append("t", 0, b"active")
    assert world.store.recompress("t", compression="zstd")[0].segments_before == 4
    world.append("t", 0, b"behind")


def deletes(world: World) -> None:
    """Whole segments, a cut one, and all there is."""
    small_segments(world, 4)
    for offset in (3, 6, 9):
        world.store.delete_records("t", {0: offset})
        assert world.store.offsets("t", 0).start == offset
    world.append("t", 0, b"behind")


def deletes_all_and_commits(world: World) -> None:
    """The empty segment that is left may be all there is when a staged file takes its name."""
    small_segments(world, 2)
    world.store.delete_records("t", {0: 5})
    world.commit(world.stage("app", 1, {("t", 0): 5, ("t", 1): 1}, size=BIG))
    world.append("t", 0, b"behind")


def merges_beside_a_deletion(world: World) -> None:
    """Another process deletes what is being merged, while the new file is written."""
    small_segments(world, 4)
    deleted = False

    def delete(now: UpkeepProgress) -> None:
        nonlocal deleted
        if not deleted and now.done_bytes == now.total_bytes:
            deleted = True
            world.store.alter_topic("t", retention_bytes=0)
            assert world.store.retain("t")

    world.store.merge("t", progress=delete)
    assert world.store.offsets("t", 0).start == 8
    world.append("t", 0, b"behind")


SCENARIOS: dict[str, tuple[Callable[[World], None], dict[str, Any]]] = {
    "merge": (merges, {}),
    "merge and commits": (merges_beside_commits, SMALL),
    "recompress": (recompresses, {"segment_bytes": 1 << 20}),
    "delete_records": (deletes, {}),
    "delete_records and a commit": (deletes_all_and_commits, SMALL),
    "merge beside a deletion": (merges_beside_a_deletion, {}),
}


@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_crash_state_of_an_operation_recovers(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario, settings = SCENARIOS[name]
    explorer = Explorer(Random(SEED), MAINTENANCE_SAMPLES, likely=0.7)
    explorer.run(name, new_store({"t": 2}, **settings), scenario)
    found = explorer.report
    with capsys.disabled():
        print(
            f"\n[crash states] {name}: seed {SEED}, {found.states} states, {found.nested} crashes "
            f"in recovery, {len(found.violations)} violations"
        )
    assert found.violations == []
    assert found.states > 100


@pytest.mark.row(1, 4)
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", COMPACTIONS)
def test_every_crash_state_of_a_compaction_keeps_the_last_of_each_key(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    explorer = COMPACTIONS[name](Random(SEED), MAINTENANCE_SAMPLES)
    with capsys.disabled():
        print(
            f"\n[crash states] {name}: seed {SEED}, {explorer.states} states, "
            f"{len(explorer.violations)} violations"
        )
    assert explorer.violations == []
    assert explorer.states > 100
