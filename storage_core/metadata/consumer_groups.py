"""``meta/consumer-offsets/<group>.json``: how far groups of readers have come.

A committed offset is the next one to read. Reads never need a group; it is for those who want the
store to remember where they stopped, and for tools that show how far behind they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import DamagedMetadataError, InvalidNameError, InvalidRecordError
from ..format.file_names import MAX_OFFSET, check_name
from ..io import json_files
from ..io.durable import sync_directories
from ..io.locks import ensure_lock_file, locked
from ..vfs import Vfs

NATIVE_DIRECTORY = "meta/consumer-offsets"
_FORMAT = 1
# With the suffix of the file that takes its place, no file system takes longer ones.
_MOST_CHARACTERS = 240
Offsets = Mapping[str, Mapping[int, int]]


def path_of(directory: str, group: str) -> str:
    """Where a group's file stands."""
    if len(check_name("group", group)) > _MOST_CHARACTERS:
        raise InvalidNameError(
            f"group name {group!r} has {len(group)} characters, the most are {_MOST_CHARACTERS}."
        )
    return f"{directory}/{group}.json"


def names(vfs: Vfs, directory: str) -> list[str]:
    """All groups that ever committed."""
    try:
        files = vfs.listdir(directory)
    except FileNotFoundError:
        return []
    return sorted(name.removesuffix(".json") for name in files if name.endswith(".json"))


def read(vfs: Vfs, directory: str, group: str) -> dict[str, dict[str, Any]]:
    """By topic the ``uuid`` it had and the committed ``offsets``; empty for an unknown group."""
    path = path_of(directory, group)
    fields = json_files.read(vfs, path)
    return {} if fields is None else _topics(fields, path)


def commit(
    vfs: Vfs,
    directory: str,
    group: str,
    offsets: Offsets,
    topic_uuids: Mapping[str, str],
    timeout_ms: int,
) -> None:
    """Merge offsets into a group's file, durably. Positions of a recreated topic start anew."""
    path = path_of(directory, group)
    for topic, ends in offsets.items():
        for partition, offset in ends.items():
            if type(offset) is not int or not 0 <= offset <= MAX_OFFSET:
                raise InvalidRecordError(
                    f"group {group!r}: offset of {topic}-{partition} must be 0..2**63-1, "
                    f"got {offset!r}."
                )
    lock = f"{directory}/lock"
    ensure_lock_file(vfs, lock)
    with locked(vfs, lock, timeout_ms):
        fields = json_files.read(vfs, path)
        if fields is None:
            # Whoever made the directory may have failed to sync its name.
            sync_directories(vfs, directory)
        topics = {} if fields is None else _topics(fields, path)
        for topic, ends in offsets.items():
            entry = topics.get(topic)
            if entry is None or entry["uuid"] != topic_uuids[topic]:
                entry = {"uuid": topic_uuids[topic], "offsets": {}}
            entry["offsets"].update(ends)
            topics[topic] = entry
        json_files.replace(
            vfs,
            path,
            {
                "format": _FORMAT,
                "group": group,
                "committed_at": json_files.timestamp(vfs),
                "topics": {topic: _with_text_keys(entry) for topic, entry in topics.items()},
            },
        )


def _with_text_keys(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {**entry, "offsets": {str(part): offset for part, offset in entry["offsets"].items()}}


def _topics(fields: Mapping[str, Any], path: str) -> dict[str, dict[str, Any]]:
    topics: dict[str, dict[str, Any]] = {}
    for topic, entry in json_files.field(fields, "topics", dict, path).items():
        if not isinstance(entry, dict) or set(entry) != {"uuid", "offsets"}:
            raise DamagedMetadataError(f"{path} holds an odd entry for topic {topic!r}", path=path)
        ends = json_files.field(entry, "offsets", dict, path)
        try:
            parsed = {int(partition): int(offset) for partition, offset in ends.items()}
        except (TypeError, ValueError) as error:
            raise DamagedMetadataError(f"{path}: {error}", path=path) from error
        topics[topic] = {"uuid": json_files.field(entry, "uuid", str, path), "offsets": parsed}
    return topics
