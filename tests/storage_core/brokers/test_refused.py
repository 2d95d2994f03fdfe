"""What a layout cannot store is an error that names it, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from storage_core import OffsetRange, Store, StoreConfig
from storage_core.errors import InvalidRecordError, RecordTooLargeError, UnsupportedColumnError
from tests.support.brokers.broker_directories import TOPIC, read

MIB = 1 << 20


def make(root: Path, layout: str, partitions: int = 1, **settings: Any) -> Store:
    store = Store.open(root, layout=layout, create=True, config=StoreConfig(**settings))
    store.create_topic(TOPIC, partitions)
    return store


def sizes(root: Path) -> list[int]:
    files = sorted(root.rglob("*.log"), key=lambda file: (len(file.name), file.name))
    return [file.stat().st_size for file in files]


@pytest.mark.parametrize("layout", ["cursus", "rustlog"])
@pytest.mark.parametrize(
    ("column", "given"),
    [
        ("key", {"keys": [None, b"k"]}),
        ("headers", {"headers": [None, {"a": b"b"}]}),
        ("timestamp", {"timestamps": [1, 2]}),
    ],
)
def test_a_column_without_a_place_is_an_error_that_names_it(
    tmp_path: Path, layout: str, column: str, given: dict[str, Any]
) -> None:
    store = make(tmp_path, layout)
    with pytest.raises(UnsupportedColumnError, match=f"layout {layout} .*'{column}'"):
        store.append(TOPIC, 0, [b"a", b"b"], **given)
    nothing: dict[str, Any] = {name: [None, None] for name in given}
    assert store.append(TOPIC, 0, [b"a", b"b"], **nothing) == OffsetRange(0, 2)


def test_what_the_broker_has_no_field_for(tmp_path: Path) -> None:
    store = make(tmp_path, "cursus-broker")
    with pytest.raises(UnsupportedColumnError, match="timestamp"):
        store.append(TOPIC, 0, [b"a"], timestamps=[1])
    with pytest.raises(UnsupportedColumnError, match="'colour'"):
        store.append(TOPIC, 0, [b"a"], headers=[{"colour": b"red"}])


@pytest.mark.parametrize("layout", ["cursus", "cursus-broker", "rustlog"])
def test_a_record_that_cannot_be_stored_leaves_nothing_of_its_append(
    tmp_path: Path, layout: str
) -> None:
    store = make(tmp_path, layout)
    many = [bytes(MIB)] * 20
    with pytest.raises(InvalidRecordError):
        store.append(TOPIC, 0, [*many, None])
    with pytest.raises(InvalidRecordError):
        store.append(TOPIC, 0, [None])
    if layout != "cursus":
        with pytest.raises(RecordTooLargeError):
            store.append(TOPIC, 0, [*many, bytes(16 * MIB)])
    assert store.offsets(TOPIC, 0).end == 0
    assert sizes(tmp_path) == [0]


def test_largest_record_of_rustlog(tmp_path: Path) -> None:
    store = make(tmp_path, "rustlog")
    store.append(TOPIC, 0, [bytes(10 * MIB)])
    with pytest.raises(RecordTooLargeError):
        store.append(TOPIC, 0, [bytes(10 * MIB + 1)])
    assert [len(value) for value in read(store).values] == [10 * MIB]
