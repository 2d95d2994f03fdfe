"""Telling directories apart: each layout, mixtures, and what is none of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_core import Store
from storage_core.errors import LayoutMismatchError, LayoutNotFoundError
from tests.support.brokers.broker_directories import (
    BROKER,
    CURSUS,
    KINDS,
    NESTED,
    RUSTLOG,
    TOPIC,
    Kind,
    read,
)
from tests.support.stores import make_store

LOOKED_FOR = (
    "meta/broker.id",
    "partition_<p>_segment_<n>.log",
    "partition_<p>_segment_<20 digits>.log",
    "topics/<topic>/partition-<p>/<20 digits>.log",
)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.name))
def test_each_layout_is_recognised(tmp_path: Path, kind: Kind) -> None:
    kind.write(tmp_path, [[b"a"]])
    assert Store.open(tmp_path).layout == kind.layout
    assert Store.open(tmp_path, layout=kind.layout).layout == kind.layout
    assert Store.open(tmp_path, create=True).layout == kind.layout


def test_a_native_store_is_recognised(tmp_path: Path) -> None:
    make_store(tmp_path).close()
    assert Store.open(tmp_path).layout == "native"


@pytest.mark.parametrize("names", [["notes.txt"], ["a/b/c"], ["orders/partition_0_00001.log"]])
def test_a_directory_that_is_none_says_what_was_looked_for(
    tmp_path: Path, names: list[str]
) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(LayoutNotFoundError) as caught:
        Store.open(tmp_path)
    assert all(text in str(caught.value) for text in LOOKED_FOR)
    assert names[0].partition("/")[0] in str(caught.value)


def test_an_empty_directory_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(LayoutNotFoundError, match=r"is empty\..*create=True") as caught:
        Store.open(tmp_path)
    assert all(text in str(caught.value) for text in LOOKED_FOR)


def test_a_path_that_is_not_there_says_so_first(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(LayoutNotFoundError, match=r"create=True") as caught:
        Store.open(missing)
    assert str(caught.value).startswith(f"{missing} does not exist. Check the path.")
    assert "Looked for" not in str(caught.value), "there is nothing to look into"


@pytest.mark.parametrize("layout", ["native", "objects"])
@pytest.mark.parametrize("wrong", ["", "lgo", "log/topics", "log/orders/0", "log/missing"])
def test_a_path_beside_a_store_names_the_store(tmp_path: Path, layout: str, wrong: str) -> None:
    store = tmp_path / "log"
    Store.open(store, layout, create=True).close()
    (store / "topics").mkdir(exist_ok=True)
    (store / "orders" / "0").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    with pytest.raises(LayoutNotFoundError) as caught:
        Store.open(tmp_path / wrong)
    assert str(caught.value).startswith(str(tmp_path / wrong))
    assert f"There is a store at {store}." in str(caught.value)


def test_the_error_for_a_writer_proposes_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"x")
    with pytest.raises(LayoutNotFoundError, match="A new store needs a directory that is new or"):
        Store.open(tmp_path, create=True)


def test_an_unknown_layout_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(LayoutNotFoundError, match="cursus-broker"):
        Store.open(tmp_path, layout="kafka")


def test_the_wrong_layout_is_refused(tmp_path: Path) -> None:
    BROKER.write(tmp_path, [[b"a"]])
    for layout in ("cursus", "rustlog", "native"):
        with pytest.raises(LayoutMismatchError, match="cursus-broker"):
            Store.open(tmp_path, layout=layout, create=True)


def test_an_unfinished_upgrade_is_a_mixture_until_a_layout_is_named(tmp_path: Path) -> None:
    CURSUS.write(tmp_path, [[b"old"]])
    BROKER.write(tmp_path, [[b"new"]], first=1)
    with pytest.raises(LayoutMismatchError, match="cursus and cursus-broker"):
        Store.open(tmp_path)
    assert read(Store.open(tmp_path, layout="cursus")).values == [b"old"]
    assert read(Store.open(tmp_path, layout="cursus-broker")).values == [b"new"]


def test_a_native_store_beside_a_brokers_files(tmp_path: Path) -> None:
    make_store(tmp_path).close()
    RUSTLOG.write(tmp_path, [[b"a"]])
    with pytest.raises(LayoutMismatchError, match="native store and files of rustlog"):
        Store.open(tmp_path)


def test_flat_and_nested_files_of_one_partition(tmp_path: Path) -> None:
    CURSUS.write(tmp_path, [[b"a"]])
    NESTED.write(tmp_path, [[b"b"]])
    store = Store.open(tmp_path)
    with pytest.raises(LayoutMismatchError, match="nothing tells which come first"):
        store.read(TOPIC, 0)


def test_a_broker_without_topics_is_known_by_its_metadata(tmp_path: Path) -> None:
    (tmp_path / "__topic_metadata.json").write_text('{"version": 1, "topics": []}')
    store = Store.open(tmp_path)
    assert (store.layout, store.topics()) == ("cursus-broker", [])
