"""What a failed system call or a broken frame means, in words a person can act on."""

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
)

OUT_OF_HANDLES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
# After these nothing is unknown: the call simply did not happen, and a later one may succeed.
_HARMLESS = (errno.ENOSPC, errno.EDQUOT, *OUT_OF_HANDLES)


def is_harmless(error: OSError) -> bool:
    """Whether a writer may go on after this error (a failed sync never is)."""
    return error.errno in _HARMLESS


def write_failure(
    what: str, error: OSError, topic: str | None = None, partition: int | None = None
) -> WriteFailedError:
    """The typed error for a write that the system refused."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    kind = DiskFullError if full else WriteFailedError
    advice = "Free some space and try again." if full else "Check the disk and the permissions."
    return kind(
        f"{what} failed: {error}. {advice}",
        topic=topic,
        partition=partition,
        path=error.filename,
    )


@contextmanager
def typed_write_errors(what: str, topic: str | None = None) -> Iterator[None]:
    """Turn failed calls while metadata is changed into errors that say what was being done."""
    try:
        yield
    except OSError as error:
        raise write_failure(what, error, topic=topic) from error


def closed_for_writing(topic: str, partition: int, cause: OSError) -> WriteFailedError:
    """The typed error for appends after a failure that left unknown bytes behind."""
    return WriteFailedError(
        f"{topic}-{partition} takes no appends since a write failed: {cause}. "
        "Check the disk, then open the store again: it recovers by itself.",
        topic=topic,
        partition=partition,
    )


def commit_pending(topic: str, partition: int) -> CommitPendingError:
    """The typed error for a partition that a dead committer's intent names."""
    return CommitPendingError(
        f"{topic}-{partition}: a commit of somebody who died is not finished. The next writer "
        "finishes it, or run repair.",
        topic=topic,
        partition=partition,
    )


def watermark_lost(topic: str) -> RecoveryNeededError:
    """The typed error for a visible end that nobody can tell."""
    return RecoveryNeededError(
        f"the watermark of topic {topic!r} is missing or damaged, so its visible end is unknown. "
        "The next append recovers it, or run repair.",
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
            f"reading the metadata of {what} failed: {error}. Check the disk.",
            topic=topic,
            path=error.filename,
        ) from error


@contextmanager
def typed_read_errors(topic: str, partition: int, path: str) -> Iterator[None]:
    """Turn broken frames and failed reads into errors that name partition, file and place."""
    try:
        yield
    except BrokenFrameError as error:
        path = error.path or path
        raise DamagedLogError(
            f"{topic}-{partition}: {path} is damaged at byte {error.position}, offset "
            f"{error.offset}: {error}. Records before that offset are intact; restore the file "
            "from a copy, or read from behind the damage.",
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
            "This is not the end of the log; check the disk.",
            topic=topic,
            partition=partition,
            path=path,
        ) from error
