"""Appending to a broker's directory, while the broker is stopped, what the broker itself accepts.

These layouts have no checksum, no high watermark and (most) no transactions, so the promise is
smaller than the native one: whole records are durable and visible on return, and the next append
cuts a torn record that a crash left. Of the broker's other files an append changes only a cursus
``.hwm``: it is raised, because it would hide the new records.

With ``fsync=none`` an append syncs nothing, and says so in the lock file. The next writer that
syncs, and every commit, first syncs all files of the partition: a power cut must not take earlier
records and leave later ones, whose offsets would change in some layouts. ``interval`` syncs every
append, because nothing hides the records until a later sync.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from ..commit.append_staged import read_part
from ..commit.intents import PartitionIntent
from ..config import StoreConfig
from ..errors import ForeignRecordsError, UnsupportedColumnError, WriteFailedError
from ..format.columns import Columns
from ..io.durable import write_all
from ..io.io_errors import closed_for_writing, is_harmless, write_failure
from ..io.locks import ensure_lock_file, locked
from ..layouts.broker_names import STATE_DIRECTORY
from ..log.write_barrier import WriteBarrier
from ..types import ActiveFile, OffsetRange
from .files import RowFiles, Target, Written
from .layout import RowPartition
from .segments import LAST_BYTES, RowSegments

# What a lock file says of a partition; it begins with the place of a process id.
_UNSYNCED = bytes(8) + b"unsynced"


class RowLog:
    """The writing side of one partition. Safe for several threads and processes of ours."""

    def __init__(
        self,
        of: RowPartition,
        config: StoreConfig,
        segments: RowSegments,
        barrier: WriteBarrier,
        require_topic: Callable[[], None],
    ) -> None:
        self._of = of
        self._vfs = of.vfs
        self._barrier = barrier
        self._require_topic = require_topic
        self._files = RowFiles(of, config.segment_bytes, segments)
        self._lock_path = f"{STATE_DIRECTORY}/locks/{of.name}"
        self._lock = threading.Lock()
        self._poison: OSError | None = None
        self._target = Target("", 0, 0, 0, 0)
        self.config = config

    @property
    def base_name(self) -> str:
        """What the names of the partition's log files begin with."""
        name = self._of.file_name(0).removesuffix(".log").rstrip("0")
        return f"{self._of.directory()}/{name.removesuffix('_segment_')}"

    @property
    def active(self) -> ActiveFile:
        """The file appends go to, as of the last time the lock was held."""
        return ActiveFile(self._target.number, self._target.size, self._target.path)

    @property
    def end_offset(self) -> int:
        """Next offset, as of the last time the lock was held."""
        return self._target.offset

    @property
    def recovery_point(self) -> int:
        """Offset up to which all records are known to be durable."""
        return 0 if self.config.syncs_never else self._target.offset

    @property
    def cut_bytes(self) -> int:
        """Bytes of torn records cut so far."""
        return self._files.cut_bytes

    def check_storable(self, columns: Columns) -> None:
        """Raise for records that an append would refuse, whatever the log holds."""
        self._require_codec()
        self._files.check_storable(columns)

    def append(self, columns: Columns) -> OffsetRange:
        """Append records; visible on return, and durable unless the policy is ``fsync=none``.

        Raises:
            UnsupportedColumnError: a column has values that the layout cannot store.
            WriteFailedError: what is visible of this call, if anything, is whole records.
        """
        self._files.check(columns)
        with self.exclusive():
            first = self._target.offset
            if columns.offsets is not None and len(columns.offsets):
                first = int(columns.offsets[0])  # an empty log begins where its records say
            synced = not self.config.syncs_never
            self._target = self._files.append(self._target, columns, sync=synced)
            return OffsetRange(first, first + columns.count)

    def recovered_end(self) -> int:
        """Next offset, with torn records cut."""
        with self.exclusive():
            return self._target.offset

    def sync(self) -> None:
        """Make all records durable, whatever the policy. Only inside ``exclusive``."""
        if self.config.syncs_never:
            self._files.sync_all(self._target)

    def fingerprint(self) -> bytes:
        """The last bytes of the log. A broker's files have no identity: these stand for it."""
        return self._last_bytes(self._target.path, self._target.size)

    def matches(self, intent: PartitionIntent) -> bool | None:
        """Whether the log still has what a commit found; None if there is nothing to compare with.

        If the broker deletes and recreates a topic, the topic keeps its name, and for us its uuid.
        Finishing an interrupted commit cuts the log to where the commit began, so the bytes there
        are compared first.
        """
        files = {file.number: f"{self._of.directory()}/{file.name}" for file in self._of.files()}
        if intent.before:
            path = files.get(intent.segment)
            return path is not None and (
                self._last_bytes(path, intent.position).hex() == intent.before
            )
        if intent.position:  # of an earlier release, which kept no bytes
            return None
        # The log was empty. Whoever wrote what is there now, ``require_own`` cuts none of it.
        return True if self.written(intent).records else None

    def _last_bytes(self, path: str, position: int) -> bytes:
        start = max(0, position - LAST_BYTES)
        fd = self._vfs.open(path, "read")
        try:
            return self._vfs.pread(fd, position - start, start)
        finally:
            self._vfs.close(fd)

    def require_own(self, intent: PartitionIntent) -> None:
        """Refuse to go on where another program wrote. Only inside ``exclusive``.

        Raises:
            ForeignRecordsError: bytes after the commit's position are not the commit's own.
        """
        found = self.written(intent)
        if found.path is not None:
            raise ForeignRecordsError(
                f"{self._of.topic}-{self._of.partition}: {found.path} has records from byte "
                f"{found.position} on that another program appended while a commit was "
                "interrupted. Nothing was changed. `cursus pending` shows the commit; with "
                "--finish its records are appended after them, with --give-up it is dropped.",
                topic=self._of.topic,
                partition=self._of.partition,
                path=found.path,
                position=found.position,
            )

    def written(self, intent: PartitionIntent) -> Written:
        """What stands in the log of a commit's records. Only inside ``exclusive``."""
        place = (intent.segment, intent.position)
        return self._files.written(*place, self._staged(intent), intent.start)

    def rebased(self, intent: PartitionIntent) -> PartitionIntent:
        """The rest of a commit, to be appended after the records of another program.

        Raises:
            UnsupportedColumnError: the records belong to a broker's transaction, which cannot be
                continued later.
        """
        found = self.written(intent)
        if found.path is None:
            return intent
        if any(map(self._files.has_transactions, self._staged(intent))):
            raise UnsupportedColumnError(
                f"{intent.topic}-{intent.partition}: records with a txn_id cannot be appended in "
                "two parts. Give the commit up with --give-up, and write its records again.",
                topic=intent.topic,
                partition=intent.partition,
            )
        self._find_target()
        return replace(
            intent,
            start=self._target.offset,
            segment=self._target.number,
            position=self._target.size,
            before=self.fingerprint().hex(),
            skip=intent.skip + found.records,
        )

    def append_staged(self, intent: PartitionIntent) -> None:
        """Append staged parts, from where the commit found the log. Only inside ``exclusive``.

        Raises:
            ForeignRecordsError: another program appended there. Nothing was changed.
        """
        self.require_own(intent)
        self._files.rewind(intent.segment, intent.position)
        self._target = self._files.target()
        for columns in self._staged(intent):
            self._files.check(columns)
            self._target = self._files.append(self._target, columns, sync=True)

    def _staged(self, intent: PartitionIntent) -> Iterator[Columns]:
        skip = intent.skip
        for part in intent.parts:
            for frame in read_part(self._vfs, part):
                columns = frame.columns()
                if skip < columns.count:
                    yield columns.slice(skip, columns.count) if skip else columns
                skip = max(0, skip - columns.count)

    def flush(self) -> None:
        """Nothing waits: an append syncs, or with ``fsync=none`` nothing does."""

    def roll(self) -> bool:
        """Start a new segment file; False if the last one is empty."""
        with self.exclusive():
            if not self._target.size:
                return False
            self._target = self._files.next_file(self._target)
            return True

    def close(self) -> None:
        """Nothing is held open."""

    @contextmanager
    def exclusive(self, *, past_barrier: bool = False) -> Iterator[None]:
        """Hold the partition against our other writers, its last file cut to whole records.

        ``past_barrier`` an interrupted commit's own rest is left for ``append_staged`` to rewind.
        """
        self._require_codec()
        with self._lock:
            if self._poison is not None:
                raise closed_for_writing(self._of.topic, self._of.partition, self._poison)
            try:
                with self._locked() as fd:
                    # A writer that waited while the topic was deleted must not recreate its files.
                    self._require_topic()
                    if not past_barrier:
                        self._barrier.require_none_pending(self._of.topic, self._of.partition)
                        self._find_target()
                        self._note_policy(fd)
                    yield
            except OSError as error:
                if not is_harmless(error):
                    self._poison = error
                raise write_failure(
                    f"{self._of.name}: writing",
                    error,
                    topic=self._of.topic,
                    partition=self._of.partition,
                ) from error

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep our other writers out without reading the log: it is about to be deleted."""
        with self._lock, self._locked():
            yield

    @contextmanager
    def _locked(self) -> Iterator[int]:
        ensure_lock_file(self._vfs, self._lock_path)
        with locked(self._vfs, self._lock_path, self.config.lock_timeout_ms) as fd:
            yield fd

    def _note_policy(self, fd: int) -> None:
        """Say in the lock file that records are unsynced, or sync those that a writer left so.

        Not synced: what a power cut takes with it, it has also made true.
        """
        unsynced = self._vfs.pread(fd, len(_UNSYNCED), 0) == _UNSYNCED
        if self.config.syncs_never and not unsynced:
            write_all(self._vfs, fd, [_UNSYNCED], 0)
        elif unsynced and not self.config.syncs_never:
            self._files.sync_all(self._target)
            self._vfs.truncate(fd, 0)

    def _find_target(self) -> None:
        """Find where the log ends, and sync it: its last writer may have crashed before the sync.

        Our own last append was synced. Without this, a power cut could take a crashed writer's
        records and leave those that were appended after them to another file.
        """
        found = self._files.target()
        if found != self._target:
            self._files.sync(found)
        self._target = found

    def _require_codec(self) -> None:
        if self._of.layout.encode is None:
            raise WriteFailedError(
                "ordinal files of this era are only read. Open them with layout='cursus' to append "
                "raw payloads, or convert them."
            )
