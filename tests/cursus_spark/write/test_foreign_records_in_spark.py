"""A write job is killed while its commit is applied, and a broker appends before the next job."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tests.support.brokers.broker_directories import foreign_append
from tests.support.cli_runner import done
from tests.support.spark.dataframes import TOPIC, Log, one_line_error
from tests.support.spark.faulty_source import KilledWhileAppliedSource

PARTITIONS, ROWS = 2, 100
BEFORE = [f"before-{number}" for number in range(6)]
OURS = [f"ours-{number:03}".ljust(200, ".") for number in range(ROWS)]
THEIRS = [f"theirs-{number}" for number in range(5)]
NEXT = ["next-0", "next-1"]


def write(log: Log, values: list[str], source: str = "cursus") -> None:
    """Write from one task; the rows go to the partitions in turn."""
    rows = [(value, number % PARTITIONS) for number, value in enumerate(values)]
    frame = log.frame(rows, "value string, partition int")
    frame.write.format(source).option("topic", TOPIC).mode("append").save(str(log.path))


def killed_job(spark: SparkSession, path: Path, layout: str) -> Log:
    """A directory in which a job was killed inside its second write to a log."""
    log = Log(spark, path)
    with log.store(layout=layout, create=True) as store:
        store.create_topic(TOPIC, PARTITIONS)
    write(log, BEFORE)
    spark.dataSource.register(KilledWhileAppliedSource)
    with pytest.raises(Py4JJavaError, match="Writing job failed"):
        write(log, OURS, "killed_while_applied")
    with log.store() as store:
        assert len(store.pending_commits()) == 1
    return log


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.row(39)
@pytest.mark.parametrize("layout", ["cursus", "cursus-broker", "rustlog"])
def test_records_of_a_broker_outlive_a_killed_job_and_the_next_one(
    spark: SparkSession, tmp_path: Path, layout: str
) -> None:
    log = killed_job(spark, tmp_path / "log", layout)
    for partition in range(PARTITIONS):
        theirs = [f"{value} in {partition}".encode() for value in THEIRS]
        foreign_append(log.path, layout, partition, theirs, TOPIC)
    found = one_line_error(lambda: write(log, NEXT))
    assert found.startswith(f"[CURSUS_FOREIGN_RECORDS] {TOPIC}-"), found
    assert "cursus pending" in found
    assert set(BEFORE) <= set(log.texts()), "reads go on"
    with log.store() as store:
        (pending,) = store.pending_commits()
    for decision in ("--finish", "--give-up"):
        copy = replace(log, path=tmp_path / decision)
        shutil.copytree(log.path, copy.path)
        done("pending", copy.path, decision, pending.transaction, "--yes")
        write(copy, NEXT)
        there = Counter(copy.texts())
        kept = [*BEFORE, *NEXT, *(f"{value} in {at}" for value in THEIRS for at in range(2))]
        assert set(there.values()) == {1}
        assert set(kept) <= set(there)
        ours = set(there) - set(kept)
        assert ours == set(OURS) if decision == "--finish" else ours < set(OURS)
