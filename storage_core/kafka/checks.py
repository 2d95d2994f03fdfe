"""Every problem of a Kafka partition, found without changing it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..errors import StorageError
from ..format.selection import Selection
from ..io.io_errors import typed_read_errors
from ..segments.listing import Listing
from ..types import Problem
from .checkpoints import PartitionFiles
from .segments import KafkaSegments

_ALL = Selection(("key", "value", "headers"))


def verify(of: PartitionFiles, segments: KafkaSegments, base: int, listing: Listing) -> None:
    """Read a segment: every checksum and every field, up to the end for readers.

    Raises:
        StorageError: a batch is not sound, or offsets are missing.
    """
    following = listing.following(base)
    end = segments.high_watermark() if following is None else following
    with typed_read_errors(of.topic, of.partition, listing.path(base)):
        segment = segments.open(base, listing)
        try:
            for _ in segment.frames(base, end, _ALL, scan=True):
                pass
        finally:
            segment.close()


def partition_problems(of: PartitionFiles, segments: KafkaSegments) -> Iterator[Problem]:
    """What is wrong with a partition."""
    found = False
    try:
        listing = segments.listing()
        for base in listing.bases:
            try:
                verify(of, segments, base, listing)
            except FileNotFoundError:
                continue  # retention has removed it since it was listed
            except StorageError as error:
                found = True
                yield _of(error, of)
        if not found:
            segments.raise_damage()
    except StorageError as error:
        yield _of(error, of)


def _of(error: StorageError, of: PartitionFiles) -> Problem:
    return replace(Problem.from_error(error), topic=of.topic, partition=of.partition)
