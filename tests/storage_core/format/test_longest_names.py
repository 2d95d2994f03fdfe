"""The longest names that are allowed work in every place that makes a file name of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_core import Store
from storage_core.errors import InvalidNameError
from tests.support.stores import columns_of, errors, values


@pytest.mark.parametrize(
    ("layout", "length"),
    [("native", 249), ("cursus", 200), ("cursus-broker", 200), ("rustlog", 200)],
)
def test_a_topic_of_the_longest_name_can_do_everything(
    tmp_path: Path, layout: str, length: int
) -> None:
    topic = "a" * length
    store = Store.open(tmp_path, layout=layout, create=True)
    with pytest.raises(InvalidNameError, match=str(length)):
        store.create_topic("a" * (length + 1))
    store.create_topic(topic, 2)
    store.append(topic, 1, [b"a"])
    stage = store.stage("job")
    stage.write(topic, 1, columns_of([b"b"]))
    store.commit("job", stage.finish())
    store.commit_offsets("g" * 240, {topic: {1: 1}})
    store.roll(topic, 1)
    store.append(topic, 1, [b"c"])
    expected = [b"a", b"b", b"c"]
    if layout == "native":
        store.merge(topic)
        store.delete_records(topic, {1: 1})
        expected = expected[1:]
    if layout == "cursus-broker":
        store.compact(topic, policy="compact", min_dirty_ratio=0)
    last = sorted(file for file in tmp_path.rglob("*.log") if file.stat().st_size)[-1]
    with last.open("ab") as file:
        file.write(b"\0\0\0\x09torn")
    store = Store.open(tmp_path, layout=layout)
    store.repair()
    assert store.append(topic, 1, [b"d"]).start == 3
    assert (values(store, 1, topic), errors(store)) == ([*expected, b"d"], [])
    store.delete_topic(topic)
    assert store.topics() == []


def test_a_group_name_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    store = Store.open(tmp_path, create=True)
    store.create_topic("t")
    with pytest.raises(InvalidNameError, match="241 characters; the limit is 240"):
        store.commit_offsets("g" * 241, {"t": {0: 0}})
