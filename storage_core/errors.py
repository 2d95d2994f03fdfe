"""Every error the engine raises on purpose: one root, typed leaves, each with a stable ``code``.

Messages name the thing, the value found, what was expected and what to do. The attributes carry
the same facts for programs: ``path`` is relative to the store's root.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class StorageError(Exception):
    """Root of all storage errors."""

    code = "STORAGE"

    def __init__(
        self,
        message: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        path: str | None = None,
        position: int | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.path = path
        self.position = position
        self.offset = offset


class ConfigError(StorageError):
    """A setting is unknown, of the wrong type or out of range."""

    code = "CONFIG_INVALID"


class InvalidNameError(StorageError):
    """A topic or group name is not in the whitelist, or clashes with an existing one."""

    code = "NAME_INVALID"


class LayoutNotFoundError(StorageError):
    """The directory is not a log directory of any known layout."""

    code = "LAYOUT_NOT_FOUND"


class LayoutMismatchError(StorageError):
    """The directory holds another layout than the one asked for, or a mixture."""

    code = "LAYOUT_MISMATCH"


class TopicNotFoundError(StorageError):
    """The topic does not exist, or was deleted meanwhile."""

    code = "TOPIC_NOT_FOUND"


class TopicExistsError(StorageError):
    """A topic of this name exists already."""

    code = "TOPIC_EXISTS"


class PartitionNotFoundError(StorageError):
    """The topic has no partition of this number."""

    code = "PARTITION_NOT_FOUND"


class OffsetOutOfRangeError(StorageError):
    """The offset lies outside what the partition holds; ``start`` and ``end`` give the bounds."""

    code = "OFFSET_OUT_OF_RANGE"

    def __init__(
        self, message: str, *, topic: str, partition: int, offset: int, start: int, end: int
    ) -> None:
        super().__init__(message, topic=topic, partition=partition, offset=offset)
        self.start = start
        self.end = end


class DataLossError(StorageError):
    """Records that were there when a read was planned have been removed since."""

    code = "DATA_LOSS"


class DamagedLogError(StorageError):
    """Bytes that were once durable no longer check; nothing is deleted, nothing is served."""

    code = "LOG_DAMAGED"


class BrokenFrameError(StorageError):
    """Bytes are not a whole, sound frame; who reads them decides between torn tail and damage."""

    code = "FRAME_BROKEN"


class DamagedMetadataError(StorageError):
    """A metadata file is unreadable, fails its checksum or breaks its schema."""

    code = "METADATA_DAMAGED"


class IdentityError(StorageError):
    """The store's identity is missing or belongs to another store."""

    code = "IDENTITY_MISMATCH"


class InvalidRecordError(StorageError):
    """Records given to an append have the wrong type, shape or values."""

    code = "RECORD_INVALID"


class RecordTooLargeError(StorageError):
    """A record is larger than ``max_record_bytes``."""

    code = "RECORD_TOO_LARGE"


class UnsupportedColumnError(StorageError):
    """The layout has no place for a column that carries values."""

    code = "COLUMN_UNSUPPORTED"


class SegmentStateError(StorageError):
    """A segment is asked for what its state forbids, such as appending to a sealed one."""

    code = "SEGMENT_STATE"


class LockTimeoutError(StorageError):
    """Another process kept a lock for longer than ``lock_timeout_ms``."""

    code = "LOCK_TIMEOUT"


class WriteFailedError(StorageError):
    """The operating system refused a write or a sync; what was acknowledged before is safe."""

    code = "WRITE_FAILED"


class DiskFullError(WriteFailedError):
    """No space or quota is left; nothing of the failed call is visible."""

    code = "DISK_FULL"


class CollectedError(StorageError):
    """Steps of one operation failed, and it went on to the end; ``errors`` holds each failure."""

    code = "SEVERAL_FAILED"

    def __init__(self, message: str, errors: Sequence[BaseException] = (), **details: Any) -> None:
        super().__init__(message, **details)
        self.errors = tuple(errors)


class ReadFailedError(StorageError):
    """The operating system failed a read; this is never taken for the end of the log."""

    code = "READ_FAILED"


class RecoveryNeededError(StorageError):
    """The visible end is unknown until a writer or ``repair`` recovers the topic."""

    code = "RECOVERY_NEEDED"


class InvalidCommitError(StorageError):
    """A commit message names no staged file of its job; nothing was committed."""

    code = "COMMIT_INVALID"


class CommitUnknownError(StorageError):
    """A commit failed at or behind its commit point: it may be rolled forward by anybody."""

    code = "COMMIT_UNKNOWN"


class CommitPendingError(StorageError):
    """A decided commit of somebody who died must be finished first.

    It is one of ``transactions``, or one that names the topic and partition.
    """

    code = "COMMIT_PENDING"

    def __init__(self, message: str, transactions: Sequence[str] = (), **details: Any) -> None:
        super().__init__(message, **details)
        self.transactions = tuple(transactions)


class ConversionError(StorageError):
    """A conversion's target holds something else than its source at the same place."""

    code = "CONVERSION_DIFFERS"


class UnsafeFileError(StorageError):
    """A symbolic link, device or other non-regular file stands where a log file should."""

    code = "UNSAFE_FILE"


class UnsafeFilesystemError(StorageError):
    """Locks cannot be trusted on the file system that holds the store."""

    code = "UNSAFE_FILESYSTEM"


class NotWritableError(StorageError):
    """The store cannot be written by this user."""

    code = "NOT_WRITABLE"


class StoreClosedError(StorageError):
    """The store or handler was closed."""

    code = "STORE_CLOSED"


class StoppedError(StorageError):
    """Somebody asked an operation to stop. What was done until then is reported instead."""

    code = "STOPPED"


RECORD_ERRORS = (InvalidRecordError, RecordTooLargeError, UnsupportedColumnError)
"""Only these records cannot be stored; the log is as it was."""
