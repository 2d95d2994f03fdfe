"""The explorer tested: each step of the protocol that is taken out must cost it an invariant."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from storage_core import durable, intents, ledger, log, metafile, native_engine, watermark
from storage_core.commit_steps import CommitSteps
from storage_core.committer import Committer
from storage_core.intents import Intents
from storage_core.ledger import Ledger
from storage_core.segment import ActiveSegment
from storage_core.tail import Tail
from tests.crash.explorer import Explorer
from tests.crash.recording import MemoryVfs
from tests.crash.test_crash_states import SCENARIOS, SEED, explore, explore_successor


class FoundError(Exception):
    """A violation: enough."""


class FirstOnly(Explorer):
    """Ends at the first violation."""

    def _guarded(self, where: str, check: Callable[[], None]) -> None:
        super()._guarded(where, check)
        if self.report.violations:
            raise FoundError(self.report.violations[0])


Patch = Callable[[pytest.MonkeyPatch], None]


def nothing(*_: Any, **__: Any) -> None:
    """A step left out."""


def without(owner: Any, name: str) -> Patch:
    return lambda patch: patch.setattr(owner, name, nothing)


def unsynced_intents(patch: pytest.MonkeyPatch) -> None:
    def write(vfs: Any, path: str, data: bytes) -> None:
        durable.replace_file(vfs, path, data, sync=False)

    patch.setattr(intents, "replace_file", write)


def unsynced_ledger(patch: pytest.MonkeyPatch) -> None:
    def write(vfs: Any, path: str, fields: Any) -> None:
        durable.replace_file(vfs, path, metafile.dump(fields), sync=False)

    patch.setattr(ledger, "metafile", _Instead(metafile, replace=write))


class _Instead:
    """A module with some names of our own."""

    def __init__(self, module: Any, **names: Any) -> None:
        self._module = module
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def entry_is_trusted(patch: pytest.MonkeyPatch) -> None:
    """Redo does not write the ledger's entry again."""
    record = Ledger.record

    def once(self: Ledger, entry: Any) -> None:
        if not self.has(entry.topic, entry.topic_uuid, entry.app, entry.version):
            record(self, entry)

    patch.setattr(Ledger, "record", once)


def intent_is_trusted(patch: pytest.MonkeyPatch) -> None:
    """Redo does not write the intent again."""
    decide = CommitSteps.decide

    def once(self: CommitSteps, intent: Any) -> None:
        if self._intents.is_absent(intent):
            decide(self, intent)

    patch.setattr(CommitSteps, "decide", once)


def intent_goes_first(patch: pytest.MonkeyPatch) -> None:
    """The intent is removed before the ledger's entry is made."""
    record = Ledger.record

    def late(self: Ledger, entry: Any) -> None:
        found = Intents(self._vfs, "meta/intents", "staging")
        for intent in found.pending():
            found.remove(intent)
        record(self, entry)

    patch.setattr(Ledger, "record", late)


def publish_one_by_one(patch: pytest.MonkeyPatch) -> None:
    publish = native_engine.NativeEngine.publish_ends

    def each(self: Any, topic: str, ends: dict[int, int], *, durably: bool) -> None:
        for partition, end in ends.items():
            publish(self, topic, {partition: end}, durably=durably)

    patch.setattr(native_engine.NativeEngine, "publish_ends", each)


def publish_before_sync(patch: pytest.MonkeyPatch) -> None:
    """Appends show their records first and sync them later."""
    publish = log.PartitionLog.publish

    def early(self: log.PartitionLog) -> None:
        sync = self._tail.sync
        self._tail.sync = nothing  # type: ignore[method-assign]
        publish(self)
        self._tail.sync = sync  # type: ignore[method-assign]
        sync()

    patch.setattr(log.PartitionLog, "publish", early)


def pending_is_shown(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Intents, "starts", lambda *_: {})


def abort_does_not_look(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Committer,
        "abort",
        lambda self, job, app: self.drop_staging(job),  # noqa: ARG005
    )


def pending_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Committer, "is_pending", lambda *_: False)
    patch.setattr(Committer, "_require_finished", nothing)


def unsynced_folders(patch: pytest.MonkeyPatch) -> None:
    for module in (intents, ledger):
        patch.setattr(module, "sync_directories", durable.make_directories)


def unsynced_cut(patch: pytest.MonkeyPatch) -> None:
    """Names in the segments' folder are not synced."""
    fsync_dir = MemoryVfs.fsync_dir

    def some(self: MemoryVfs, path: str) -> None:
        if not path.endswith("segments"):
            fsync_dir(self, path)

    patch.setattr(MemoryVfs, "fsync_dir", some)


MUTANTS: dict[str, tuple[Patch, str]] = {
    "published ends are not synced": (without(watermark, "make_durable"), "commits"),
    "ends are published one by one": (publish_one_by_one, "commits"),
    "appends are shown before they are synced": (publish_before_sync, "appends"),
    "segments are not synced": (without(ActiveSegment, "_fsync"), "commits"),
    "names of segments are not synced": (unsynced_cut, "large commits"),
    "the log before a commit is not synced": (without(Tail, "settle"), "interval"),
    "the intent is not synced": (unsynced_intents, "commits"),
    "the ledger is not synced": (unsynced_ledger, "commits"),
    "the intent goes before the entry": (intent_goes_first, "commits"),
    "lost ends are worked out without looking at intents": (pending_is_shown, "commits"),
    "an intent found is not synced": (intent_is_trusted, "fsync_dir meta/intents"),
    "an entry found is not synced": (entry_is_trusted, "fsync_dir meta/ledger"),
    "folders that exist are taken for durable": (unsynced_folders, "fsync_dir meta"),
    "pending commits are not finished first": (pending_is_ignored, "fsync_dir topics/t/1/segments"),
    "abort deletes what is decided": (abort_does_not_look, "commits"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_step_that_is_left_out_is_missed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patch, scenario = MUTANTS[name]
    patch(monkeypatch)
    explorer = FirstOnly(Random(SEED), samples=6)
    run = partial(explore, scenario)
    if scenario not in SCENARIOS:  # then it is the call before which a committer is killed
        run = partial(explore_successor, where=lambda kind, path: f"{kind} {path}" == scenario)
    with pytest.raises(FoundError):
        run(explorer)
