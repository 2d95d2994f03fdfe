"""Bugs put into the engine on purpose: each takes out one check, lock, order or step.

They change the engine in the test's own process only; nothing in it knows of them. Each says where
it must be noticed: see ``detectors.py``. Single syncs are found in the source: ``sync_sites.py``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest

from storage_core.brokers.log import RowLog
from storage_core.commit.append_staged import append_parts
from storage_core.commit.commit_state import CommitState
from storage_core.commit.intents import Intents
from storage_core.commit.ledger import Ledger
from storage_core.commit.protocol import Committer
from storage_core.commit.staging_gc import drop_staging
from storage_core.format import lock_state as state
from storage_core.io import durable, json_files
from storage_core.io.locks import locked
from storage_core.log.open_logs import OpenLogs
from storage_core.log.partition_log import PartitionLog
from storage_core.log.tail import Tail
from storage_core.log.unsynced_recovery import InvalidPlace, first_invalid_place
from storage_core.metadata import high_watermark
from storage_core.segments import deletion_markers
from storage_core.segments.active import ActiveSegment
from storage_core.segments.index_files import write_indexes
from storage_core.segments.listing import Listing, list_segments
from storage_core.segments.truncate import cut_back
from storage_core.vfs import Vfs
from tests.crash.bugs.mutants_of_checks import CHECKS
from tests.crash.bugs.mutants_of_schemas import SCHEMAS
from tests.crash.bugs.mutants_of_slots import SLOTS
from tests.crash.bugs.mutating import Instead, Mutant
from tests.crash.explorer.recording import MemoryVfs
from tests.support.patching import nothing, replaced, without


def entry_is_trusted(patch: pytest.MonkeyPatch) -> None:
    """Redo does not write the ledger's entry again."""
    record = Ledger.record

    def once(self: Ledger, entry: Any) -> None:
        if not self.has(entry.topic, entry.topic_uuid, entry.app, entry.version):
            record(self, entry)

    patch.setattr(Ledger, "record", once)


def intent_is_trusted(patch: pytest.MonkeyPatch) -> None:
    """Redo does not write the intent again."""
    decide = Committer.decide

    def once(self: Committer[Any], intent: Any) -> None:
        if self._intents.is_absent(intent):
            decide(self, intent)

    patch.setattr(Committer, "decide", once)


def intent_goes_first(patch: pytest.MonkeyPatch) -> None:
    """The intent is removed before the ledger's entry is made."""
    record = Ledger.record

    def late(self: Ledger, entry: Any) -> None:
        found = Intents(self._vfs, "meta/intents", "staging")
        for intent in found.pending():
            found.remove(intent)
        record(self, entry)

    patch.setattr(Ledger, "record", late)


def intent_comes_late(patch: pytest.MonkeyPatch) -> None:
    """The records are in the log before the commit is decided."""
    decide, finish = Committer.decide, Committer.finish

    def late(self: Committer[Any], intent: Any, logs: Any) -> None:
        for part in self.alive(intent):
            self._append_staged(logs[part.topic, part.partition], part)
        decide(self, intent)
        finish(self, intent, logs)

    patch.setattr(Committer, "decide", nothing)
    patch.setattr(Committer, "finish", late)


def staging_goes_first(patch: pytest.MonkeyPatch) -> None:
    """The staging is deleted as soon as the commit is decided."""
    decide = Committer.decide

    def dropping(self: Committer[Any], intent: Any) -> None:
        decide(self, intent)
        for part in intent.partitions:
            for staged in part.parts:
                self._intents._vfs.unlink(staged.path)

    patch.setattr(Committer, "decide", dropping)


def publish_one_by_one(patch: pytest.MonkeyPatch) -> None:
    publish = OpenLogs.publish_ends

    def each(self: Any, topic: str, ends: dict[int, int], **more: Any) -> None:
        for partition, end in ends.items():
            publish(self, topic, {partition: end}, **more)

    patch.setattr(OpenLogs, "publish_ends", each)


