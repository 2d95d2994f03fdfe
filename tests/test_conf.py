"""The configuration files load, and the default one is complete and says the defaults."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import yaml

from storage_core import StoreConfig
from storage_core.metadata.topic_file import TOPIC_SETTINGS
from tests.support.paths import ROOT

CONF = ROOT / "conf"
DEFAULT = CONF / "default.yaml"
NAMES = [field.name for field in dataclasses.fields(StoreConfig)]


def comment_above(name: str) -> str:
    """The comment lines right above a setting."""
    lines = DEFAULT.read_text().splitlines()
    found = [number for number, line in enumerate(lines) if line.startswith(f"{name}:")]
    assert len(found) == 1, f"explain {name} in conf/default.yaml, once"
    first = at = found[0]
    while lines[first - 1].startswith("#"):
        first -= 1
    return "\n".join(lines[first:at])


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.name)
def test_the_file_loads(path: Path) -> None:
    found = StoreConfig.parse(path.read_text(), environment={})
    assert (found == StoreConfig()) == (path == DEFAULT), "a profile that changes nothing"


def test_the_default_file_has_every_setting_and_no_other() -> None:
    assert sorted(yaml.safe_load(DEFAULT.read_text())) == sorted(NAMES)


def test_the_default_file_says_the_defaults() -> None:
    assert StoreConfig.parse(DEFAULT.read_text(), environment={}) == StoreConfig()


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_is_explained_and_says_whether_topics_have_it(name: str) -> None:
    comment = comment_above(name)
    assert comment
    assert ("(topic)" in comment) == (name in TOPIC_SETTINGS)


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("CURSUS_FSYNC", "interval", "fsync", "interval"),
        ("CURSUS_SEGMENT_BYTES", "8192", "segment_bytes", 8192),
        ("CURSUS_RETENTION_MS", "60000", "retention_ms", 60000),
        ("CURSUS_ALLOW_UNSAFE_FS", "true", "allow_unsafe_fs", True),
        ("CURSUS_NODE_NAME", "17", "node_name", "17"),
    ],
)
def test_the_environment_overrides_the_file(
    variable: str, text: str, name: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, text)
    config = StoreConfig.parse(DEFAULT.read_text())
    assert config == dataclasses.replace(StoreConfig(), **{name: value})  # type: ignore[arg-type]


def test_every_setting_for_spark_is_explained_and_given_once() -> None:
    names, explained = [], False
    for line in (CONF / "spark-defaults.conf").read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.partition(" ")
            assert name.startswith("spark."), line
            assert value.strip(), line
            assert explained, f"{name} has no comment above"
            names.append(name)
        else:
            explained = line.startswith("#")
    assert "spark.sql.shuffle.partitions" in names
    assert len(names) == len(set(names))
