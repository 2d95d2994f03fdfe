"""``topic.json``: the identity of a topic, its number of partitions and its settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from ..config import StoreConfig, nearest
from ..errors import ConfigError, DamagedMetadataError
from ..io import json_files
from ..vfs import Vfs
from .slots import MAX_PARTITIONS

Kind = Literal["records", "typed"]
_RECORDS, _TYPED = 1, 2

TOPIC_SETTINGS = (
    "cleanup_policy",
    "cold_after_ms",
    "cold_compression",
    "cold_compression_level",
    "compression",
    "compression_level",
    "delete_retention_ms",
    "frame_bytes",
    "frame_records",
    "fsync",
    "fsync_interval_ms",
    "index_interval_bytes",
    "max_record_bytes",
    "merge_below_bytes",
    "min_cleanable_dirty_ratio",
    "retention_bytes",
    "retention_hold_groups",
    "retention_ms",
    "segment_bytes",
    "segment_ms",
)


@dataclass(frozen=True, slots=True)
class TopicFile:
    """Contents of ``topic.json``. Kind, key columns and timestamp column never change."""

    uuid: UUID
    store_uuid: UUID
    partitions: int
    created_at: str
    settings: Mapping[str, Any]
    kind: Kind = "records"
    key_columns: tuple[str, ...] = ()
    timestamp_column: str | None = None

    @property
    def is_typed(self) -> bool:
        """Whether its rows have the columns of a schema, not key, value and headers."""
        return self.kind == "typed"

    @property
    def has_keys(self) -> bool:
        """Whether compaction knows which records have one key."""
        return not self.is_typed or bool(self.key_columns)

    def config(self, store: StoreConfig) -> StoreConfig:
        """The store's configuration, overridden by this topic's settings."""
        return store.override(self.settings)


def gets_syncs(current: TopicFile, settings: Mapping[str, Any], store: StoreConfig) -> bool:
    """Whether these settings end ``fsync=none``. After that all records count as durable."""
    wanted = with_settings(current, settings).config(store)
    return current.config(store).syncs_never and not wanted.syncs_never


def path_of(topic: str) -> str:
    """The path of a topic's file."""
    return f"topics/{topic}/topic.json"


def check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, with numbers for texts such as ``7d``; raise for unknown or invalid ones."""
    for name in settings:
        if name not in TOPIC_SETTINGS:
            near = nearest(name, list(TOPIC_SETTINGS), 0.6)
            meant = f" Did you mean {near[0]!r}?" if near else ""
            raise ConfigError(
                f"{name!r} is not a topic setting.{meant} Topic settings: "
                f"{', '.join(TOPIC_SETTINGS)}."
            )
    checked = StoreConfig().override(settings)
    return {name: getattr(checked, name) for name in settings}


def check_cleanup(topic: TopicFile, settings: Mapping[str, Any]) -> TopicFile:
    """The topic; raise if ``settings`` ask for a compaction that has no key to go by."""
    if "compact" in settings.get("cleanup_policy", "") and not topic.has_keys:
        raise ConfigError(
            f"cleanup_policy is {settings['cleanup_policy']!r}, but the typed topic has no key "
            "columns, so there is no latest row of a key. Use 'delete', or create the topic with "
            "key_columns."
        )
    return topic


def check_partitions(partitions: int) -> int:
    """Raise for a number of partitions that is out of range."""
    if not isinstance(partitions, int) or not 1 <= partitions <= MAX_PARTITIONS:
        raise ConfigError(f"partitions must be 1 to {MAX_PARTITIONS}, got {partitions!r}.")
    return partitions


def dump(topic: TopicFile) -> dict[str, Any]:
    """The fields of the file. Releases without typed topics refuse format 2."""
    typed = {
        "kind": topic.kind,
        "key_columns": list(topic.key_columns),
        "timestamp_column": topic.timestamp_column,
    }
    return {
        **(typed if topic.is_typed else {}),
        "format": _TYPED if topic.is_typed else _RECORDS,
        "uuid": str(topic.uuid),
        "store_uuid": str(topic.store_uuid),
        "partitions": topic.partitions,
        "created_at": topic.created_at,
        "settings": dict(topic.settings),
    }


def read(vfs: Vfs, topic: str) -> TopicFile | None:
    """The topic's file; None if the topic does not exist.

    Raises:
        DamagedMetadataError: the file is damaged.
    """
    path = path_of(topic)
    fields = json_files.read(vfs, path)
    return None if fields is None else parse(fields, path)


def parse(fields: Mapping[str, Any], path: str) -> TopicFile:
    """The topic of these fields, found at ``path``.

    Raises:
        DamagedMetadataError: a field is missing or wrong.
    """
    try:
        if fields.get("format") not in (_RECORDS, _TYPED):
            raise ValueError(f"format {fields.get('format')!r} is unknown to this release")
        return TopicFile(
            uuid=UUID(json_files.field(fields, "uuid", str, path)),
            store_uuid=UUID(json_files.field(fields, "store_uuid", str, path)),
            partitions=check_partitions(json_files.field(fields, "partitions", int, path)),
            created_at=json_files.field(fields, "created_at", str, path),
            settings=check_settings(json_files.field(fields, "settings", dict, path)),
            **(_typed_fields(fields, path) if fields["format"] == _TYPED else {}),
        )
    except (ValueError, ConfigError) as error:
        reason = str(error).removesuffix(".")
        raise DamagedMetadataError(
            f"{path} is damaged: {reason}. Restore the file from a copy.", path=path
        ) from error


def _typed_fields(fields: Mapping[str, Any], path: str) -> dict[str, Any]:
    keys, timestamp = json_files.field(fields, "key_columns", list, path), "timestamp_column"
    if fields.get("kind") != "typed":
        raise ValueError(f"field 'kind' should be 'typed', found {fields.get('kind')!r}")
    if not all(isinstance(name, str) and name for name in keys) or len(set(keys)) < len(keys):
        raise ValueError(f"field 'key_columns' should be different column names, found {keys!r}")
    if timestamp not in fields:
        raise ValueError(f"field {timestamp!r} is missing")
    found = fields[timestamp]
    if found is not None and not (isinstance(found, str) and found):
        raise ValueError(f"field {timestamp!r} should be a column name or null, found {found!r}")
    return {"kind": "typed", "key_columns": tuple(keys), timestamp: found}


def as_typed(
    topic: TopicFile, key_columns: tuple[str, ...], timestamp_column: str | None
) -> TopicFile:
    """The same topic as a typed one."""
    return dataclasses.replace(
        topic, kind="typed", key_columns=key_columns, timestamp_column=timestamp_column
    )


def with_partitions(name: str, topic: TopicFile, total: int) -> TopicFile:
    """A copy that has more partitions.

    Raises:
        ConfigError: the topic has more than ``total``, whose records would be lost.
    """
    if total < topic.partitions:
        raise ConfigError(
            f"topic {name!r} has {topic.partitions} partitions; it cannot shrink to {total}. "
            "Create a new topic and copy the records."
        )
    return dataclasses.replace(topic, partitions=check_partitions(total))


def with_settings(topic: TopicFile, settings: Mapping[str, Any]) -> TopicFile:
    """A copy with some settings changed. None resets a setting to the store's default."""
    merged = {**topic.settings, **settings}
    kept = {name: value for name, value in merged.items() if value is not None}
    return check_cleanup(dataclasses.replace(topic, settings=check_settings(kept)), kept)
