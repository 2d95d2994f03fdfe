"""Whole Spark applications: killed, retried, side by side, on a cluster, over Connect, installed.

They all start when the first test asks, a few at a time, while a reader loops over their logs.
"""

from __future__ import annotations

import signal
import site
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from storage_core import Store
from tests.support.built_wheel import build_wheel, source_files
from tests.support.paths import ROOT
from tests.support.sizes import LONG
from tests.support.spark import batch_child
from tests.support.spark.applications import Applications, Ended, Watcher, commits, halves
from tests.support.spark.batch_child import PARTITIONS, ROWS, TOPIC
from tests.support.stores import columns_of

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

WRITE = PARTITIONS * ROWS
KILLS = [
    ("driver_killed_before_intent", "native"),
    ("driver_killed_after_intent", "native"),
]
if LONG:
    KILLS.append(("driver_killed_after_intent", "rustlog"))


class Runs:
    """Every application of this file under way, with its log and what it becomes."""

    def __init__(self, directory: Path, applications: Applications) -> None:
        self._directory = directory
        self._applications = applications
        self._ended: dict[str, Future[Ended]] = {}
        for name in ("left", "right"):
            self.start(name, "writes", self.log("shared"), name, 2, 4)
        self.start("faults", "faults", self.log("faults"))
        for fault, layout in KILLS:
            name = f"{fault}-{layout}"
            self.start(name, "killed_driver", self.log(name), fault, layout)
        self.start("connect", "connect", self.log("connect"))
        self._start_installed()
        self._start_shipped()
        logs = ("shared", "faults", *(f"{fault}-{layout}" for fault, layout in KILLS))
        self.watcher = Watcher(*map(self.log, logs))
        self.watcher.start()

    def log(self, name: str) -> Path:
        return self._directory / name / "log"

    def done(self, name: str) -> bool:
        return self._ended[name].done()

    def ended(self, name: str) -> Ended:
        return self._ended[name].result(500)

    def start(self, name: str, task: str, log: Path, *arguments: object) -> None:
        """Start an application on a log of its own or a shared one."""
        log.parent.mkdir(exist_ok=True)
        self._ended[name] = self._applications.start(task, log, *arguments)

    def _start_installed(self) -> None:
        """From a wheel beside the libraries, in a directory without the source."""
        target = self._directory / "installed"
        target.mkdir()
        wheel = build_wheel(target)
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target"]
        subprocess.run([*command, str(target / "site"), str(wheel)], check=True)
        self._ended["installed"] = self._applications.run(
            [sys.executable, batch_child.__file__, "installed", str(self.log("installed"))],
            {"PYTHONPATH": str(target / "site")},
            target,
        )

    def _start_shipped(self) -> None:
        """By ``spark-submit --py-files``, under an interpreter that knows nothing of us."""
        target = self._directory / "shipped"
        target.mkdir()
        with zipfile.ZipFile(target / "cursus_spark.zip", "w") as archive:
            for file in source_files("cursus_spark", "storage_core"):
                archive.write(file, file.relative_to(ROOT))
        python = target / "python"
        # Without site there are no .pth files, which would lead to the source.
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
        python.chmod(0o755)
        submit = Path(sys.executable).with_name("spark-submit")
        options = ["--master", "local[2]", "--py-files", str(target / "cursus_spark.zip")]
        self._ended["shipped"] = self._applications.run(
            [str(submit), *options, batch_child.__file__, "py_files", str(self.log("shipped"))],
            {
                "PYSPARK_PYTHON": str(python),
                "PYSPARK_DRIVER_PYTHON": str(python),
                "PYTHONPATH": site.getsitepackages()[0],
            },
            target,
        )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with Applications() as applications:
        running = Runs(tmp_path_factory.mktemp("applications"), applications)
        yield running
        running.watcher.stop()


def tags(log: Path) -> set[str]:
    """The whole commits of a log; half ones fail here."""
    with Store.open(log) as store:
        found = commits(store)
    assert halves(found) == []
    return set(found)


