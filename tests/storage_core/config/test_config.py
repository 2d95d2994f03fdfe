"""Settings: validated once, refused with the way out."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from storage_core import Store, StoreConfig
from storage_core.errors import ConfigError
from storage_core.metadata.topic_file import TOPIC_SETTINGS
from tests.support.cli_runner import done, run


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
        ("segment_bytes", "64 parsecs"),
        ("segment_bytes", "7d"),
        ("segment_ms", "64MiB"),
        ("segment_ms", "1.5h"),
        ("frame_records", "1k"),
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


@pytest.mark.parametrize(
    ("name", "text", "number"),
    [
        ("retention_ms", "7d", 7 * 86_400_000),
        ("retention_ms", "2w", 14 * 86_400_000),
        ("segment_ms", "12h", 12 * 3_600_000),
        ("segment_ms", "15 min", 900_000),
        ("lock_timeout_ms", "90s", 90_000),
        ("linger_ms", "500ms", 500),
        ("segment_bytes", "64MiB", 64 << 20),
        ("segment_bytes", "128m", 128 << 20),
        ("max_record_bytes", "4 KB", 4096),
        ("scrub_bytes_per_second", "1g", 1 << 30),
        ("retention_bytes", "8192", 8192),
    ],
)
def test_durations_and_sizes_are_taken_wherever_settings_are_set(
    tmp_path: Path, name: str, text: str, number: int
) -> None:
    found = [
        StoreConfig(**{name: text}),  # type: ignore[arg-type]
        StoreConfig.from_mapping({name: text}),
        StoreConfig.parse(f"{name}: {text}", {}),
        StoreConfig.parse("", {f"CURSUS_{name.upper()}": text}),
        StoreConfig().override({name: text}),
    ]
    assert [getattr(config, name) for config in found] == [number] * len(found)
    if name not in TOPIC_SETTINGS:
        return
    done("create", tmp_path, "a", "--set", f"{name}={text}")
    done("create", tmp_path, "b")
    done("alter", tmp_path, "b", "--set", f"{name}={text}")
    with Store.open(tmp_path) as store:
        store.create_topic("c", **{name: text})  # type: ignore[arg-type]
        assert [store.topic(topic).settings for topic in "abc"] == [{name: number}] * 3


def test_every_setting_with_a_unit_takes_one() -> None:
    for field in dataclasses.fields(StoreConfig):
        if field.name.endswith("_ms"):
            assert getattr(StoreConfig(**{field.name: "2m"}), field.name) == 120_000  # type: ignore[arg-type]
        elif "bytes" in field.name:
            assert getattr(StoreConfig(**{field.name: "64M"}), field.name) == 1 << 26  # type: ignore[arg-type]


def test_options_of_commands_take_units(tmp_path: Path) -> None:
    done("create", tmp_path, "a")
    done("merge", tmp_path, "--below", "16MiB", "--dry-run")
    done("scrub", tmp_path, "--rate", "32MiB")
    done("recompress", tmp_path, "--older-than-ms", "7d", "--dry-run")
    wrong = run("merge", tmp_path, "--below", "7d", "--dry-run")
    assert (wrong.code, "such as 64MiB" in wrong.err) == (2, True)
