"""Settings of a store: one frozen, validated object. Nothing is read at import."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from . import arguments
from .errors import ConfigError
from .layouts.registry import LAYOUT_NAMES
from .vfs import read_outside

Compression = Literal["none", "lz4", "zstd"]
CODECS: tuple[Compression, ...] = get_args(Compression)
"""The codecs of frames; the place in this list is the number in a frame's header."""
FsyncPolicy = Literal["batch", "interval", "none"]
WriteThrough = Literal["none", "dsync", "direct"]
CleanupPolicy = Literal["delete", "compact", "delete,compact"]

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
MAX_FRAME_BYTES = 1 << 30
"""Upper bound of any frame: lengths are u32 and readers refuse more before allocating."""
MAX_FRAME_RECORDS = 1 << 20
"""Upper bound of a frame's records: without it, a few bytes could claim billions of nulls."""

_CHOICES: dict[str, tuple[str, ...]] = {
    "cleanup_policy": get_args(CleanupPolicy),
    "cold_compression": CODECS,
    "compression": CODECS,
    "fsync": get_args(FsyncPolicy),
    "layout": LAYOUT_NAMES,
    "write_through": get_args(WriteThrough),
}
_TEXTS = ("cache_dir", "log_dir", "node_name", "retention_hold_groups")
_PREFIX = "CURSUS_"
_MAX_FILE_BYTES = 1 * MIB
_OPTIONAL = (
    "cache_dir",
    "cold_compression",
    "maintenance_interval_ms",
    "merge_below_bytes",
    "node_name",
    "retention_bytes",
    "retention_ms",
    "scrub_interval_ms",
)
_FRACTIONS = ("min_cleanable_dirty_ratio",)
_LIMITS: dict[str, tuple[int, int]] = {
    "segment_bytes": (4 * KIB, 1 << 40),
    "segment_ms": (1, 1 << 53),
    "frame_bytes": (1 * KIB, 256 * MIB),
    "frame_records": (1, MAX_FRAME_RECORDS),
    "max_record_bytes": (1, 512 * MIB),
    "index_interval_bytes": (0, GIB),
    "compression_level": (1, 22),
    "fsync_interval_ms": (1, 3_600_000),
    "checkpoint_interval_ms": (0, 86_400_000),
    "lock_timeout_ms": (0, 86_400_000),
    "staging_ttl_ms": (60_000, 1 << 53),
    "retention_ms": (0, 1 << 53),
    "retention_bytes": (0, 1 << 60),
    "delete_retention_ms": (0, 1 << 53),
    "compaction_memory_bytes": (64 * KIB, 1 << 40),
    "cold_after_ms": (0, 1 << 53),
    "cold_compression_level": (1, 22),
    "merge_below_bytes": (1, 1 << 40),
    "maintenance_interval_ms": (10, 1 << 53),
    "scrub_interval_ms": (10, 1 << 53),
    "scrub_bytes_per_second": (1, 1 << 60),
    "index_cache_segments": (1, 1 << 20),
    "map_cache_segments": (1, 1 << 16),
    "cache_bytes": (16 * MIB, 1 << 50),
    "disk_flush_batch_size": (1, 1 << 20),
    "linger_ms": (0, 3_600_000),
    "disk_write_timeout_ms": (0, 86_400_000),
    "channel_buffer_size": (1, 1 << 24),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """How a store writes, keeps and reads its logs. Units stand in the names.

    A setting in milliseconds takes a text such as ``"7d"`` too, one in bytes a text such as
    ``"64MiB"``; the attribute is the number.

    Attributes:
        segment_bytes: A segment is sealed before it would grow past this size.
        segment_ms: A segment is sealed at the first append after this age.
        frame_bytes: Most bytes of records in one frame; bounds the memory of a read.
        frame_records: Most records in one frame; by default the size of Spark's batches.
        max_record_bytes: Size of the largest record (key, value and headers) that is accepted.
        index_interval_bytes: Log bytes between two entries of the sparse index.
        compression: Codec for new frames: none, lz4 or zstd.
        compression_level: zstd level.
        fsync: ``batch`` syncs every append before it returns; ``interval`` every
            ``fsync_interval_ms``; ``none`` leaves it to the operating system.
        fsync_interval_ms: Longest time a record waits for its sync under ``interval``.
        checkpoint_interval_ms: Time between two writes of ``meta/checkpoint.json``.
        lock_timeout_ms: How long to wait for another process before giving up.
        staging_ttl_ms: Private files of write jobs that never committed are removed after this.
        retention_ms: ``retain`` removes segments whose newest record is older; none: keep.
        retention_bytes: ``retain`` removes the oldest segments above this size; none: keep.
        retention_hold_groups: Consumer groups, separated by commas, whose unread records no
            retention removes.
        cleanup_policy: ``delete`` lets retention remove old segments, ``compact`` lets compaction
            remove records whose key has a later one; or both.
        delete_retention_ms: Compaction keeps the tombstone of a deleted key at least this long.
        min_cleanable_dirty_ratio: Share of the sealed segments that must be new for a compaction.
        compaction_memory_bytes: Memory for the keys of one pass of compaction.
        cold_compression: Background maintenance puts old segments under this codec; none: never.
        cold_compression_level: zstd level for them.
        cold_after_ms: Age of a segment's newest record that makes it old.
        merge_below_bytes: Background maintenance merges neighbouring segments smaller than this.
        maintenance_interval_ms: How often a ``DiskManager`` maintains its logs; none: never.
        scrub_interval_ms: How often it verifies every checksum; none: never.
        scrub_bytes_per_second: How fast it does so.
        index_cache_segments: Parsed indexes kept in memory.
        map_cache_segments: Memory maps of sealed segments kept open.
        cache_dir: Directory of this machine that keeps what was read of a store of objects; none:
            nothing is kept.
        cache_bytes: Most bytes in it.
        allow_unsafe_fs: Write on NFS, CIFS or FUSE although their locks may not work.
        node_name: Recorded in ``meta/broker.id`` for people.
        write_through: ``dsync`` opens segments for writing with O_DSYNC, ``direct`` with O_DIRECT,
            where the system has them. Durability does not depend on it: syncs are never left out.
        log_dir: Directory of the store that a ``DiskManager`` opens or creates.
        layout: Layout of that store.
        disk_flush_batch_size: A handler writes as soon as this many records wait.
        linger_ms: A handler writes fewer after this time.
        channel_buffer_size: Most records that wait in a handler's queue.
        disk_write_timeout_ms: How long an append waits for room in a full queue before it writes
            by itself.
    """

    segment_bytes: int = 64 * MIB
    segment_ms: int = 7 * 24 * 3600 * 1000
    frame_bytes: int = 1 * MIB
    frame_records: int = 10_000
    max_record_bytes: int = 16 * MIB
    index_interval_bytes: int = 4096
    compression: Compression = "none"
    compression_level: int = 3
    fsync: FsyncPolicy = "batch"
    fsync_interval_ms: int = 1000
    checkpoint_interval_ms: int = 5000
    lock_timeout_ms: int = 30_000
    staging_ttl_ms: int = 24 * 3600 * 1000
    retention_ms: int | None = None
    retention_bytes: int | None = None
    retention_hold_groups: str = ""
    cleanup_policy: CleanupPolicy = "delete"
    delete_retention_ms: int = 24 * 3600 * 1000
    min_cleanable_dirty_ratio: float = 0.5
    compaction_memory_bytes: int = 64 * MIB
    cold_compression: Compression | None = None
    cold_compression_level: int = 9
    cold_after_ms: int = 7 * 24 * 3600 * 1000
    merge_below_bytes: int | None = None
    maintenance_interval_ms: int | None = None
    scrub_interval_ms: int | None = None
    scrub_bytes_per_second: int = 32 * MIB
    index_cache_segments: int = 1024
    map_cache_segments: int = 256
    cache_bytes: int = 1 * GIB
    cache_dir: str | None = None
    allow_unsafe_fs: bool = False
    node_name: str | None = None
    write_through: WriteThrough = "none"
    log_dir: str = "./logs"
    layout: str = "native"
    disk_flush_batch_size: int = 500
    linger_ms: int = 100
    channel_buffer_size: int = 10_000
    disk_write_timeout_ms: int = 5000

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, str) and field.name in _LIMITS:
                value = _number(field.name, value)
                object.__setattr__(self, field.name, value)
            _check_value(field.name, value)

    @property
    def syncs_each_append(self) -> bool:
        """An append is durable when it returns."""
        return self.fsync == "batch"

    @property
    def syncs_at_intervals(self) -> bool:
        """An append is durable at most ``fsync_interval_ms`` after it returns."""
        return self.fsync == "interval"

    @property
    def syncs_never(self) -> bool:
        """Appends are durable when the operating system writes them; only commits are synced."""
        return self.fsync == "none"

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any]) -> StoreConfig:
        """Build a configuration from plain keys, refusing unknown ones with a suggestion."""
        arguments.instance("settings", settings, Mapping, "a mapping of names to values")
        known = [field.name for field in dataclasses.fields(cls)]
        for key in settings:
            if key not in known:
                raise ConfigError(f"Unknown setting {key!r}.{_did_you_mean(str(key), known)}")
        return cls(**settings)

    @classmethod
    def parse(cls, text: str, environment: Mapping[str, str] | None = None) -> StoreConfig:
        """Build a configuration from YAML text, overridden by ``CURSUS_<KEY>`` variables.

        Args:
            text: A YAML mapping of settings; may be empty.
            environment: Defaults to the process's environment.
        """
        arguments.instance("text", text, str, "YAML text")
        if environment is not None:
            arguments.instance("environment", environment, Mapping, "a mapping of variables")
            arguments.names("environment", environment)
        settings = _yaml(text) if text else None
        if settings is None:
            settings = {}
        if not isinstance(settings, dict):
            raise ConfigError(
                f"The configuration must be a mapping, found {type(settings).__name__}."
            )
        settings.update(
            _environment_settings(cls, os.environ if environment is None else environment)
        )
        return cls.from_mapping(settings)

    @classmethod
    def from_environment(cls) -> StoreConfig:
        """The defaults, overridden by the process's ``CURSUS_<KEY>`` variables."""
        return cls.parse("")

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], environment: Mapping[str, str] | None = None
    ) -> StoreConfig:
        """Read a YAML file, overridden by ``CURSUS_<KEY>`` variables.

        Raises:
            ConfigError: the file cannot be read, or a setting is unknown or has a wrong value.
        """
        arguments.instance("path", path, (str, os.PathLike), "the path of a YAML file")
        name = os.fspath(path)
        try:
            text = read_outside(name, _MAX_FILE_BYTES).decode()
        except (OSError, ValueError) as error:
            raise ConfigError(f"The configuration file {name} cannot be read: {error}") from error
        try:
            return cls.parse(text, environment)
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from error

    def override(self, settings: Mapping[str, Any]) -> StoreConfig:
        """A copy with some settings replaced, as a topic's own settings replace the store's."""
        return self if not settings else dataclasses.replace(self, **settings)


