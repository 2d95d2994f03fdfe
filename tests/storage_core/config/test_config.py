"""Settings: validated once, refused with the way out."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from storage_core import StoreConfig
from storage_core.errors import ConfigError


def test_defaults_are_valid_and_frozen() -> None:
    config = StoreConfig()
    assert (config.fsync, config.frame_records, config.frame_bytes) == ("batch", 10_000, 1 << 20)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.fsync = "none"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment_bytes", 0),
        ("segment_bytes", -1),
        ("segment_bytes", "64 MB"),
        ("segment_bytes", 1.5),
        ("segment_bytes", True),
        ("segment_bytes", None),
        ("segment_ms", 0),
        ("frame_records", 0),
        ("frame_bytes", 1 << 40),
        ("max_record_bytes", 1 << 40),
        ("index_interval_bytes", -1),
        ("compression", "gzip"),
        ("compression_level", 23),
        ("fsync", "sometimes"),
        ("fsync", True),
        ("fsync_interval_ms", 0),
        ("lock_timeout_ms", -1),
        ("retention_ms", -1),
        ("retention_bytes", -1),
        ("allow_unsafe_fs", 1),
        ("node_name", 5),
    ],
)
def test_value_that_a_setting_cannot_take_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        StoreConfig(**{name: value})


def test_every_setting_is_checked() -> None:
    wrong: Any = [object()]
    for field in dataclasses.fields(StoreConfig):
        with pytest.raises(ConfigError, match=field.name):
            StoreConfig(**{field.name: wrong})


def test_unknown_setting_suggests_the_near_one() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'segment_bytes'"):
        StoreConfig.from_mapping({"segment_byte": 5})
    with pytest.raises(ConfigError, match="Known settings"):
        StoreConfig.from_mapping({"zzz": 5})


def test_yaml_is_read_and_the_environment_wins() -> None:
    text = "segment_bytes: 8192\nfsync: none\nretention_ms: 5\n"
    environment = {
        "CURSUS_FSYNC": "interval",
        "CURSUS_RETENTION_MS": "null",
        "CURSUS_NODE_NAME": "12",
        "CURSUS_ALLOW_UNSAFE_FS": "true",
        "OTHER": "1",
    }
    config = StoreConfig.parse(text, environment)
    assert (config.segment_bytes, config.fsync, config.retention_ms) == (8192, "interval", None)
    assert (config.node_name, config.allow_unsafe_fs) == ("12", True)


def test_empty_yaml_gives_the_defaults() -> None:
    assert StoreConfig.parse("", {}) == StoreConfig()


@pytest.mark.parametrize(
    ("text", "environment"),
    [
        ("[1, 2]", {}),
        ("just text", {}),
        ("a: [", {}),
        ("1: 2", {}),
        ("", {"CURSUS_FSYNC": "["}),
        ("", {"CURSUS_SEGMENT_BYTES": "many"}),
        ("!!python/object/apply:os.getcwd []", {}),
    ],
)
def test_text_that_is_no_configuration_is_refused(text: str, environment: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        StoreConfig.parse(text, environment)


def test_override_replaces_only_what_it_names() -> None:
    config = StoreConfig(segment_bytes=8192).override({"fsync": "none"})
    assert (config.segment_bytes, config.fsync) == (8192, "none")
