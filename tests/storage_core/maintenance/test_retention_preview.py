"""A dry run of retention names what would go, and touches nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_core import Store, StoreConfig
from storage_core.errors import ConfigError
from tests.support.brokers.broker_directories import BROKER, CURSUS, RUSTLOG, Kind
from tests.support.brokers.broker_directories import TOPIC as ORDERS
from tests.support.stores import T0, TOPIC, make_store, tree


def filled(path: Path, **settings: object) -> Store:
    store = make_store(path, partitions=2, **settings)
    for number in range(3):
        store.append(TOPIC, 0, [b"x" * 100], timestamps=[T0 + number])
        store.roll(TOPIC, 0)
    return store


@pytest.mark.parametrize("settings", [{"retention_ms": 1}, {"retention_bytes": 0}])
def test_a_dry_run_names_what_the_real_run_drops(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    store = filled(tmp_path, **settings)
    before = tree(tmp_path)
    planned = store.retain(dry_run=True)
    assert planned == {(TOPIC, 0): [0, 1]}
    assert tree(tmp_path) == before
    assert store.retain() == planned
    assert store.retain(dry_run=True) == {}


def test_without_limits_nothing_would_go(tmp_path: Path) -> None:
    assert filled(tmp_path).retain(dry_run=True) == {}


@pytest.mark.parametrize("kind", [BROKER, RUSTLOG], ids=lambda kind: kind.name)
def test_a_dry_run_over_a_brokers_files_names_them(tmp_path: Path, kind: Kind) -> None:
    kind.write(tmp_path, [[b"a", b"b"], [b"c"], [b"d"]])
    store = Store.open(tmp_path, config=StoreConfig(retention_bytes=0))
    before = tree(tmp_path)
    assert store.retain(dry_run=True) == {(ORDERS, 0): [0, 2]}
    assert tree(tmp_path) == before
    assert store.retain() == {(ORDERS, 0): [0, 2]}


def test_files_that_offsets_count_from_cannot_go(tmp_path: Path) -> None:
    CURSUS.write(tmp_path, [[b"a"], [b"b"]])
    with pytest.raises(ConfigError, match="counts offsets from its first file"):
        Store.open(tmp_path, config=StoreConfig(retention_bytes=0)).retain(dry_run=True)
