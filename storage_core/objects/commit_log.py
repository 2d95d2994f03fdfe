"""The commit log: create-only, numbered objects. Creating number n is the n-th commit.

A writer applies commit n-1, then creates object n. **It leaves n only when object n exists**:

* The create succeeds: the commit happened, unless n is below the boundary (see below).
* The object exists: the writer reads it. Its own id: the commit happened, and a reply was lost.
  Another id: the writer applies that commit and tries n+1. No object: the store only said that two
  creates overlapped; the writer tries n again.
* A timeout: the writer creates the same bytes at the same n again.

So a create that is delayed in the network can never store a commit twice: object n exists when its
writer goes on. Writers that lose a race wait for a random time.

Every hundred commits a writer stores a *checkpoint*: the state after that commit. ``_last`` names
the last checkpoint; it is a hint. Garbage collection raises the *boundary* and then deletes commits
below it. A writer that slept meanwhile could create a deleted number again, so every writer reads
the boundary after its create.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..errors import CommitUnknownError, DamagedMetadataError, StorageError
from ..io import json_files
from ..io.io_errors import write_failure
from ..io.parallel import map_on_threads
from ..metadata.topic_file import TopicFile
from ..vfs import Buffer, Vfs
from . import document
from .backend import read_object
from .manifests import moving
from .manifests.archive import ManifestReader
from .names import CHECKPOINT, COMMIT, LOGS, hour_start_us, parse_listing, time_text
from .patience import TRANSIENT, PatientBackend
from .state import Commit, LogState, commit_fields, commit_from, state_fields, state_from

CHECKPOINT_INTERVAL = 100
GONE = 1 << 62
"""The boundary of a log that is deleted as a whole. This one object of it stays."""
_READ_THREADS = 16
# No collector deletes commits that are not twice as old, whatever its settings. A state that is
# older is only believed if the boundary says that no commit after it was deleted.
_SURE_S = 30.0
_OPEN_TRIES = 10
_log = logging.getLogger("storage_core")


class Draft(NamedTuple):
    """A commit to be tried, with the frames of its inline slices.

    ``repeatable``: the commit can be built again after it happened, and then changes nothing.
    """

    commit: Commit
    frames: Sequence[Buffer] = ()
    repeatable: bool = True


class Committed(NamedTuple):
    """The state that a call left: after its commit, or where ``build`` found nothing to do."""

    state: LogState
    happened: bool


Build = Callable[[LogState], Draft | None]
"""What to commit on top of a state; None if there is nothing to do. It may raise."""


class CommitLog:
    """One log. Safe for several threads, processes and machines.

    Args:
        backend: The objects.
        clock: The clock, and sleeping.
        log: The id of the log.
        ttl_s: The age at which garbage collection may delete commits. What this object knows is
            read again from a checkpoint when it is half as old.
    """

    def __init__(self, backend: PatientBackend, clock: Vfs, log: str, *, ttl_s: float) -> None:
        self.backend = backend
        self.clock = clock
        self.name = log
        self.prefix = f"{LOGS}{log}/"
        self.manifests = ManifestReader(backend)
        self._patience = backend.patience
        self._fresh_s = ttl_s / 2
        self._ttl_us = int(ttl_s * 1e6)
        self._lock = threading.RLock()
        self._writing = threading.Lock()
        self._state: LogState | None = None
        self._seen = (0.0, 0.0)
        self._checkpointed = -1

    def refresh(self) -> LogState:
        """The state now. If nothing was committed since, this is one read that finds nothing."""
        with self._lock:
            while True:
                now, known, seen = self._now(), self._state, self._seen
                if known is None or self._is_old(seen):
                    self._state = self._open()
                else:
                    try:
                        self._state = self._follow(known)
                    except FileNotFoundError:
                        self._state = None  # a listing tells whether a commit is lost
                        continue
                    if self._is_old(seen, _SURE_S) and self.boundary() > known.number + 1:
                        self._state = None
                        continue
                self._seen = now
                # If this process slept, the commit that it did not find may have been deleted.
                if not self._is_old(now):
                    return self._state

    @property
    def is_deleted(self) -> bool:
        """Whether the last known state says that the topic is deleted. Reads nothing."""
        state = self._state
        return state is not None and state.deleted

    @property
    def known_topic(self) -> TopicFile | None:
        """The topic in the last known state. Reads nothing."""
        state = self._state
        return None if state is None else state.topic

    def begin(self) -> None:
        """Take the log for a new one: nobody else knows its id."""
        with self._lock:
            self._state, self._seen = LogState(), self._now()

    def state(self) -> LogState:
        """The last known state; it is read if there is none, or an old one."""
        with self._lock:
            if self._state is None or self._is_old(self._seen):
                return self.refresh()
            return self._state

    def commit(self, build: Build) -> Committed:
        """Commit what ``build`` makes of the state. It is called again when others were first.

        Raises:
            CommitUnknownError: the commit may or may not have happened.
            WriteFailedError: it did not happen, and will not.
        """
        with self._writing:
            return self._commit(build, str(uuid.uuid4()))

    def _commit(self, build: Build, ident: str, *, checkpoint: bool = True) -> Committed:
        state, lost = self.state(), 0
        while True:
            draft = build(state)
            if draft is None:
                return Committed(state, happened=False)
            state.require_kept(draft.commit)
            number, since = state.number + 1, self._now()
            if self.backend.lists_whole and self._is_there(number + 1):
                state = self.refresh()  # it has this number by now, or raises because it is lost
                continue
            stored, tries = self._create(number, draft, ident)
            doubtful = stored is not None or tries or self._is_old(since)
            if doubtful and not self._is_above_boundary(number):
                state = self._after_sleep(number, draft)
            elif stored is None:
                state = self.refresh()
            else:
                with self._lock:
                    state = self._applied(state, stored)
                    if self._state is None or state.number > self._state.number:
                        self._state, self._seen = state, since
                if checkpoint:
                    self._checkpoint_if_due(state)
                return Committed(state, happened=True)
            lost += 1
            self._patience.wait(lost)

    def _after_sleep(self, number: int, draft: Draft) -> LogState:
        """The state, after a number was used and deleted while this writer slept.

        The object that has the number now is garbage, whoever created it. But an earlier try of the
        same commit may have been among the deleted ones: only the ledger tells.
        """
        self.forget()
        if not draft.repeatable:
            raise self._unknown(number, "the writer slept for too long")
        try:
            return self.refresh()
        except (OSError, StorageError) as error:
            raise self._unknown(number, error) from error

    def _is_above_boundary(self, number: int) -> bool:
        try:
            return self.boundary() <= number
        except (OSError, StorageError) as error:
            raise self._unknown(number, error) from error

    def forget(self) -> None:
        """Read everything again at the next call."""
        with self._lock:
            self._state = None

    def _create(self, number: int, draft: Draft, ident: str) -> tuple[Commit | None, int]:
        """Create commit ``number``, as readers see it; None if another commit has the number.

        The second value counts the tries before, of which any may have created the object.
        """
        key, tries, until = self._key(number, COMMIT), 0, self._patience.deadline()
        fields = {**commit_fields(draft.commit), "id": ident, "number": number}
        head = document.encode("commit", fields)
        data, frames_at = [*head, *draft.frames], sum(map(len, head))
        stored = commit_from(fields, key, frames_at) if draft.frames else draft.commit
        cause: object = "the store did not decide between two writers"
        while True:
            try:
                try:
                    self.backend.create(key, data)
                    return stored, tries
                except FileExistsError:
                    found = self._id_of(key)
                if found is not None:
                    return (stored if found == ident else None), tries
            except TRANSIENT as error:
                cause = error
            except OSError as error:
                raise self._failed(key, ident, error, tries) from error
            # A request may take longer than patience lasts: the second one tells what it did.
            if tries and self._patience.is_over(until):
                raise self._unknown(number, cause)
            tries += 1
            self._patience.wait(tries)

    def _failed(self, key: str, ident: str, error: OSError, tries: int) -> StorageError:
        """The error of a create that failed for good: nothing was stored, or nobody knows.

        A try before it that had no reply may still be under way.
        """
        try:
            found = self._id_of(key)
        except OSError:
            return self._unknown(key, error)
        if found == ident or (found is None and tries):
            return self._unknown(key, error)
        return write_failure(f"committing to {key}", error)

    def _unknown(self, what: object, cause: object) -> CommitUnknownError:
        self.forget()
        return CommitUnknownError(
            f"commit {what} of {self.backend.name}/{self.prefix} may or may not have happened: "
            f"{cause}. Read the log to find out. Repeating a commit of the same application and "
            "version is safe: no record is added twice."
        )

    def _id_of(self, key: str) -> str | None:
        """The id of a commit; None if there is no such object."""
        data = read_object(self.backend, key)
        if data is None:
            return None
        return str(document.decode("commit", memoryview(data), key).fields.get("id"))

    def _follow(self, state: LogState) -> LogState:
        """Apply the commits after a state, one by one, until there is none.

        Raises:
            FileNotFoundError: the next commit of a directory is lost: the one after it is there.
        """
        while True:
            key = self._key(state.number + 1, COMMIT)
            data = read_object(self.backend, key)
            if data is None:
                if not (self.backend.lists_whole and self._is_there(state.number + 2)):
                    return state
                data = bytes(self.backend.get_ranges(key).whole)  # both may be new
            state = self._applied(state, self._parse(key, memoryview(data))[1])

    def _followed_without_gap(self, state: LogState, checkpoint: int) -> LogState:
        """A state that no later commit stands after, in a directory that was not listed.

        A lost commit looks like the end of the log. A reader would miss all after it without a
        word, and a writer would give their offsets to other records. The commits are asked for one
        by one, up to the number at which the next checkpoint is due: a hint to it leads past them.

        A log that reaches as far has a later checkpoint, which the hint does not know.

        Raises:
            FileNotFoundError: a commit is missing, and a later one is there, or the hint is old.
        """
        due = checkpoint + 2 * CHECKPOINT_INTERVAL
        while any(map(self._is_there, range(state.number + 2, due))):
            followed = self._follow(state)  # both may have been created meanwhile
            if followed.number == state.number:
                raise FileNotFoundError(self._key(state.number + 1, COMMIT))
            state = followed
        if state.number + 2 >= due:
            raise FileNotFoundError(self._key(due, CHECKPOINT))
        return state

    def _is_there(self, number: int) -> bool:
        try:
            self.backend.get_ranges(self._key(number, COMMIT), [(0, 1)])
        except FileNotFoundError:
            return False
        return True

    def _applied(self, state: LogState, commit: Commit) -> LogState:
        try:
            return state.applied(commit, self.manifests)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            key = self._key(state.number + 1, COMMIT)
            raise document.damaged(key, f"it does not fit the log: {error}") from error

    def _open(self) -> LogState:
        """The state by the last checkpoint and the commits that a listing shows after it.

        Where the hint is old and commits were deleted, the next number does not exist, as at the
        end of the log. The listing shows the checkpoint that the hint does not know. A directory,
        where a listing takes as long as the log, is listed only if the boundary says so, or if
        there is no hint.
        """
        problem = "it cannot be read"
        for tries in range(_OPEN_TRIES):
            try:
                base, commits = self._listed(use_hint=not tries)
                keys = [self._key(number, COMMIT) for number in commits or ()]
                state = base
                for each in map_on_threads(self._read_commit, keys, _READ_THREADS):
                    state = self._applied(state, each)
                state = self._follow(state)
                if commits is None:
                    state = self._followed_without_gap(state, base.number)
                # Read last: no commit above the checkpoint was deleted before this moment, so the
                # one that was not found does not exist.
                boundary = self.boundary()
                if boundary - 1 <= base.number:
                    self._checkpointed = base.number
                    return state
                problem = "the checkpoint above the boundary is missing"
            except (FileNotFoundError, DamagedMetadataError) as error:
                problem, boundary = str(error), self.boundary()
            if boundary >= GONE:
                return LogState(deleted=True)
            self._patience.wait(tries + 1)
        raise document.damaged(self.prefix.rstrip("/"), problem.removesuffix("."))

    def _listed(self, *, use_hint: bool) -> tuple[LogState, list[int] | None]:
        """The last checkpoint, and the numbers of commits after it, without a gap.

        The numbers are None if a hint replaces the listing.

        Raises:
            FileNotFoundError: the listing is not of one moment, or an object is missing.
            DamagedMetadataError: a checkpoint is damaged, and the commits before it are deleted.
        """
        hint = self.hint() if use_hint else -1
        if hint >= 0 and self.backend.lists_whole:
            return self._read_checkpoint(hint), None
        after = f"{self.prefix}{hint:020d}" if hint >= 0 else self.prefix
        commits, checkpoints = parse_listing(
            self.prefix,
            (info.key for info in self.backend.list_after(self.prefix, after)),
        )
        base, damage = self._last_sound(checkpoints)
        if damage is not None and use_hint:
            raise damage  # the next listing shows what stands before
        rest = [number for number in commits if number > base.number]
        for expected, number in enumerate(rest, base.number + 1):
            if number != expected:
                raise damage or FileNotFoundError(self._key(expected, COMMIT))
        if damage is not None and base.number + len(rest) < checkpoints[-1]:
            raise damage
        return base, rest

    def _last_sound(
        self, checkpoints: Sequence[int]
    ) -> tuple[LogState, DamagedMetadataError | None]:
        """The last checkpoint that can be read, or the empty state; and the damage after it."""
        damage = None
        for number in reversed(checkpoints):
            try:
                return self._read_checkpoint(number), damage
            except DamagedMetadataError as error:
                damage = damage or error
        return LogState(), damage

    def _read_commit(self, key: str) -> Commit:
        data = self.backend.get_ranges(key).whole
        return self._parse(key, data)[1]

    def _read_checkpoint(self, number: int) -> LogState:
        return self.read_checkpoint(number)[0]

    def read_checkpoint(self, number: int) -> tuple[LogState, str]:
        """The state of a checkpoint, and when its commit was written.

        Raises:
            FileNotFoundError: it was deleted.
            DamagedMetadataError: it is damaged.
        """
        key = self._key(number, CHECKPOINT)
        data = self.backend.get_ranges(key).whole
        fields = document.decode("checkpoint", data, key).fields
        try:
            state = state_from(fields, key, self.manifests)
            if state.number != number:
                raise ValueError(f"it has number {state.number}")
            return state, str(fields["written_at"])
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise document.damaged(key, str(error)) from error

    def last_written(self) -> str:
        """When the last commit was written; empty in an empty log."""
        number = self.state().number
        if number < 0:
            return ""
        return self._read_commit(self._key(number, COMMIT)).written_at

    def _parse(self, key: str, data: memoryview) -> tuple[dict[str, Any], Commit]:
        fields, frames_at = document.decode("commit", data, key)
        try:
            if key != self._key(fields["number"], COMMIT):
                raise ValueError(f"it has number {fields['number']}")
            return fields, commit_from(fields, key, frames_at)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise document.damaged(key, str(error)) from error

    def _checkpoint_if_due(self, state: LogState) -> None:
        if state.number - self._checkpointed < CHECKPOINT_INTERVAL:
            return
        # Neither is needed: the next writer does it.
        try:
            if moving.is_due(state):
                state = self._moved(state)
            self.checkpoint(state)
        except (OSError, StorageError) as error:
            _log.info("no checkpoint of %s was stored: %s", self.prefix, error)

    def _moved(self, state: LogState) -> LogState:
        """The state after a commit that moves slices into manifests, or without it."""
        found = moving.plan_move(state, self.manifests, self.backend, self.clock, self.name)

        def build(state: LogState) -> Draft | None:
            commit = found.commit(state, self.manifests, json_files.timestamp(self.clock))
            return None if commit is None else Draft(commit)

        return self._commit(build, str(uuid.uuid4()), checkpoint=False).state

    def checkpoint(self, state: LogState) -> None:
        """Store a state, and the hint that leads to it."""
        if state.fence:
            # The fence refuses data that was uploaded before: so no such job can be repeated.
            state = state.without_jobs(time_text(hour_start_us(state.fence) - self._ttl_us))
        fields = {**state_fields(state), "written_at": json_files.timestamp(self.clock)}
        data = document.encode("checkpoint", fields)
        self.backend.put(self._key(state.number, CHECKPOINT), data)
        self.backend.put(f"{self.prefix}_last", [json_files.dump({"number": state.number})])
        self._checkpointed = state.number

    def hint(self) -> int:
        """The number of the checkpoint that ``_last`` names; -1 if it names none."""
        data = read_object(self.backend, f"{self.prefix}_last")
        try:
            fields = {} if data is None else json_files.load(data, f"{self.prefix}_last")
        except DamagedMetadataError:
            return -1
        number = fields.get("number")
        return number if type(number) is int and number >= 0 else -1

    def boundary(self) -> int:
        """Commits below this number may have been deleted."""
        return self.read_boundary()[0]

    def read_boundary(self) -> tuple[int, str | None]:
        """The boundary, and its tag for ``replace_if``."""
        key = f"{self.prefix}boundary"
        try:
            found = self.backend.get_ranges(key)
        except FileNotFoundError:
            return 0, None
        number = json_files.load(bytes(found.whole), key).get("number")
        if type(number) is not int:
            raise document.damaged(key, f"number is {number!r}")
        return number, found.tag

    def _key(self, number: int, suffix: str) -> str:
        return f"{self.prefix}{number:020d}{suffix}"

    def _now(self) -> tuple[float, float]:
        return self.clock.monotonic(), self.clock.now_us() / 1e6

    def _is_old(self, seen: tuple[float, float], limit_s: float | None = None) -> bool:
        """Whether commits after those known then may be deleted by now, by either clock."""
        elapsed = [now - then for now, then in zip(self._now(), seen, strict=True)]
        longest = self._fresh_s if limit_s is None else limit_s
        return max(elapsed) > longest or min(elapsed) < -1
