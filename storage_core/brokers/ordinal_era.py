"""Recognising the ordinal era of a cursus broker: file names of ``cursus``, messages inside.

The names do not tell raw payloads from messages of forms M, A and B, so the first records of some
topics are parsed.
"""

from __future__ import annotations

from contextlib import suppress

from ..errors import StorageError
from ..io.durable import read_file
from ..layouts.broker_names import CURSUS_NAMES
from ..vfs import Vfs
from .codecs.ordinal import are_messages
from .codecs.rows import CURSUS, walk_scalar

_TOPICS = 8
_SAMPLE_BYTES = 64 << 10


def holds_messages(vfs: Vfs) -> bool:
    """Whether the first records of all topics looked at are messages of the broker.

    A topic that is empty, unreadable or deleted meanwhile says nothing.
    """
    found = False
    for topic in CURSUS_NAMES.topics(vfs)[:_TOPICS]:
        for partition in range(CURSUS_NAMES.partitions(vfs, topic)):
            parsed = None
            with suppress(OSError, StorageError):
                parsed = _first_records_parse(vfs, topic, partition)
            if parsed is False:
                return False
            if parsed:
                found = True
                break
    return found


def _first_records_parse(vfs: Vfs, topic: str, partition: int) -> bool | None:
    """Whether the first records of a partition are messages; None if it has no whole record."""
    directory = CURSUS_NAMES.directory(vfs, topic, partition)
    for segment in CURSUS_NAMES.segments(vfs, topic, partition):
        path = f"{directory}/{segment.name}"
        stat = vfs.stat(path)
        if stat is None or stat.kind != "file":
            return None
        if not stat.size:
            continue
        data = read_file(vfs, path, _SAMPLE_BYTES) or b""
        length = int.from_bytes(data[: CURSUS.header_bytes], "big")
        if _SAMPLE_BYTES - CURSUS.header_bytes < length <= CURSUS.max_payload:
            data = read_file(vfs, path, CURSUS.header_bytes + length) or b""
        rows = walk_scalar(data, 0, len(data), CURSUS)
        return are_messages(data, rows, topic, partition) if rows.count else None
    return None