def setting_value(name: str, text: str) -> Any:
    """The value of a setting that was given as text, in the environment or on a command line.

    Names stay texts, also those of digits; all else is what YAML makes of it. Nothing is checked.
    """
    return text if name in _TEXTS else _yaml(text)


def _yaml(text: str) -> Any:
    import yaml  # most processes have no file of settings, and it takes 10 ms

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"The configuration is not valid YAML: {error}") from error


def _environment_settings(cls: type[StoreConfig], environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    known = [field.name for field in dataclasses.fields(cls)]
    for name in known:
        text = environment.get(_PREFIX + name.upper())
        if text is not None:
            found[name] = setting_value(name, text)
    _refuse_near_misses([name.upper() for name in known], environment)
    return found


def _refuse_near_misses(known: list[str], environment: Mapping[str, str]) -> None:
    """A variable that is almost a setting is a typing error; others belong to other programs."""
    for variable in environment:
        name = variable.removeprefix(_PREFIX)
        if variable.startswith(_PREFIX) and name not in known:
            near = nearest(name, known, 0.85)
            if near:
                raise ConfigError(
                    f"Unknown variable {variable!r}. Did you mean {_PREFIX + near[0]!r}?"
                )


def nearest(name: str, known: list[str], similarity: float) -> list[str]:
    """The known name that is most like this one, if it is similar enough."""
    import difflib  # only on the way to an error

    return difflib.get_close_matches(name, known, n=1, cutoff=similarity)


def _did_you_mean(key: str, known: list[str]) -> str:
    near = nearest(key, known, 0.6)
    return (
        f" Did you mean {near[0]!r}?" if near else f" Known settings: {', '.join(sorted(known))}."
    )


def _number(name: str, text: str) -> int | str:
    """The number of a setting that was given as a size or a length of time, if it is one."""
    found = None
    if name.endswith("_ms"):
        found = arguments.milliseconds(text)
    elif "bytes" in name:
        found = arguments.byte_size(text)
    return text if found is None else found


def _check_value(name: str, value: object) -> None:
    if value is None and name in _OPTIONAL:
        return
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            expected = ", ".join(_CHOICES[name])
            raise ConfigError(f"Setting {name!r} must be one of {expected}, got {value!r}.")
    elif name in _LIMITS:
        low, high = _LIMITS[name]
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            example = " or a size such as 64MiB" if "bytes" in name else ""
            example = " or a duration such as 12h" if name.endswith("_ms") else example
            raise ConfigError(
                f"Setting {name!r} must be an integer {low}..{high}{example}, got {value!r}."
            )
    elif name in _FRACTIONS:
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
            raise ConfigError(f"Setting {name!r} must be a number 0..1, got {value!r}.")
    elif name == "allow_unsafe_fs":
        if not isinstance(value, bool):
            raise ConfigError(f"Setting {name!r} must be true or false, got {value!r}.")
    elif not isinstance(value, str):
        raise ConfigError(f"Setting {name!r} must be text, got {value!r}.")
    elif name == "cache_dir" and not value.strip():
        raise ConfigError("Setting 'cache_dir' must be the path of a directory, got none.")
