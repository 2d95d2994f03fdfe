"""Every error the engine raises on purpose: one root, and classes that each have a stable ``code``.

A message names the thing, the value found, what was expected and what to do. The attributes hold
the same facts for programs; ``path`` is relative to the store's root.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class StorageError(Exception):
    """Base class of all storage errors."""

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
    """A topic or group name has characters that are not allowed, or clashes with another."""

    code = "NAME_INVALID"


class LayoutNotFoundError(StorageError):
    """The directory has no known layout."""

    code = "LAYOUT_NOT_FOUND"


class LayoutMismatchError(StorageError):
    """The directory has another layout than the one asked for, or files of two layouts."""

    code = "LAYOUT_MISMATCH"


class TopicNotFoundError(StorageError):
    """The topic does not exist, or was deleted meanwhile."""

    code = "TOPIC_NOT_FOUND"


class TopicExistsError(StorageError):
    """A topic with this name exists."""

    code = "TOPIC_EXISTS"


class PartitionNotFoundError(StorageError):
    """The topic has no partition with this number."""

    code = "PARTITION_NOT_FOUND"


class OffsetOutOfRangeError(StorageError):
    """The offset is outside the log of the partition, which is ``start`` to ``end``."""

    code = "OFFSET_OUT_OF_RANGE"

    def __init__(
        self, message: str, *, topic: str, partition: int, offset: int, start: int, end: int
    ) -> None:
        super().__init__(message, topic=topic, partition=partition, offset=offset)
        self.start = start
        self.end = end


class DataLossError(StorageError):
    """Records that a read was planned for have been removed since."""

    code = "DATA_LOSS"


class DamagedLogError(StorageError):
    """Durable bytes fail their check. They are neither deleted nor returned to readers."""

    code = "LOG_DAMAGED"


class BrokenFrameError(StorageError):
    """Bytes are not a complete, intact frame: a torn tail or damage, as the caller decides."""

    code = "FRAME_BROKEN"


class DamagedMetadataError(StorageError):
    """A metadata file is unreadable, fails its checksum or has wrong fields."""

    code = "METADATA_DAMAGED"


class IdentityError(StorageError):
    """The store's identity is missing, or a topic belongs to another store."""

    code = "IDENTITY_MISMATCH"


class InvalidRecordError(StorageError):
    """Records have a wrong type, shape or value."""

    code = "RECORD_INVALID"


class RecordTooLargeError(StorageError):
    """A record is larger than ``max_record_bytes``."""

    code = "RECORD_TOO_LARGE"


class UnsupportedColumnError(StorageError):
    """The layout cannot store a column that has values."""

    code = "COLUMN_UNSUPPORTED"


class InvalidSchemaError(StorageError):
    """A schema has a name, an id or a structure that is not allowed."""

    code = "SCHEMA_INVALID"


class SchemaMismatchError(StorageError):
    """Rows or columns do not fit the schema of the topic. Nothing was written."""

    code = "SCHEMA_MISMATCH"


@contextmanager
def mismatches_of(topic: str) -> Iterator[None]:
    """Name the topic in errors about columns, which the checks of columns do not know."""
    try:
        yield
    except (SchemaMismatchError, UnsupportedTypeError, InvalidSchemaError) as error:
        if error.topic is not None:
            raise
        raise type(error)(f"topic {topic!r}, {error}", topic=topic) from error


class UnsupportedTypeError(StorageError):
    """A column has a type whose values a topic cannot store."""

    code = "TYPE_UNSUPPORTED"


class InvalidPredicateError(StorageError):
    """A ``where`` cannot be read, or compares what cannot be compared."""

    code = "PREDICATE_INVALID"


class SegmentStateError(StorageError):
    """The state of a segment forbids the operation, such as an append to a sealed segment."""

    code = "SEGMENT_STATE"


class LockTimeoutError(StorageError):
    """Another process held a lock for longer than ``lock_timeout_ms``."""

    code = "LOCK_TIMEOUT"


class WriteFailedError(StorageError):
    """The operating system failed a write or a sync. Acknowledged records are safe."""

    code = "WRITE_FAILED"


class DiskFullError(WriteFailedError):
    """No disk space or quota is left. Readers see nothing of the failed call."""

    code = "DISK_FULL"


class CollectedError(StorageError):
    """Several steps of one operation failed, and the others were done; ``errors`` has them all."""

    code = "SEVERAL_FAILED"

    def __init__(self, message: str, errors: Sequence[BaseException] = (), **details: Any) -> None:
        super().__init__(message, **details)
        self.errors = tuple(errors)


class ReadFailedError(StorageError):
    """The operating system failed a read. This is never treated as the end of the log."""

    code = "READ_FAILED"


class RecoveryNeededError(StorageError):
    """The high watermark is unknown until a writer or ``repair`` recovers the topic."""

    code = "RECOVERY_NEEDED"


class InvalidCommitError(StorageError):
    """The staged parts of a commit do not fit together. Nothing was committed."""

    code = "COMMIT_INVALID"


class CommitUnknownError(StorageError):
    """A commit failed at or after its commit point: the next writer may still finish it."""

    code = "COMMIT_UNKNOWN"


class CommitPendingError(StorageError):
    """An interrupted commit is pending and must be finished first.

    It is one of ``transactions``, or one that names the topic and partition.
    """

    code = "COMMIT_PENDING"

    def __init__(self, message: str, transactions: Sequence[str] = (), **details: Any) -> None:
        super().__init__(message, **details)
        self.transactions = tuple(transactions)


class ForeignRecordsError(StorageError):
    """Another program appended where an interrupted commit must go on; nothing was changed."""

    code = "FOREIGN_RECORDS"


class ConversionError(StorageError):
    """The target of a conversion has other records than the source at the same offsets."""

    code = "CONVERSION_DIFFERS"


class UnsafeFileError(StorageError):
    """A symbolic link, device or other special file is in the place of a log file."""

    code = "UNSAFE_FILE"


class UnsafeFilesystemError(StorageError):
    """The file system of the store may not support locks."""

    code = "UNSAFE_FILESYSTEM"


class StoreSemanticsError(StorageError):
    """An object store does not keep a promise that commits depend on."""

    code = "STORE_SEMANTICS"


class NotWritableError(StorageError):
    """This user may not write to the store."""

    code = "NOT_WRITABLE"


class StoreClosedError(StorageError):
    """The store or handler was closed."""

    code = "STORE_CLOSED"


class StoppedError(StorageError):
    """The caller asked an operation to stop. ``Store`` returns a report instead of this error."""

    code = "STOPPED"


RECORD_ERRORS = (
    InvalidRecordError,
    RecordTooLargeError,
    SchemaMismatchError,
    UnsupportedColumnError,
)
"""Errors of single records: the log is unchanged, and other records can be stored."""