def publish_before_sync(patch: pytest.MonkeyPatch) -> None:
    """Appends show their records first and sync them later."""
    publish = PartitionLog.publish

    def early(self: PartitionLog) -> None:
        sync = self._tail.sync
        self._tail.sync = nothing  # type: ignore[method-assign]
        publish(self)
        self._tail.sync = sync  # type: ignore[method-assign]
        sync()

    patch.setattr(PartitionLog, "publish", early)


def pending_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitState, "require_none_pending", nothing)
    patch.setattr(Committer, "_require_finished", nothing)


def abort_does_not_look(patch: pytest.MonkeyPatch) -> None:
    def abort(self: Committer[Any], job: str, app: str) -> None:  # noqa: ARG001
        drop_staging(self._vfs, self._staging, job)

    patch.setattr(Committer, "abort", abort)


def redo_starts_over(patch: pytest.MonkeyPatch) -> None:
    """Redo appends everything again, whatever the first attempt had done."""

    def all_of_it(vfs: Vfs, schemas_of: Any, tail: Tail, intent: Any) -> None:
        start = tail.end
        moved = dataclasses.replace(intent, start=start)
        append_parts(vfs, schemas_of, tail, moved)

    replaced(append_parts, all_of_it)(patch)


def in_place(patch: pytest.MonkeyPatch) -> None:
    """Entries of the ledger are overwritten where they stand."""

    def overwrite(vfs: Vfs, path: str, fields: Any) -> None:
        data = json_files.dump(fields)
        try:
            fd = vfs.open(path, "create")
        except FileExistsError:
            fd = vfs.open(path, "write")
        vfs.truncate(fd, 0)
        durable.write_all(vfs, fd, [data], 0)
        vfs.fsync(fd)
        vfs.close(fd)
        vfs.fsync_dir(durable.parent(path))

    replaced(json_files.replace, overwrite, by=(Ledger,))(patch)


def unsynced_folders(patch: pytest.MonkeyPatch) -> None:
    by = (Intents, Ledger)
    replaced(durable.sync_directories, durable.make_directories, by)(patch)


def no_deletion_markers(patch: pytest.MonkeyPatch) -> None:
    """Segments are deleted without a deletion marker, newest first."""

    def drop(vfs: Vfs, directory: str, bases: Any, new_start: int) -> None:  # noqa: ARG001
        deletion_markers.remove_marked(vfs, directory, tuple(reversed(bases)))

    replaced(deletion_markers.drop_segments, drop)(patch)


def boot_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """A word that a clean holder left counts after a reboot too."""
    patch.setattr(MemoryVfs, "boot_id", lambda _: b"always the same.")


@contextmanager
def no_lock(vfs: Vfs, path: str, timeout_ms: int) -> Iterator[int]:  # noqa: ARG001
    fd = vfs.open(path, "write")
    try:
        yield fd
    finally:
        vfs.close(fd)


@contextmanager
def no_name_lock(*_: Any) -> Iterator[None]:
    yield


def failed_syncs_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """No mark is left behind a failed sync: the next writer trusts what it reads."""
    mark = PartitionLog._write_state

    def dirty(self: Any, fd: int, condition: int) -> None:
        mark(self, fd, state.DIRTY if condition == state.SYNC_FAILED else condition)

    patch.setattr(PartitionLog, "_write_state", dirty)


def failed_syncs_are_retried(patch: pytest.MonkeyPatch) -> None:
    def again(self: ActiveSegment) -> None:
        try:
            self._vfs.fsync(self._fd)
        except OSError:
            self._vfs.fsync(self._fd)

    patch.setattr(ActiveSegment, "_fsync", again)


def only_the_ends(patch: pytest.MonkeyPatch) -> None:
    def first(vfs: Vfs, listing: Listing, _: int) -> InvalidPlace | None:
        return first_invalid_place(vfs, listing, listing.bases[-1])

    replaced(first_invalid_place, first)(patch)


