"""``meta/checkpoint.json``: how far each partition was on disk at some time. It is only a hint.

Writers write it when they create the store, after a roll, on close and every
``checkpoint_interval_ms``. They sync the records first. Each writer replaces only the lines of its
own partitions, under the lock of the file.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, NamedTuple

from ..errors import DamagedMetadataError
from ..format.lock_state import CLEAN, PartitionState
from ..io import json_files
from ..io.locks import ensure_lock_file, locked
from ..vfs import Vfs

PATH, LOCK = "meta/checkpoint.json", "meta/checkpoint.lock"
_FORMAT = 1


class Checkpoint(NamedTuple):
    """The line of one partition."""

    topic: str
    partition: int
    topic_uuid: str
    log_end_offset: int
    active_segment_base_offset: int
    active_segment_size_bytes: int
    last_flushed_offset: int


def line_of(
    topic: str, partition: int, topic_uuid: uuid.UUID, state: PartitionState
) -> Checkpoint | None:
    """The line for a partition in this state; None while it is dirty or has unsynced records."""
    if state.condition != CLEAN or state.recovery_point < state.end_offset:
        return None
    return Checkpoint(
        topic=topic,
        partition=partition,
        topic_uuid=str(topic_uuid),
        log_end_offset=state.end_offset,
        active_segment_base_offset=state.active_base,
        active_segment_size_bytes=state.active_size,
        last_flushed_offset=state.recovery_point,
    )


def create(vfs: Vfs, timeout_ms: int) -> None:
    """Write the first, empty checkpoint of a new store."""
    if vfs.stat(PATH) is None:
        merge(vfs, [], timeout_ms)


def read(vfs: Vfs) -> dict[tuple[str, int], Checkpoint]:
    """All lines by topic and partition; empty if the file is missing or damaged."""
    try:
        fields = json_files.read(vfs, PATH)
        rows = [] if fields is None else json_files.field(fields, "partitions", list, PATH)
        lines = [_line(row) for row in rows]
    except DamagedMetadataError:
        return {}
    return {(line.topic, line.partition): line for line in lines}


def find(vfs: Vfs, topic: str, partition: int, topic_uuid: uuid.UUID) -> Checkpoint | None:
    """The line of one partition; None if it is of a deleted topic of the same name."""
    line = read(vfs).get((topic, partition))
    return line if line is not None and line.topic_uuid == str(topic_uuid) else None


def merge(
    vfs: Vfs, lines: Iterable[Checkpoint], timeout_ms: int, *, forget_topic: str | None = None
) -> None:
    """Replace the lines of some partitions and keep all other lines."""
    ensure_lock_file(vfs, LOCK)
    with locked(vfs, LOCK, timeout_ms):
        table = read(vfs)
        if forget_topic is not None:
            table = {key: line for key, line in table.items() if key[0] != forget_topic}
        table.update({(line.topic, line.partition): line for line in lines})
        rows = [table[key]._asdict() for key in sorted(table)]
        json_files.replace(vfs, PATH, {"format": _FORMAT, "partitions": rows})


def _line(row: Any) -> Checkpoint:
    if not isinstance(row, dict) or set(row) != set(Checkpoint._fields):
        raise DamagedMetadataError(
            f"{PATH} has a line with unknown or missing fields: {row!r}", path=PATH
        )
    for name in ("topic", "topic_uuid"):
        json_files.field(row, name, str, PATH)
    for name in set(Checkpoint._fields) - {"topic", "topic_uuid"}:
        json_files.field(row, name, int, PATH)
    return Checkpoint(**row)