@pytest.mark.row(41)
def test_two_jobs_on_one_topic_lose_and_mix_nothing(runs: Runs, spark: SparkSession) -> None:
    log, looks = runs.log("shared"), 0
    while not (runs.done("left") and runs.done("right")):
        if not (log / "topics" / TOPIC / "watermark").exists():
            continue
        rows = spark.read.format("cursus").option("subscribe", TOPIC).load(str(log))
        counted = rows.selectExpr("substring_index(cast(value as string), '-', 1) tag", "partition")
        found: dict[str, Counter[int]] = {}
        for row in counted.groupBy("tag", "partition").count().collect():
            found.setdefault(row["tag"], Counter())[row["partition"]] = row["count"]
        assert halves(found) == []
        looks += 1
    assert [runs.ended(name).result for name in ("left", "right")] == [4, 4]
    assert tags(log) == {f"{name}.{number}" for name in ("left", "right") for number in range(4)}
    assert looks > 0


@pytest.mark.chaos
@pytest.mark.row(37)
def test_a_task_that_fails_twice_and_a_killed_worker_write_once(runs: Runs) -> None:
    ended = runs.ended("faults")
    assert ended.result == 3 * WRITE, ended.errors
    assert tags(runs.log("faults")) == {"twice", "killed", "version"}
    assert "this attempt was made to fail" in ended.errors
    assert list((runs.log("faults") / "staging").iterdir()) == []


def test_a_version_written_again_is_skipped_and_that_is_logged(runs: Runs) -> None:
    message = "txnAppId 'app' committed txnVersion 7 before: nothing was written"
    assert message in runs.ended("faults").errors


@pytest.mark.chaos
@pytest.mark.row(39)
@pytest.mark.parametrize(("fault", "layout"), KILLS)
def test_a_commit_whose_driver_was_killed_happens_whole_or_not_at_all(
    runs: Runs, fault: str, layout: str
) -> None:
    ended, log = runs.ended(f"{fault}-{layout}"), runs.log(f"{fault}-{layout}")
    assert ended.status == -signal.SIGKILL, ended.errors
    assert tags(log) == {"before"}, "nobody sees a commit that is not finished"
    with Store.open(log) as store:
        next_job = store.stage("next")
        for partition in range(PARTITIONS):
            next_job.write(TOPIC, partition, columns_of([b"after-0"] * ROWS))
        store.commit("next", next_job.finish())
    decided = {"killed"} if "after" in fault else set()
    assert tags(log) == {"before", "after", *decided}
    if not decided:
        staging = log / ("staging" if layout == "native" else ".cursus-spark/staging")
        assert len(list(staging.iterdir())) == 1, "swept by age: its job might still live"


def test_no_reader_saw_half_a_commit_at_any_time(runs: Runs) -> None:
    for name in ("left", "right", "faults", *(f"{fault}-{layout}" for fault, layout in KILLS)):
        runs.ended(name)
    assert runs.watcher.wrong == []
    assert len(runs.watcher.looks) == 2 + len(KILLS)
    assert min(runs.watcher.looks.values()) > 5


@pytest.mark.chaos
@pytest.mark.long
@pytest.mark.row(37)
def test_executors_in_other_processes_write_and_read_and_one_that_is_killed_writes_once(
    runs: Runs,
) -> None:
    runs.start("cluster", "cluster", runs.log("cluster"))
    ended = runs.ended("cluster")
    assert ended.result == [WRITE, 4, 2, 2 * WRITE], ended.errors
    assert tags(runs.log("cluster")) == {"cluster", "executor"}


def test_spark_connect_writes_reads_streams_and_shows_our_errors(runs: Runs) -> None:
    rows, module, error = runs.ended("connect").result
    assert (rows, error) == (WRITE, True)
    assert "connect" in module
    with Store.open(runs.log("connect")) as store:
        batches = [store.read("copy", n, columns=("value",)) for n in range(PARTITIONS)]
        copied = [value for read in batches for batch in read for value in batch[0].to_pylist()]
    assert sorted(copied) == sorted(
        f"{tag}-{row}".encode() for tag in ("connect", "again") for row in range(WRITE)
    )


def test_an_installed_package_is_found_without_register(runs: Runs) -> None:
    rows, ours, found = runs.ended("installed").result
    assert rows == WRITE
    assert all("/installed/site/" in file for file in (ours, found)), (ours, found)


def test_a_zip_given_to_py_files_needs_only_register(runs: Runs) -> None:
    rows, file = runs.ended("shipped").result
    assert rows == WRITE
    assert "cursus_spark.zip" in file
