"""``groups/<group>.json``: the committed offsets of consumer groups, replaced by their tag."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..io import json_files
from ..metadata.consumer_groups import (
    Offsets,
    check_offsets,
    fields_of,
    path_of,
    topics_of,
    with_offsets,
)
from ..vfs import Vfs
from .patience import TRANSIENT, PatientBackend

_GROUPS = "groups"
_SUFFIX = ".json"


class ObjectGroups:
    """The groups of a store. Safe for several threads, processes and machines."""

    def __init__(self, backend: PatientBackend, clock: Vfs) -> None:
        self._backend = backend
        self._clock = clock

    def names(self) -> list[str]:
        keys = [info.key for info in self._backend.list_after(f"{_GROUPS}/")]
        return sorted(
            key.removeprefix(f"{_GROUPS}/").removesuffix(_SUFFIX)
            for key in keys
            if key.endswith(_SUFFIX)
        )

    def read(self, group: str) -> dict[str, dict[str, Any]]:
        return self._read(path_of(_GROUPS, group))[0]

    def _read(self, key: str) -> tuple[dict[str, dict[str, Any]], str | None]:
        try:
            found = self._backend.get_ranges(key)
        except FileNotFoundError:
            return {}, None
        return topics_of(json_files.load(bytes(found.whole), key), key), found.tag

    def commit(self, group: str, offsets: Offsets, topic_uuids: Mapping[str, str]) -> None:
        """Merge offsets into a group. Repeating it after a lost reply stores the same."""
        key, tries, until = path_of(_GROUPS, group), 0, self._backend.patience.deadline()
        check_offsets(group, offsets)
        while True:
            topics, tag = self._read(key)
            merged = with_offsets(topics, offsets, topic_uuids)
            fields = fields_of(group, json_files.timestamp(self._clock), merged)
            try:
                self._backend.replace_if(key, [json_files.dump(fields)], tag)
                return
            except (FileExistsError, *TRANSIENT):
                if tries and self._backend.patience.is_over(until):
                    raise
            tries += 1
            self._backend.patience.wait(tries)
