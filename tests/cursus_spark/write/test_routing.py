"""Rows to topic-partitions: every row once, in its order, wherever batches begin and end."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursus_spark.schema import SinkColumns
from cursus_spark.write.routing import Router, together
from storage_core.format.partitioner import partition_for_key

ROWS = st.lists(
    st.lists(
        st.tuples(st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=50)), max_size=9
    ),
    max_size=9,
)
SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])
TASK = 5


def batches_of(rows: list[list[tuple[bytes | None, bytes | None]]]) -> list[pa.RecordBatch]:
    return [
        pa.record_batch([[key for key, _ in part], [value for _, value in part]], schema=SCHEMA)
        for part in rows
    ]


def router(partitions: int) -> Router:
    places = SinkColumns(value=1, key=0, topic=None, partition=None, headers=None, timestamp=None)
    return Router(
        places, topic="t", task=TASK, partitions_of=lambda _: partitions, now_us=lambda: 1
    )


@given(ROWS, st.sampled_from([1, 2, 3, 64]), st.integers(0, 30))
def test_every_row_reaches_the_partition_of_its_key_in_order(
    rows: list[list[tuple[bytes | None, bytes | None]]], partitions: int, wanted: int
) -> None:
    found: dict[int, list[tuple[bytes | None, bytes | None]]] = defaultdict(list)
    routes = router(partitions)
    for batch in together(batches_of(rows), lambda: wanted):
        for topic, partition, columns in routes.route(batch):
            assert topic == "t"
            keys = [None] * columns.count if columns.key is None else columns.key.to_pylist()
            values = [None] * columns.count if columns.value is None else columns.value.to_pylist()
            found[partition] += list(zip(keys, values, strict=True))
            sizes = [len(k or b"") + len(v or b"") for k, v in zip(keys, values, strict=True)]
            assert columns.size == sum(sizes)
    expected: dict[int, list[tuple[bytes | None, bytes | None]]] = defaultdict(list)
    for key, value in (row for part in rows for row in part):
        own = TASK % partitions
        expected[own if key is None else partition_for_key(key, partitions)].append((key, value))
    assert found == expected


def test_small_batches_are_routed_together_and_large_ones_as_they_are() -> None:
    small = batches_of([[(b"k", b"v" * 10)] * 100] * 7)
    assert [batch.num_rows for batch in together(small, lambda: 300)] == [300, 300, 100]
    assert [id(batch) for batch in together(small, lambda: 100)] == [id(batch) for batch in small]
    large = batches_of([[(b"k", b"v" * (9 << 20))]] * 5)
    assert [batch.num_rows for batch in together(large, lambda: 300)] == [2, 2, 1]


@pytest.mark.parametrize(("partitions", "rows"), [(1, 0), (64, 64_000)])
def test_more_partitions_ask_for_more_rows_at_once(partitions: int, rows: int) -> None:
    assert router(partitions).rows_wanted() == rows
