"""``meta/consumer-offsets/<group>.json``: how far groups of readers have come.

A committed offset is the next one to read. Reads never need a group; it is for those who want the
store to remember where they stopped, and for tools that show how far behind they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import metafile
from .durable import ensure_lock_file, locked
from .errors import DamagedMetadataError, InvalidRecordError
from .identity import timestamp
from .naming import MAX_OFFSET, check_name
from .vfs import Vfs

DIRECTORY = "meta/consumer-offsets"
LOCK = f"{DIRECTORY}/lock"
_FORMAT = 1
Offsets = Mapping[str, Mapping[int, int]]


def path_of(group: str) -> str:
    """Where a group's file stands."""
    return f"{DIRECTORY}/{check_name('group', group)}.json"


def names(vfs: Vfs) -> list[str]:
    """All groups that ever committed."""
    try:
        files = vfs.listdir(DIRECTORY)
    except FileNotFoundError:
        return []
    return sorted(name.removesuffix(".json") for name in files if name.endswith(".json"))


def read(vfs: Vfs, group: str) -> dict[str, dict[int, int]]:
    """Committed offsets by topic and partition; empty for an unknown group."""
    path = path_of(group)
    fields = metafile.read(vfs, path)
    if fields is None:
        return {}
    return {topic: entry["offsets"] for topic, entry in _topics(fields, path).items()}


def commit(
    vfs: Vfs, group: str, offsets: Offsets, topic_uuids: Mapping[str, str], timeout_ms: int
) -> None:
    """Merge offsets into a group's file, durably. Positions of a recreated topic start anew."""
    path = path_of(group)
    for topic, ends in offsets.items():
        for partition, offset in ends.items():
            if not isinstance(offset, int) or not 0 <= offset <= MAX_OFFSET:
                raise InvalidRecordError(
                    f"group {group!r}: offset of {topic}-{partition} must be 0..2**63-1, "
                    f"got {offset!r}."
                )
    ensure_lock_file(vfs, LOCK)
    with locked(vfs, LOCK, timeout_ms):
        fields = metafile.read(vfs, path)
        topics = {} if fields is None else _topics(fields, path)
        for topic, ends in offsets.items():
            entry = topics.get(topic)
            if entry is None or entry["uuid"] != topic_uuids[topic]:
                entry = {"uuid": topic_uuids[topic], "offsets": {}}
            entry["offsets"].update(ends)
            topics[topic] = entry
        metafile.replace(
            vfs,
            path,
            {
                "format": _FORMAT,
                "group": group,
                "committed_at": timestamp(vfs),
                "topics": {topic: _with_text_keys(entry) for topic, entry in topics.items()},
            },
        )


def _with_text_keys(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {**entry, "offsets": {str(part): offset for part, offset in entry["offsets"].items()}}


def _topics(fields: Mapping[str, Any], path: str) -> dict[str, dict[str, Any]]:
    topics: dict[str, dict[str, Any]] = {}
    for topic, entry in metafile.field(fields, "topics", dict, path).items():
        if not isinstance(entry, dict) or set(entry) != {"uuid", "offsets"}:
            raise DamagedMetadataError(f"{path} holds an odd entry for topic {topic!r}", path=path)
        ends = metafile.field(entry, "offsets", dict, path)
        try:
            parsed = {int(partition): int(offset) for partition, offset in ends.items()}
        except (TypeError, ValueError) as error:
            raise DamagedMetadataError(f"{path}: {error}", path=path) from error
        topics[topic] = {"uuid": metafile.field(entry, "uuid", str, path), "offsets": parsed}
    return topics
