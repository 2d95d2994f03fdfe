"""The handler of one topic-partition: it takes single records, writes batches, returns offsets.

Two locks. The *metadata* lock guards the queue and the state; it is held briefly and never across
I/O. The *I/O* lock is held around calls to the log. A thread that needs both takes the metadata
lock, releases it, then takes the I/O lock: a sealed batch has its place in the order, so nothing is
lost in between. Appends and reads need the metadata lock only, so they never wait for the disk.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from datetime import datetime
from socket import socket
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pyarrow as pa

from ..config import StoreConfig
from ..errors import (
    CollectedError,
    ConfigError,
    InvalidRecordError,
    StorageError,
    StoreClosedError,
)
from ..format.columns import READ_SCHEMA
from ..format.selection import SYSTEM_FIELDS
from ..layouts.registry import LAYOUTS
from ..lazy import LazyModule
from ..store.store import Store
from ..types import TopicPartitionHandler
from .batch_writer import PartitionWriter
from .futures import Batch, Row
from .write_queue import PLAIN_BYTES, Bytes, Headers, WriteQueue

if TYPE_CHECKING:
    from . import row_checks
    from .row_checks import CheckedRow
else:
    row_checks = LazyModule("storage_core.handlers.row_checks")

HandlerState = Literal["creating", "active", "rotating", "closed"]
_log = logging.getLogger("storage_core")


class ReadResult(NamedTuple):
    """Records as an Arrow table, and the offset to continue from."""

    records: pa.Table
    next_offset: int


class DiskHandler(WriteQueue, TopicPartitionHandler):
    """Writes and reads one topic-partition. Safe for several threads, not across a fork.

    A background thread writes the queued records: when ``disk_flush_batch_size`` records wait, when
    the first of them has waited ``linger_ms``, when a caller waits for a result, and on ``close``.
    After a failed write the handler accepts no records, because later ones would be out of order.
    Close the manager's handlers and get new ones; the log then recovers.
    """

    def __init__(
        self, store: Store, topic: str, partition: int, config: StoreConfig | None = None
    ) -> None:
        self._state: HandlerState = "creating"
        self._store = store
        self._rows = row_checks.RowChecks(store, topic) if store.topic(topic).is_typed else None
        self._writer = PartitionWriter(store, topic, partition, self._rows)
        largest = self._writer.log.config.max_record_bytes
        settings = (config or store.config).override({"max_record_bytes": largest})
        super().__init__(f"{topic}_{partition}", store.vfs, settings)
        if self._rows is not None:
            self._plain_bytes = -1  # no record may pass unchecked: all are refused
        self.topic = topic
        self.partition = partition
        self._io = threading.Lock()
        self._storable: set[tuple[bool, ...]] = set()
        self._checks_each = not LAYOUTS[store.layout].stores_all
        self._closed = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"cursus-flush-{self.name}", daemon=True
        )
        self._state = "active"
        self._thread.start()

    @property
    def state(self) -> HandlerState:
        """What the handler does now. A write rolls a full segment without changing the state."""
        return self._state

    @property
    def base_name(self) -> str:
        """The common prefix of the paths of the log files."""
        return f"{self._store.path}/{self._writer.log.base_name}"

    @property
    def segment_size(self) -> int:
        """Maximum size of a segment in bytes."""
        return self._writer.log.config.segment_bytes

    @property
    def current_segment(self) -> int:
        """Base offset of the active segment; in some layouts its ordinal."""
        return self._writer.active.number

    @property
    def current_offset(self) -> int:
        """Bytes written to the active segment."""
        return self._writer.active.size

    def append_row(self, row: Mapping[str, Any]) -> Future[int]:
        """Queue one row of a typed topic; the future gives its offset once it is durable.

        Waits for room and raises as ``append``.

        Args:
            row: Values by column name. A column that is missing is null. Beside what JSON has
                (see ``cursus append --json``) a value may be a float, Decimal, bytes, date,
                datetime (without zone: UTC) or timedelta, if that is the type of its column.

        Raises:
            SchemaMismatchError: a value does not fit its column. Only this row is refused.
            InvalidRecordError: the row's key belongs to another partition, where compaction would
                look for it. ``DiskManager.append_row`` finds the partition.
        """
        if self._rows is None:
            raise InvalidRecordError(
                f"topic {self.topic!r} is a records topic: it takes keys and values. Use append.",
                topic=self.topic,
            )
        checked = self._rows.check(row)
        partition = self._rows.partition_of(checked, self._store.topic(self.topic))
        if partition is not None and partition != self.partition:
            raise InvalidRecordError(
                f"{self.topic}-{self.partition}: the key of the row belongs to partition "
                f"{partition}. Use that partition's handler, or append_row of the manager.",
                topic=self.topic,
                partition=self.partition,
            )
        return self.append_checked(checked)

    def append_checked(self, row: CheckedRow) -> Future[int]:
        """``append_row`` inside this package, for a row that is checked and routed."""
        if self._rows is None or not isinstance(row, row_checks.CheckedRow):
            # It would fail in the writer's thread, and with it the records of others.
            raise InvalidRecordError(
                f"row must be a checked row of a typed topic, got {type(row).__name__}. Use "
                "append_row.",
                topic=self.topic,
            )
        return self._append_row((row, None, None, None))

    def write_direct(
        self,
        value: Bytes | None,
        key: Bytes | None = None,
        *,
        headers: Headers | None = None,
        timestamp: int | datetime | None = None,
    ) -> int:
        """Write one record in this thread, after all queued ones; it is durable on return."""
        row = self._checked((value, key, headers, timestamp))
        return self._append_now(row, sync=True).result()

    def flush(self) -> None:
        """Make every record durable that was accepted so far.

        Raises:
            WriteFailedError: this write or an earlier one failed.
        """
        self._drain(sync=True)
        if self._failure is not None:
            raise self._refusal()

    def read_messages(
        self, offset: int, max_messages: int, max_bytes: int | None = None
    ) -> ReadResult:
        """Read durable records from ``offset`` on; fewer at the end of the log.

        Rows of a typed topic have their offset in ``_offset``.

        Raises:
            OffsetOutOfRangeError: ``offset`` is neither in the log nor its end.
        """
        with self._meta:
            self._require_not_closed()
        columns, schema, name = None, READ_SCHEMA, "offset"
        found = None if self._rows is None else self._store.schema(self.topic)
        if found is not None:
            name = "_offset"
            schema = pa.schema([SYSTEM_FIELDS[name], *found.arrow])
            columns = schema.names
        batches = list(
            self._store.read(
                self.topic,
                self.partition,
                start=offset,
                max_records=max_messages,
                max_bytes=max_bytes,
                columns=columns,
            )
        )
        next_offset = offset
        if batches:
            next_offset = batches[-1].column(name)[-1].as_py() + 1
            schema = batches[-1].schema
        return ReadResult(pa.Table.from_batches(batches, schema), next_offset)

    def rotate_segment(self) -> None:
        """Write the queued records and seal the segment; the next record opens a new one.

        Raises:
            CollectedError: some of these steps failed; it contains all their errors.
        """
        with self._meta:
            self._require_not_closed()
            self._state = "rotating"
        errors: list[BaseException] = []
        try:
            self._drain(sync=True)
            if self._failure is not None:
                errors.append(self._failure)
            with self._io:
                try:
                    self._writer.roll()
                except StorageError as error:
                    errors.append(error)
                self._note_failure()
        finally:
            with self._meta:
                self._state = "closed" if self._closing else "active"
        if errors:
            raise CollectedError(
                f"{self.name}: rotating failed: " + "; ".join(map(str, errors)),
                errors,
                topic=self.topic,
                partition=self.partition,
            ) from errors[0]

    def send_current_segment(self, sock: socket) -> int:
        """Send the current segment over a socket; return how many bytes.

        Everything sent is durable, except under ``fsync=none``. Under ``fsync=interval`` the
        accepted records are synced first.

        Raises:
            WriteFailedError: that failed, or an earlier write did.
        """
        with self._meta:
            self._require_not_closed()
        if not LAYOUTS[self._store.layout].rolls:
            raise ConfigError(
                f"layout {self._store.layout} has no current segment: every append is an object of "
                "its own. Read the records and send them."
            )
        held_back = self._writer.log.config.syncs_at_intervals
        if held_back:
            self.flush()
        active = self._writer.active
        if held_back:
            # Records written between the two calls, or not by this handler, may not be synced.
            self._store.flush_partition(self.topic, self.partition)
        if not active.size:
            return 0
        fd = self._vfs.open(active.path, "read")
        try:
            return self._vfs.send(fd, sock, 0, active.size)
        finally:
            self._vfs.close(fd)

    def close(self) -> None:
        """Write the queued records and stop the thread. Safe to call twice, from several threads.

        Raises:
            WriteFailedError: the queued records could not be written; their futures fail too.
        """
        with self._meta:
            first = not self._closing
            sound = self._failure is None
            self._closing = True
            self._limit = 0
            self._work.notify()
            self._room.notify_all()
        inside = threading.current_thread() is self._thread
        if not first:
            if not inside:
                self._closed.wait()
            return
        try:
            if not inside:
                self._thread.join()
            self._drain(sync=True)
        finally:
            self._state = "closed"
            self._closed.set()
        if sound and self._failure is not None:
            raise self._refusal()

    def __enter__(self) -> DiskHandler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        while self._wait_for_work(self._writer.sync_due):
            try:
                self._drain()
            except BaseException as error:
                # After a bug in this package, or a callback that raised SystemExit, no caller may
                # wait forever.
                _log.exception("%s: the flush thread failed", self.name)
                if isinstance(error, Exception):
                    self._writer.failure = self._writer.failure or error
                    self._note_failure()

    def _drain(self, *, sync: bool = False) -> None:
        with self._meta:
            self._seal()
        decided: list[Batch] = []
        try:
            with self._io:
                batches = []
                while self._sealed:
                    batches.append(self._sealed.popleft())
                self._writer.write(batches, decided)
                due = self._writer.sync_due
                if sync or (due is not None and self._vfs.monotonic() >= due):
                    self._writer.sync(decided)
        finally:
            self._note_failure()
            with ExitStack() as stack:
                # Last in, first out; a callback that raises does not stop the others.
                for batch in reversed(decided):
                    stack.callback(batch.announce)

    def _note_failure(self) -> None:
        if self._writer.failure is not None and self._failure is None:
            self._failure = self._writer.failure
            self._limit = 0

    def _hurry(self, batch: Batch) -> None:
        if threading.current_thread() is self._thread:
            # A callback waits for a record, and this is the thread that would write it.
            self._drain(sync=True)
        else:
            super()._hurry(batch)

    def _checked(self, row: tuple[object, object, Headers | None, object]) -> Row:
        if self._rows is not None:
            raise InvalidRecordError(
                f"topic {self.topic!r} is a typed topic: it takes rows, not keys and values. Use "
                "append_row.",
                topic=self.topic,
            )
        checked = super()._checked(row)
        value, key, headers, _ = checked
        assert not isinstance(value, tuple)
        used = tuple(item is not None for item in checked)
        unlike = headers is not None or len(value or b"") + len(key or b"") > PLAIN_BYTES
        # In the write, an invalid record would fail the other records of its batch too.
        if used not in self._storable or (unlike and self._checks_each):
            self._writer.check(checked)
            self._storable.add(used)
        return checked

    def _refusal(self) -> StorageError:
        return self._writer.refusal()

    def _require_not_closed(self) -> None:
        if self._state == "closed":
            raise StoreClosedError(f"the handler {self.name} was closed. Get a new one.")
