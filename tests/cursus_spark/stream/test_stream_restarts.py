"""A query that goes on from its checkpoint with other topics than before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cursus_spark.errors import CursusError
from storage_core import Store
from tests.support.spark.micro_batches import TOPIC, MicroBatches, payloads, texts

FORGOTTEN = "no longer subscribed"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with a topic of two partitions, one of which has records."""
    made = Store.open(tmp_path / "log", create=True)
    made.create_topic(TOPIC, 2)
    made.append(TOPIC, 0, payloads(0, 3))
    return made


@pytest.fixture
def stream(store: Store) -> MicroBatches:
    """A query that has read all of it."""
    query = MicroBatches(Path(store.path))
    assert query.drain() == [texts(0, 3)]
    return query


@pytest.mark.parametrize("topics", ["ordres", "orders,ordres"])
def test_a_topic_that_nobody_made_is_refused_and_the_position_stays(
    store: Store, stream: MicroBatches, topics: str
) -> None:
    with pytest.raises(CursusError, match=r"TOPIC_NOT_FOUND\] Topic 'ordres'.*found: orders\."):
        stream.restart(subscribe=topics).trigger()
    with pytest.raises(CursusError, match="TOPIC_NOT_FOUND"):
        stream.trigger()
    store.append(TOPIC, 0, payloads(3, 5))
    assert stream.restart(subscribe=TOPIC).drain() == [texts(3, 5)]


def test_with_leave_to_lose_such_a_topic_is_a_warning(
    store: Store, stream: MicroBatches, caplog: pytest.LogCaptureFixture
) -> None:
    stream.restart(subscribe="orders,later", failOnDataLoss="false")
    assert stream.drain() == []
    assert caplog.text.count("TOPIC_NOT_FOUND") == 1
    store.create_topic("later")
    store.append("later", 0, payloads(0, 1))
    assert stream.drain() == [["0"]]


@pytest.mark.parametrize(
    ("assigned", "error"),
    [
        (
            '{"orders":[0,7]}',
            r"PARTITION_NOT_FOUND\] Option 'assign': .*'orders' has no partition 7",
        ),
        ('{"ordres":[0]}', "TOPIC_NOT_FOUND"),
    ],
)
def test_a_partition_that_nobody_made_is_refused(
    stream: MicroBatches, assigned: str, error: str
) -> None:
    with pytest.raises(CursusError, match=error):
        stream.restart(assign=assigned).trigger()


@pytest.mark.parametrize("changed", [{"subscribe": "other"}, {"assign": '{"orders":[1]}'}])
def test_a_position_that_is_forgotten_is_reported_once(
    store: Store, stream: MicroBatches, changed: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    store.create_topic("other")
    stream.restart(**changed)
    assert stream.drain() == [[]]
    assert caplog.text.count(FORGOTTEN) == 1
    assert "Topic 'orders'" in caplog.text
    assert ("partitions [0]" in caplog.text) == ("assign" in changed)
    assert stream.restart().drain() == []
    assert caplog.text.count(FORGOTTEN) == 1


def test_the_same_is_reported_where_spark_does_not_say_where_the_stream_stands(
    store: Store, stream: MicroBatches, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark 4.1 calls ``latestOffset()`` without arguments."""
    store.create_topic("other")
    start = stream.position()
    stream.restart(subscribe="ordres")
    with pytest.raises(CursusError, match="TOPIC_NOT_FOUND"):
        stream.reader.latestOffset()
    stream.restart(subscribe="other")
    stream.reader.partitions(start, stream.reader.latestOffset())
    assert caplog.text.count(FORGOTTEN) == 1
