"""Settings of a store reach the connector and the command through the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from cursus_spark.options.parse import parse_read_options, parse_write_options
from cursus_spark.store import open_for_read, open_for_write
from storage_core import StorageError
from tests.support.cli_runner import run

VARIABLE = "CURSUS_LOCK_TIMEOUT_MS"


def test_reads_and_writes_take_settings_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "1234")
    options = {"path": str(tmp_path / "log"), "topic": "orders"}
    with open_for_write(parse_write_options(options)) as store:
        assert store.config.lock_timeout_ms == 1234
    with open_for_read(parse_read_options(options)) as store:
        assert store.config.lock_timeout_ms == 1234


def test_a_wrong_setting_is_refused_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "soon")
    with pytest.raises(StorageError, match="lock_timeout_ms"):
        open_for_write(parse_write_options({"path": str(tmp_path / "log"), "topic": "orders"}))
    ended = run("create", tmp_path / "log", "orders")
    assert ended.code == 1
    assert "CONFIG_INVALID" in ended.err
    assert "lock_timeout_ms" in ended.err
