"""Configuration files and the environment: found, read, overridden, and refused with a hint."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_core import StoreConfig
from storage_core.errors import ConfigError
from tests.support.paths import ROOT

CONF = ROOT / "conf"
# Batch size, linger, queue and timeout as the designs of the handlers give them.
PROFILES = {
    "default": (500, 100, 10_000, 5000),
    "high-throughput": (1000, 200, 10_000, 5000),
    "low-latency": (100, 10, 1000, 1000),
    "memory-constrained": (50, 50, 100, 500),
}


@pytest.mark.parametrize("name", PROFILES)
def test_the_profiles_have_the_values_they_were_designed_with(name: str) -> None:
    config = StoreConfig.load(CONF / f"{name}.yaml", environment={})
    found = (
        config.disk_flush_batch_size,
        config.linger_ms,
        config.channel_buffer_size,
        config.disk_write_timeout_ms,
    )
    assert found == PROFILES[name]
    assert config.log_dir == "./logs"


def test_every_profile_has_a_file_and_every_file_is_a_profile() -> None:
    assert sorted(path.stem for path in CONF.glob("*.yaml")) == sorted(PROFILES)


def test_a_file_may_be_a_link_and_the_environment_wins(tmp_path: Path) -> None:
    (tmp_path / "real.yaml").write_text("linger_ms: 7\nlog_dir: a\n")
    (tmp_path / "link.yaml").symlink_to("real.yaml")
    config = StoreConfig.load(
        str(tmp_path / "link.yaml"), {"CURSUS_LOG_DIR": "1", "CURSUS_LINGER_MS": "8"}
    )
    assert (config.linger_ms, config.log_dir) == (8, "1")


def test_the_real_environment_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c.yaml").write_text("")
    monkeypatch.setenv("CURSUS_CHANNEL_BUFFER_SIZE", "9")
    assert StoreConfig.load(tmp_path / "c.yaml").channel_buffer_size == 9


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("linger: 5", "Did you mean 'linger_ms'"),
        ("linger_ms: soon", "'linger_ms' must be an integer"),
        ("linger_ms: true", "'linger_ms' must be an integer"),
        ("log_dir: 5", "'log_dir' must be text"),
        ("layout: pulsar", "one of auto, native, cursus, cursus-broker, rustlog"),
        ("write_through: sync", "one of none, dsync, direct"),
        ("[1]", "must be a mapping"),
        ("a: [", "not valid YAML"),
        ("channel_buffer_size: 0", "'channel_buffer_size' must be an integer 1"),
    ],
)
def test_a_bad_file_is_refused_with_its_name_and_a_hint(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        StoreConfig.load(path, {})
    assert str(path) in str(caught.value)


def test_a_missing_or_unreadable_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml cannot be read"):
        StoreConfig.load(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        StoreConfig.load(tmp_path / "bytes.yaml")


def test_a_variable_that_is_almost_right_is_refused_and_a_strange_one_is_not_ours() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'CURSUS_LINGER_MS'"):
        StoreConfig.parse("", {"CURSUS_LINGER_SM": "5"})
    with pytest.raises(ConfigError, match="not valid YAML"):
        StoreConfig.parse("", {"CURSUS_LINGER_MS": "["})
    assert StoreConfig.parse("", {"CURSUS_HOME": "/opt", "PATH": "x"}) == StoreConfig()
