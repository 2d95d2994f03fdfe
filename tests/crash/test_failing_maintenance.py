"""Any call of an operation on sealed segments fails: a typed error, and nothing is lost by it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from storage_core import Store
from storage_core.errors import StorageError
from tests.crash.breakers.failing_calls import Failing
from tests.crash.explorer.exploration import quickly
from tests.crash.explorer.invariants import CONFIG, new_store
from tests.crash.explorer.recording import MemoryVfs
from tests.support.faulty_vfs import FaultyVfs
from tests.support.stores import errors, rows

LAST = {b"a": b"2", b"b": b"0", b"c": b"1", b"d": b"open"}


def compacted_topic() -> MemoryVfs:
    """Three sealed segments; one key is in all of them."""
    vfs = new_store({"t": 1}, segment_bytes=4096, cleanup_policy="compact")
    store = Store(vfs, CONFIG)
    for number, keys in enumerate(([b"a", b"b"], [b"a", b"c"], [b"a"])):
        store.append("t", 0, [b"%d" % number] * len(keys), keys=keys)
        store.roll("t", 0)
    store.append("t", 0, [b"open"], keys=[b"d"])
    store.close()
    return vfs


def last_values(store: Store) -> dict[bytes, bytes]:
    return {row["key"]: row["value"] for row in rows(store.read("t", 0))}


@pytest.mark.row(8, 10, 13)
# A read that is given up half-way is closed by the garbage collector, which can tell nobody.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_failed_call_of_a_compaction_keeps_the_last_of_each_key() -> None:
    base = compacted_topic()

    def compact(nth: int) -> tuple[MemoryVfs, int]:
        vfs = base.kill()
        hook = Failing(vfs, {nth: "EIO" if nth % 2 else "ENOSPC"})
        files: Any = FaultyVfs(vfs, hook=hook)
        with suppress(StorageError):
            Store(files, CONFIG).compact("t", min_dirty_ratio=0)
        return vfs.kill(), len(hook.calls)

    with quickly(1):
        compacted, calls = compact(0)
        assert len(rows(Store(compacted, CONFIG).read("t", 0))) == len(LAST)
        for nth in range(1, calls + 1):
            store = Store(compact(nth)[0], CONFIG)
            assert last_values(store) == LAST
            store.compact("t", min_dirty_ratio=0)
            assert last_values(store) == LAST
            assert errors(store) == []


@pytest.mark.row(13)
@pytest.mark.parametrize(
    "look",
    [
        lambda store: store.compact("t", min_dirty_ratio=0, dry_run=True),
        lambda store: store.merge("t", dry_run=True),
        lambda store: store.recompress("t", compression="zstd", dry_run=True),
        lambda store: store.delete_records("t", {0: 3}, dry_run=True),
        lambda store: store.retain("t", dry_run=True),
        lambda store: store.committed_offsets("g"),
        lambda store: store.groups(),
        lambda store: store.recovery_due("t", 0),
    ],
    ids="compact merge recompress delete_records retain committed_offsets groups due".split(),
)
def test_a_failed_call_of_what_only_looks_is_a_typed_error(look: Callable[[Store], object]) -> None:
    base = compacted_topic()
    Store(base, CONFIG).commit_offsets("g", {"t": {0: 1}})

    def run(nth: int) -> int:
        hook = Failing(base, {nth: "EIO"})
        files: Any = FaultyVfs(base, hook=hook)
        with suppress(StorageError):
            look(Store(files, CONFIG))
        return len(hook.calls)

    with quickly(1):
        for nth in range(1, run(0) + 1):
            run(nth)
