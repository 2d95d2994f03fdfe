"""``meta/consumer-offsets/<group>.json``: the committed offsets of consumer groups.

A committed offset is the next offset to read. A read needs no group. A group stores where a reader
stopped, and tools show its lag.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ..errors import DamagedMetadataError, InvalidNameError, InvalidRecordError
from ..format.file_names import MAX_OFFSET, check_name
from ..io import json_files
from ..io.durable import sync_directories
from ..io.locks import ensure_lock_file, locked
from ..vfs import Vfs

_FORMAT = 1
# The temporary file has a longer name, and file names have at most 255 bytes.
_MAX_CHARACTERS = 240
Offsets = Mapping[str, Mapping[int, int]]


class Groups(Protocol):
    """The committed offsets of all groups of a store."""

    def names(self) -> list[str]:
        """All groups with committed offsets."""

    def read(self, group: str) -> dict[str, dict[str, Any]]:
        """The topic's ``uuid`` and committed ``offsets``, by topic; empty for an unknown group."""

    def commit(self, group: str, offsets: Offsets, topic_uuids: Mapping[str, str]) -> None:
        """Merge offsets into a group, durably. A recreated topic loses its old offsets."""


class GroupFiles:
    """Groups in files of a directory. Safe for several threads and processes."""

    def __init__(self, vfs: Vfs, directory: str, timeout_ms: int) -> None:
        self._vfs = vfs
        self._directory = directory
        self._timeout_ms = timeout_ms

    def names(self) -> list[str]:
        return names(self._vfs, self._directory)

    def read(self, group: str) -> dict[str, dict[str, Any]]:
        return read(self._vfs, self._directory, group)

    def commit(self, group: str, offsets: Offsets, topic_uuids: Mapping[str, str]) -> None:
        commit(self._vfs, self._directory, group, offsets, topic_uuids, self._timeout_ms)


def path_of(directory: str, group: str) -> str:
    """The path of a group's file."""
    if len(check_name("group", group)) > _MAX_CHARACTERS:
        raise InvalidNameError(
            f"group name {group!r} has {len(group)} characters; the limit is {_MAX_CHARACTERS}."
        )
    return f"{directory}/{group}.json"


def names(vfs: Vfs, directory: str) -> list[str]:
    """All groups with committed offsets."""
    try:
        files = vfs.listdir(directory)
    except FileNotFoundError:
        return []
    return sorted(name.removesuffix(".json") for name in files if name.endswith(".json"))


def read(vfs: Vfs, directory: str, group: str) -> dict[str, dict[str, Any]]:
    """The topic's ``uuid`` and committed ``offsets``, by topic; empty for an unknown group."""
    path = path_of(directory, group)
    fields = json_files.read(vfs, path)
    return {} if fields is None else topics_of(fields, path)


def commit(
    vfs: Vfs,
    directory: str,
    group: str,
    offsets: Offsets,
    topic_uuids: Mapping[str, str],
    timeout_ms: int,
) -> None:
    """Merge offsets into a group's file, durably. A recreated topic loses its old offsets."""
    path = path_of(directory, group)
    check_offsets(group, offsets)
    lock = f"{directory}/lock"
    ensure_lock_file(vfs, lock)
    with locked(vfs, lock, timeout_ms):
        fields = json_files.read(vfs, path)
        if fields is None:
            # The creator of the directory may have crashed before fsync.
            sync_directories(vfs, directory)
        topics = {} if fields is None else topics_of(fields, path)
        merged = with_offsets(topics, offsets, topic_uuids)
        json_files.replace(vfs, path, fields_of(group, json_files.timestamp(vfs), merged))


def check_offsets(group: str, offsets: Offsets) -> None:
    """Raise for an offset that no record can have."""
    for topic, ends in offsets.items():
        for partition, offset in ends.items():
            if type(offset) is not int or not 0 <= offset <= MAX_OFFSET:
                raise InvalidRecordError(
                    f"group {group!r}: the offset of {topic}-{partition} must be 0 to 2**63-1, "
                    f"got {offset!r}."
                )


def with_offsets(
    topics: Mapping[str, dict[str, Any]], offsets: Offsets, topic_uuids: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """The topics of a group after one more commit."""
    merged = dict(topics)
    for topic, ends in offsets.items():
        entry = merged.get(topic)
        if entry is None or entry["uuid"] != topic_uuids[topic]:
            entry = {"uuid": topic_uuids[topic], "offsets": {}}
        merged[topic] = {**entry, "offsets": {**entry["offsets"], **ends}}
    return merged


def fields_of(
    group: str, committed_at: str, topics: Mapping[str, dict[str, Any]]
) -> dict[str, Any]:
    """The fields of a group's file; ``topics_of`` is the inverse."""
    return {
        "format": _FORMAT,
        "group": group,
        "committed_at": committed_at,
        "topics": {topic: _with_text_keys(entry) for topic, entry in topics.items()},
    }


def _with_text_keys(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {**entry, "offsets": {str(part): offset for part, offset in entry["offsets"].items()}}


def topics_of(fields: Mapping[str, Any], path: str) -> dict[str, dict[str, Any]]:
    """By topic the ``uuid`` and the committed ``offsets`` in a group's file.

    Raises:
        DamagedMetadataError: a field is missing or wrong.
    """
    topics: dict[str, dict[str, Any]] = {}
    for topic, entry in json_files.field(fields, "topics", dict, path).items():
        if not isinstance(entry, dict) or set(entry) != {"uuid", "offsets"}:
            raise DamagedMetadataError(
                f"{path} is damaged: the entry of topic {topic!r} must have the fields uuid and "
                "offsets and no others. Restore the file from a copy.",
                path=path,
            )
        ends = json_files.field(entry, "offsets", dict, path)
        try:
            parsed = {int(partition): int(offset) for partition, offset in ends.items()}
        except (TypeError, ValueError) as error:
            raise DamagedMetadataError(
                f"{path} is damaged: topic {topic!r}: {error}. Restore the file from a copy.",
                path=path,
            ) from error
        topics[topic] = {"uuid": json_files.field(entry, "uuid", str, path), "offsets": parsed}
    return topics
