"""The log directories of a real broker give what Kafka's consumers got of it."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from storage_core import Store
from storage_core.types import IsolationLevel
from tests.support.brokers.broker_directories import snapshot
from tests.support.brokers.kafka_directories import (
    CASES,
    DATA,
    compare,
    copied,
    partitions,
    preallocate,
)

LEVELS = get_args(IsolationLevel)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("isolation", LEVELS)
@pytest.mark.row(50)
def test_records_are_those_of_a_consumer(case: str, isolation: IsolationLevel) -> None:
    compare(DATA / case, isolation)


@pytest.mark.parametrize("case", ["killed", "transactions"])
def test_zeros_that_the_broker_added_to_its_files_change_nothing(case: str, tmp_path: Path) -> None:
    copy = copied(case, tmp_path)
    preallocate(copy)
    for isolation in LEVELS:
        compare(copy, isolation)


@pytest.mark.parametrize("case", CASES)
def test_a_sound_directory_has_no_problems_and_stays_as_it_is(case: str, tmp_path: Path) -> None:
    copy = copied(case, tmp_path)
    before = snapshot(copy)
    with Store.open(copy) as store:
        assert store.layout == "kafka"
        assert store.check() == []
    compare(copy, "read_committed")
    assert snapshot(copy) == before
    assert not (copy / ".cursus-spark").exists()


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot"])
def test_what_the_broker_can_make_again_may_be_missing(suffix: str, tmp_path: Path) -> None:
    for case in ("transactions", "compaction", "segments"):
        copy = copied(case, tmp_path)
        for file in copy.rglob(f"*{suffix}"):
            file.unlink()
        for isolation in LEVELS:
            compare(copy, isolation)


@pytest.mark.parametrize("case", ["segments", "compaction", "transactions", "codecs"])
def test_every_start_and_end_gives_the_records_between(case: str) -> None:
    for it in partitions(case):
        known = [each.offset for each in it.uncommitted.records]
        with Store.open(DATA / case, isolation="log_end") as store:
            edges = [*known, it.uncommitted.end, it.uncommitted.start]
            for start in edges[::3]:
                for end in edges[1::4]:
                    if start <= end:
                        found = store.read(it.topic, it.number, start, end, columns=["offset"])
                        got = [at for batch in found for at in batch["offset"].to_pylist()]
                        assert got == [at for at in known if start <= at < end]


@pytest.mark.parametrize("case", ["segments", "times", "compaction"])
def test_the_offset_of_a_time_is_that_of_the_first_such_record(case: str) -> None:
    """As Kafka says it: the first record, by offset, whose time is at or after that time."""
    for it in partitions(case):
        records = it.uncommitted.records
        with Store.open(DATA / case, isolation="log_end") as store:
            for time in {each.timestamp for each in records}:
                for asked in (time - 1, time, time + 1):
                    due = next((each.offset for each in records if each.timestamp >= asked), None)
                    found = store.offset_for_timestamp(it.topic, it.number, 1000 * asked)
                    assert (asked, found) == (asked, due)
