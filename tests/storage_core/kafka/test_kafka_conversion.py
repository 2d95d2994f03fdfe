"""A conversion of what only Kafka's directories have: markers at the end, disks, no times."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from storage_core import Store, convert
from tests.support.brokers.kafka_encoder import (
    Batch,
    Record,
    marker,
    write_checkpoint,
    write_partition,
)
from tests.support.stores import rows


def batch(base: int, count: int = 3) -> Batch:
    return Batch(base, [Record(b"value %d" % (base + at), b"key") for at in range(count)])


def in_transaction(base: int) -> Batch:
    return Batch(base, [Record(b"value %d" % base)], producer=1, transactional=True)


@pytest.mark.parametrize("layout", ["native", "objects"])
def test_no_record_gets_the_offset_of_a_marker(tmp_path: Path, layout: str) -> None:
    """A group that has read all has committed the offset after the marker."""
    kafka, target = tmp_path / "kafka", tmp_path / "target"
    committed = [in_transaction(0), marker(1, 1, commit=True)]
    aborted = [in_transaction(0), marker(1, 1, commit=False)]
    write_partition(kafka, "t", 0, [committed])
    write_partition(kafka, "t", 1, [aborted])
    write_partition(kafka, "t", 2, [[batch(0)]])
    write_checkpoint(kafka, {("t", 0): 2, ("t", 1): 2, ("t", 2): 3})
    for _ in range(2):
        convert(kafka, target, layout=layout)
    write_partition(kafka, "t", 2, [[batch(0), in_transaction(3), marker(4, 1, commit=False)]])
    write_checkpoint(kafka, {("t", 0): 2, ("t", 1): 2, ("t", 2): 5})
    for _ in range(2):
        convert(kafka, target, layout=layout)
    with Store.open(target) as store:
        assert store.visible_ends("t") == (2, 2, 5)
        assert store.offsets("t", 1).start == store.offsets("t", 1).end or layout == "native"
        for partition, end in enumerate((2, 2, 5)):
            added = store.append("t", partition, [b"new"])
            assert added.start == end
        assert [row["offset"] for row in rows(store.read("t", 0))] == [0, 2]
        assert [row["offset"] for row in rows(store.read("t", 1))] == [2]
        assert [row["offset"] for row in rows(store.read("t", 2))] == [0, 1, 2, 5]
        assert store.check() == []
    with Store.open(target) as store:
        assert store.visible_ends("t") == (3, 3, 6)


def test_the_disks_of_a_broker_are_converted_into_one_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, two, target = tmp_path / "one", tmp_path / "two", tmp_path / "target"
    for disk, partitions in ((one, (0, 3)), (two, (1, 2))):
        for partition in partitions:
            write_partition(disk, "t", partition, [[batch(0, 3 + partition)]])
        write_checkpoint(disk, {("t", number): 3 + number for number in partitions})
    with caplog.at_level(logging.WARNING, "storage_core"):
        done = convert(two, target)
    assert [(it.partition, it.copied) for it in done] == [(1, 4), (2, 5)]
    assert "t-0 is not converted: t-0 is not in" in caplog.text
    done = convert(one, target)
    assert [(it.partition, it.copied) for it in done] == [(0, 3), (3, 6)]
    assert [it.copied for it in convert(two, target)] == [0, 0]
    with Store.open(target) as store:
        assert store.visible_ends("t") == (3, 4, 5, 6)


def test_records_that_retention_took_before_they_were_copied_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kafka, target = tmp_path / "kafka", tmp_path / "target"
    write_partition(kafka, "t", 0, [[batch(0)], [batch(3)]])
    write_checkpoint(kafka, {("t", 0): 6})
    convert(kafka, target)
    assert "removed" not in caplog.text
    shutil.rmtree(kafka / "t-0")
    write_partition(kafka, "t", 0, [[batch(9)]])
    write_checkpoint(kafka, {("t", 0): 12})
    with caplog.at_level(logging.WARNING, "storage_core"):
        assert [it.copied for it in convert(kafka, target)] == [3]
    assert "t-0: offsets 6 to 8 were removed from the source" in caplog.text
    with Store.open(target) as store:
        assert [row["offset"] for row in rows(store.read("t", 0))] == [*range(6), *range(9, 12)]


def test_a_record_without_a_time_gets_none_of_today(tmp_path: Path) -> None:
    """Kafka shows -1 for it, which no clock says."""
    kafka, target = tmp_path / "kafka", tmp_path / "target"
    none, some = Record(b"none", time=-1), Record(b"some", time=5)
    write_partition(kafka, "t", 0, [[Batch(0, [none, none]), Batch(2, [none, some])]])
    write_checkpoint(kafka, {("t", 0): 4})
    for _ in range(2):
        convert(kafka, target)
    with Store.open(target) as store:
        times = [
            micros
            for found in store.read("t", 0, columns=["timestamp"])
            for micros in found["timestamp"].cast("int64").to_pylist()
        ]
    assert times == [-1000, -1000, -1000, 5000]


def test_a_changed_time_in_the_target_is_found(tmp_path: Path) -> None:
    kafka, target = tmp_path / "kafka", tmp_path / "target"
    write_partition(kafka, "t", 0, [[Batch(0, [Record(b"v", time=5), Record(b"w", time=6)])]])
    write_checkpoint(kafka, {("t", 0): 2})
    with Store.open(target, create=True) as store:
        store.create_topic("t")
        store.append("t", 0, [b"v"], timestamps=[7000])
    with pytest.raises(Exception, match="record 0 from offset 0 on differs"):
        convert(kafka, target)
