"""``create``, ``alter``, ``delete``."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_core import Store
from tests.support.cli_runner import TOPIC, done, made, run


def test_create_makes_the_store_and_takes_settings(tmp_path: Path) -> None:
    path = tmp_path / "new"
    settings = ["--set", "compression=zstd", "--set", "retention_ms=60000"]
    done("create", path, TOPIC, "--partitions", 3, *settings)
    found = Store.open(path).topic(TOPIC)
    assert found.partitions == 3
    assert dict(found.settings) == {"compression": "zstd", "retention_ms": 60000}
    again = run("create", path, TOPIC)
    assert again.code == 1
    assert again.err.startswith("cursus: [TOPIC_EXISTS] ")
    done("create", path, TOPIC, "--if-not-exists")
    wrong = run("create", path, "other", "--set", "speed=9")
    assert (wrong.code, wrong.err[:25]) == (1, "cursus: [CONFIG_INVALID] ")
    assert run("create", path, "other", "--set", "compression").code == 2
    typo = run("create", path, "other", "--set", "retention=3d")
    assert "'retention' is not a topic setting. Did you mean 'retention_ms'? Topic se" in typo.err


def test_alter_grows_and_changes(tmp_path: Path) -> None:
    made(tmp_path)
    done("alter", tmp_path, TOPIC, "--partitions", 2, "--set", "compression=lz4")
    found = Store.open(tmp_path).topic(TOPIC)
    assert (found.partitions, dict(found.settings)) == (2, {"compression": "lz4"})
    done("alter", tmp_path, TOPIC, "--set", "compression=default", "--set", "segment_ms=1000")
    assert dict(Store.open(tmp_path).topic(TOPIC).settings) == {"segment_ms": 1000}
    done("create", tmp_path, "plain", "--set", "compression=none", "--set", "segment_ms=default")
    assert dict(Store.open(tmp_path).topic("plain").settings) == {"compression": "none"}
    assert run("alter", tmp_path, TOPIC).code == 2


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("min_cleanable_dirty_ratio=0.3", 0.3),
        ("min_cleanable_dirty_ratio=1", 1),
        ("retention_hold_groups=123", "123"),
        ("retention_hold_groups=", ""),
        ("retention_ms=1000", 1000),
        ("cleanup_policy=delete,compact", "delete,compact"),
    ],
)
def test_a_setting_has_its_own_type(tmp_path: Path, pair: str, value: object) -> None:
    name = pair.partition("=")[0]
    done("create", tmp_path, TOPIC, "--set", pair)
    assert dict(Store.open(tmp_path).topic(TOPIC).settings) == {name: value}
    done("create", tmp_path, "other")
    done("alter", tmp_path, "other", "--set", pair)
    assert dict(Store.open(tmp_path).topic("other").settings) == {name: value}


@pytest.mark.parametrize("pair", ["retention_ms=", "retention_ms=null"])
def test_a_setting_without_a_value_is_not_taken_for_the_default(tmp_path: Path, pair: str) -> None:
    refused = run("create", tmp_path / "log", TOPIC, "--set", pair)
    assert refused.code == 2
    assert "retention_ms=default" in refused.err
    assert not (tmp_path / "log").exists()


def test_delete_asks_first(tmp_path: Path) -> None:
    made(tmp_path)
    refused = run("delete", tmp_path, TOPIC, given="n\n")
    assert refused.code == 1
    assert "Delete orders (1 partition, 5 records" in refused.err
    assert run("delete", tmp_path, TOPIC, given="").code == 1
    assert Store.open(tmp_path).topics() == [TOPIC]
    done("delete", tmp_path, TOPIC, given="y\n")
    assert Store.open(tmp_path).topics() == []
    assert run("delete", tmp_path, TOPIC, "--yes").code == 1
