"""Finding every problem of a store of objects without changing it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from ...commit.staging import frame_checksum
from ...errors import (
    BrokenFrameError,
    DamagedMetadataError,
    StorageError,
    TopicNotFoundError,
)
from ...format.frame_scan import StoredFrame, walk_frames
from ...io.io_errors import typed_metadata_errors, typed_read_errors
from ...types import Problem
from ..backend import ObjectBackend
from ..catalog import ObjectCatalog
from ..collector import log_ids
from ..commit_log import CommitLog
from ..document import damaged
from ..groups import ObjectGroups
from ..object_source import ObjectSource
from ..patience import PatientBackend
from ..slices import Slice, parse_path
from ..state import PartitionState

_MOST_LOGS = 1 << 62


def store_problems(
    backend: PatientBackend, catalog: ObjectCatalog, groups: ObjectGroups
) -> Iterator[Problem]:
    """Every problem of topics, logs, records and groups."""
    with typed_metadata_errors():
        yield from _topic_problems(backend, catalog)
        yield from _nameless_logs(backend, catalog)
        for group in groups.names():
            try:
                groups.read(group)
            except StorageError as error:
                yield Problem.from_error(error)


def _topic_problems(backend: ObjectBackend, catalog: ObjectCatalog) -> Iterator[Problem]:
    for topic in catalog.names():
        try:
            _, state = catalog.get(topic)
        except TopicNotFoundError:  # deleted meanwhile
            continue
        except StorageError as error:
            yield Problem.from_error(error)
            continue
        for number, partition in enumerate(state.partitions):
            try:
                yield from _partition_problems(backend, topic, number, partition)
            except (StorageError, FileNotFoundError) as error:  # of a manifest
                if isinstance(error, FileNotFoundError):
                    error = damaged(error.filename, "the manifest is missing")
                yield replace(Problem.from_error(error), topic=topic, partition=number)


def _nameless_logs(backend: PatientBackend, catalog: ObjectCatalog) -> Iterator[Problem]:
    """Logs with records whose topic has lost its name: nobody else would miss them."""
    logs = [catalog.open_log(each) for each in log_ids(backend, _MOST_LOGS) or ()]
    named = _named_logs(catalog)
    rest = [log for log in logs if log.name not in named and _has_records(log)]
    # Again, in this order: a topic may have been made or deleted meanwhile.
    named = _named_logs(catalog) if rest else named
    for log in rest:
        if log.name not in named and _has_records(log):
            yield Problem(
                "error",
                DamagedMetadataError.code,
                f"{log.prefix} has records, but no object in topics/ names it, so nobody sees "
                "them. Restore the object of its topic, topics/<topic>/<number>.json, from a copy.",
                path=log.prefix,
            )


def _named_logs(catalog: ObjectCatalog) -> set[str]:
    found = set[str]()
    for topic in catalog.names():
        with suppress(StorageError):  # what is wrong with it was reported
            found.add(catalog.get(topic)[0].name)
    return found


def _has_records(log: CommitLog) -> bool:
    try:
        state = log.refresh()
    except StorageError:
        return False
    return not state.deleted and any(each.start < each.end for each in state.partitions)


def _partition_problems(
    backend: ObjectBackend, topic: str, number: int, partition: PartitionState
) -> Iterator[Problem]:
    expected = None
    for each in partition.all():
        if expected is not None and each.base != expected:
            yield Problem(
                "error",
                "LOG_DAMAGED",
                f"{topic}-{number}: offsets {expected} to {each.base - 1} are missing.",
                topic,
                number,
                each.path,
            )
        expected = each.end
        yield from slice_problems(backend, topic, number, each)


def slice_problems(
    backend: ObjectBackend, topic: str, partition: int, found: Slice
) -> Iterator[Problem]:
    """What is wrong with the bytes of one slice."""
    try:
        with typed_read_errors(topic, partition, found.path):
            try:
                verify_slice(backend, found)
            except FileNotFoundError as error:
                raise BrokenFrameError(f"the object {found.key} is missing") from error
    except StorageError as error:
        yield replace(Problem.from_error(error), topic=topic, partition=partition)


def read_frames(backend: ObjectBackend, path: str) -> Iterator[StoredFrame]:
    """The frames of a slice by its path, every byte checked."""
    place = parse_path(path)
    source = ObjectSource(backend, place.key, place.position, place.size, lambda: None)
    try:
        yield from walk_frames(source, place.base, bodies=True)
    finally:
        source.close()


def verify_slice(backend: ObjectBackend, found: Slice) -> None:
    """Read a slice and check every byte of it.

    Raises:
        BrokenFrameError: it is not what its commit says.
        FileNotFoundError: its object is missing.
    """
    checksum = records = 0
    end = found.base
    for frame in read_frames(backend, found.path):
        checksum = frame_checksum(frame.encoded().buffers, checksum)
        records += frame.header.records
        end = frame.end_offset
    if (end, records, checksum) != (found.end, found.records, found.checksum):
        raise BrokenFrameError(
            f"its commit names {found.records} records up to offset {found.end}, found {records} "
            f"up to {end}"
        )