def first_file_goes_first(patch: pytest.MonkeyPatch) -> None:
    """What is taken back goes from its beginning."""

    def backwards(vfs: Vfs, directory: str) -> Any:
        found = list_segments(vfs, directory)
        return Instead(found, bases=list(reversed(found.bases)))

    replaced(list_segments, backwards, by=(cut_back,))(patch)


def indexes_come_late(patch: pytest.MonkeyPatch) -> None:
    """A staged file is a segment before its indexes say that it is sealed."""
    late = list[Any]()

    def linking(*arguments: Any) -> None:
        durable.link_over_empty(*arguments)
        for each in late:
            write_indexes(*each)
        late.clear()

    replaced(write_indexes, lambda *arguments: late.append(arguments), by=(Tail,))(patch)
    replaced(durable.link_over_empty, linking)(patch)


MUTANTS: dict[str, Mutant] = {
    # Appends
    "appends are shown before they are synced": Mutant(publish_before_sync, "appends"),
    "handlers show records before they are synced": Mutant(publish_before_sync, "handlers"),
    # Commits
    "the log before a commit is not synced": Mutant(without(Tail, "sync_always"), "interval"),
    "the intent comes after the records": Mutant(intent_comes_late, "commits"),
    "the staging goes before the records are applied": Mutant(staging_goes_first, "commits"),
    "the ledger's entry is overwritten in place": Mutant(in_place, "commits"),
    "the ledger is not asked": Mutant(without(Ledger, "has", lambda *_, **__: False), "commits"),
    "the intent goes before the entry": Mutant(intent_goes_first, "commits"),
    "ends are published one by one": Mutant(publish_one_by_one, "commits"),
    "high watermarks are not synced": Mutant(replaced(high_watermark.make_durable), "commits"),
    "abort deletes what is decided": Mutant(abort_does_not_look, "commits"),
    # Recovery and redo
    "lost ends are worked out without looking at intents": Mutant(
        without(CommitState, "starts", lambda *_: {}), "commits"
    ),
    "redo starts over": Mutant(redo_starts_over, "commits"),
    "an intent found is not synced": Mutant(
        intent_is_trusted, "killed before fsync_dir meta/intents"
    ),
    "an entry found is not synced": Mutant(entry_is_trusted, "killed before fsync_dir meta/ledger"),
    "folders that exist are taken for durable": Mutant(
        unsynced_folders, "killed before fsync_dir meta"
    ),
    "pending commits are not finished first": Mutant(
        pending_is_ignored, "killed before fsync_dir topics/t/1/segments"
    ),
    "a clean word is believed after a reboot": Mutant(boot_is_ignored, "interval"),
    # Topics without syncs
    "segments that nobody synced are believed": Mutant(replaced(first_invalid_place), "no syncs"),
    "segments that nobody synced are not read": Mutant(only_the_ends, "no syncs"),
    "syncs are promised before they are made": Mutant(
        without(OpenLogs, "durable", lambda *_: nullcontext()),
        "syncs again",
    ),
    # Retention and topics
    "segments are deleted without a deletion marker": Mutant(
        no_deletion_markers, "drop many around unlink"
    ),
    "records of another program are cut": Mutant(
        without(RowLog, "require_own"), "foreign records in rustlog"
    ),
    # Locks
    "a partition's lock is not taken": Mutant(
        replaced(locked, no_lock, by=(PartitionLog,)), "two writers"
    ),
    "the lock over high watermarks is not taken": Mutant(
        replaced(locked, no_lock, by=(high_watermark.publish, high_watermark.rebuild)),
        "two writers",
    ),
    "an application's name is not held": Mutant(
        without(Ledger, "lock_names", no_name_lock), "two writers"
    ),
    # Failed syncs
    "failed syncs are retried": Mutant(failed_syncs_are_retried, "failing syncs"),
    "failed syncs are forgotten": Mutant(failed_syncs_are_forgotten, "failing syncs"),
    # Orders
    "the first of several files is taken back first": Mutant(
        first_file_goes_first, "full disk in appends"
    ),
    "indexes come after the segment that was staged": Mutant(indexes_come_late, "large commits"),
    **CHECKS,
    **SCHEMAS,
    **SLOTS,
}
