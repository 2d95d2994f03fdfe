"""Typed errors, with advice, for failed system calls and broken frames."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import (
    BrokenFrameError,
    CommitPendingError,
    DamagedLogError,
    DiskFullError,
    ReadFailedError,
    RecoveryNeededError,
    SegmentStateError,
    WriteFailedError,
    mismatches_of,
)

OUT_OF_HANDLES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
# The call had no effect, and a later one may succeed.
_HARMLESS = (errno.ENOSPC, errno.EDQUOT, *OUT_OF_HANDLES)


def is_harmless(error: OSError) -> bool:
    """Whether a writer may continue after this error; never after a failed sync."""
    return error.errno in _HARMLESS


def _cause(error: OSError) -> str:
    """What a person should look at."""
    if isinstance(error, ConnectionError | TimeoutError):
        return "the network, the endpoint and the credentials of the object store"
    return "the disk and the permissions"


def write_failure(
    what: str, error: OSError, topic: str | None = None, partition: int | None = None
) -> WriteFailedError:
    """The typed error for a failed write."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    kind = DiskFullError if full else WriteFailedError
    advice = "Free disk space and try again." if full else f"Check {_cause(error)}."
    return kind(
        f"{what} failed: {error}. {advice}",
        topic=topic,
        partition=partition,
        path=error.filename,
    )


@contextmanager
def typed_write_errors(what: str, topic: str | None = None) -> Iterator[None]:
    """Turn failed calls into errors that say which change failed."""
    try:
        yield
    except OSError as error:
        raise write_failure(what, error, topic=topic) from error


def closed_for_writing(topic: str, partition: int, cause: OSError) -> WriteFailedError:
    """The typed error for appends after a failure that left unknown bytes in the log."""
    return WriteFailedError(
        f"{topic}-{partition} is closed for writing, because a write failed: {cause}. "
        "Check the disk, then open the store again: the next append recovers the partition.",
        topic=topic,
        partition=partition,
    )


def commit_pending(topic: str, partition: int) -> CommitPendingError:
    """The typed error for a partition that the intent of an interrupted commit names."""
    return CommitPendingError(
        f"{topic}-{partition}: an interrupted commit is pending. The next writer finishes it, or "
        "run repair.",
        topic=topic,
        partition=partition,
    )


def watermark_lost(topic: str) -> RecoveryNeededError:
    """The typed error for a topic whose high watermark is lost."""
    return RecoveryNeededError(
        f"the high watermark of topic {topic!r} is missing or damaged, so the topic cannot be "
        "read. The next append rebuilds it, or run repair.",
        topic=topic,
        path=f"topics/{topic}/watermark",
    )


@contextmanager
def typed_metadata_errors(topic: str | None = None) -> Iterator[None]:
    """Turn failed reads of a topic's metadata into a typed error."""
    try:
        yield
    except OSError as error:
        what = "the store" if topic is None else f"topic {topic!r}"
        raise ReadFailedError(
            f"reading the metadata of {what} failed: {error}. Check {_cause(error)}.",
            topic=topic,
            path=error.filename,
        ) from error


@contextmanager
def typed_read_errors(topic: str, partition: int, path: str) -> Iterator[None]:
    """Turn broken frames and failed reads into errors that name partition, file and position.

    Errors about values of a column get the name of the topic.

    An error without a position is not about bytes of a file, so its own text names the file.
    """
    try:
        with mismatches_of(topic):
            yield
    except BrokenFrameError as error:
        path = error.path or path
        raise DamagedLogError(
            f"{topic}-{partition}: {error}."
            if error.position is None
            else f"{topic}-{partition}: {path} is damaged at byte {error.position}, offset "
            f"{error.offset}: {error}. Records before that offset are intact; restore the file "
            "from a copy, or read from a later offset. In a native store cursus skip gives up only "
            "the damaged records.",
            topic=topic,
            partition=partition,
            path=path,
            position=error.position,
            offset=error.offset,
        ) from error
    except SegmentStateError as error:
        raise DamagedLogError(
            f"{topic}-{partition}: {error} Restore the file from a copy.",
            topic=topic,
            partition=partition,
            path=path,
            position=0,
        ) from error
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ReadFailedError(
            f"{topic}-{partition}: reading {path} failed: {error}. "
            f"This is not the end of the log; check {_cause(error)}.",
            topic=topic,
            partition=partition,
            path=path,
        ) from error
