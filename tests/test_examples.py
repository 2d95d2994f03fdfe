"""Every example runs to its end with spark-submit, as its README says, and keeps its promise.

Most of them share one JVM (``tests/support/example_batch.py``): its start costs more than they do.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyspark
import pytest

from storage_core import Store
from tests.support.brokers.kafka_directories import copied
from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples"
DEFAULTS = ROOT / "conf" / "spark-defaults.conf"
AT_ONCE = 2
TEN_MINUTES = 600

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(TEN_MINUTES)]


def submit(program: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program as a user does, with the settings the examples come with."""
    spark_submit = Path(sys.executable).with_name("spark-submit")
    return run(*map(str, [spark_submit, "--properties-file", DEFAULTS, program, *arguments]))


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a program against the working tree; in a session of its own, because one kills itself."""
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    # Where spark-submit looks for Spark itself, it splits the path of Python at spaces.
    spark = {"SPARK_HOME": str(Path(pyspark.__file__).parent)}
    return subprocess.run(
        command,
        env={**os.environ, **python, **spark, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=TEN_MINUTES - 60,
        start_new_session=True,
        check=False,
    )


def crash_and_go_on(directory: Path) -> list[subprocess.CompletedProcess[str]]:
    """The pipeline, killed in its second batch and started again."""
    program = EXAMPLES / "streaming_pipeline.py"
    return [submit(program, directory, "--crash-in-batch", "1"), submit(program, directory)]


class Ended(NamedTuple):
    """What an example returned and printed."""

    code: int
    shown: str


class Batch:
    """Examples that share a JVM; what each needs as arguments is a directory, or nothing."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        self._arguments = {"import_from_kafka.py": kafka_arguments(directory)}
        for example in (
            "quickstart",
            "typed_events",
            "batch_etl",
            "log_analytics",
            "foreach_batch_upsert",
            "producer",
        ):
            self._arguments[f"{example}.py"] = [str(directory / example)]
        for example in ("read_broker_logs.py", "migrate.py"):
            self._arguments[example] = []
        kafka = copied("segments", directory)
        self._arguments["read_kafka_logs.py"] = [str(kafka), str(directory / "from-kafka")]

    @property
    def names(self) -> set[str]:
        return {*self._arguments}

    def run(self) -> dict[str, Ended]:
        examples = [[str(EXAMPLES / name), *given] for name, given in self._arguments.items()]
        batch = ROOT / "tests" / "support" / "example_batch.py"
        done = submit(batch, self._directory, json.dumps(examples))
        assert done.returncode == 0, done.stdout + done.stderr[-5000:]
        return {name: self._ended(name) for name in self._arguments}

    def _ended(self, name: str) -> Ended:
        code = (self._directory / f"{name}.code").read_text()
        return Ended(int(code), (self._directory / f"{name}.txt").read_text())


class Runs:
    """All examples under way, a few at a time: a start of Spark costs seconds."""

    def __init__(self, directory: Path, pool: ThreadPoolExecutor) -> None:
        self.pipeline_directory = directory / "pipeline"
        self.pipeline = pool.submit(crash_and_go_on, self.pipeline_directory)
        self._batch = Batch(directory / "batch")
        self._together = pool.submit(self._batch.run)
        self.demo = pool.submit(
            partial(run, sys.executable, "-W", "error", str(EXAMPLES / "demo.py"))
        )

    @property
    def names(self) -> set[str]:
        return {*self._batch.names, "streaming_pipeline.py", "demo.py"}

    def ended(self, example: str) -> Ended:
        return self._together.result()[example]

    def shown(self, example: str) -> str:
        """What a successful example prints."""
        ended = self.ended(example)
        assert ended.code == 0, ended.shown
        return ended.shown


def kafka_arguments(directory: Path) -> list[str]:
    given = {"servers": "127.0.0.1:9", "topic": "orders", "partitions": "1"}
    given |= {"log": str(directory / "kafka"), "checkpoint": str(directory / "kafka-checkpoint")}
    return [f"--{name}={text}" for name, text in given.items()]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield Runs(tmp_path_factory.mktemp("examples"), pool)
        pool.shutdown(cancel_futures=True)


def test_every_example_is_run_and_has_a_section(runs: Runs) -> None:
    found = {path.name for path in EXAMPLES.glob("*.py")}
    assert runs.names == found
    headings = re.findall(r"^## (.+)$", (EXAMPLES / "README.md").read_text(), re.M)
    assert {name for heading in headings for name in heading.split(", ")} == {
        path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".sql")
    }


def test_the_demo_shows_spark_the_command_and_a_crash(runs: Runs) -> None:
    done = runs.demo.result()
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    assert done.stderr == "", "a newcomer sees nothing of Spark's own messages"
    for words in ("10,000 orders", "cursus describe", "kill -9", "no gap", "finds nothing wrong"):
        assert words in done.stdout


def test_quickstart_writes_reads_and_copies(runs: Runs) -> None:
    shown = runs.shown("quickstart.py")
    assert "read back: 1000 records" in shown
    assert "since the second day there were 100 orders" in shown
    assert "a stream copied 1000 records" in shown


def test_typed_events_come_back_as_they_were_and_get_a_column(runs: Runs) -> None:
    shown = runs.shown("typed_events.py")
    assert "wrote 20000 events as they are, read 20000 back, 0 changed" in shown
    assert "since 10 November there were 80 large amounts" in shown
    assert "added a column with 100 rows" in shown
    assert "a stream copied 2007 slow events with all their columns, exactly once" in shown
    assert "without Spark: 20 rows by Store.scan" in shown


def test_the_nightly_job_adds_nothing_when_it_runs_again(runs: Runs) -> None:
    shown = runs.shown("batch_etl.py")
    assert "first run for 2026-01-06: 470 clean, 10 rejected" in shown
    assert "second run for 2026-01-06: 470 clean, 10 rejected" in shown
    assert re.search(r"\| +ada\| +156\|", shown)


def test_the_pipeline_survives_a_kill_with_every_total_once(runs: Runs) -> None:
    killed, second = runs.pipeline.result()
    assert killed.returncode != 0
    assert "totals written" not in killed.stdout
    assert second.returncode == 0, second.stdout + second.stderr[-5000:]
    assert re.search(r"^batch 1: 1500 orders in$", second.stdout, re.M), "it goes on in batch 1"
    assert "batch 0" not in second.stdout, "what was finished is not done again"
    assert "177 totals written; 0 missing, 0 too many" in second.stdout
    with Store.open(runs.pipeline_directory / "log") as store:
        assert store.offsets("totals", 0).end == 177
        assert sum(store.committed_offsets("totals")["orders"].values()) > 0


def test_two_producers_lose_nothing_beside_a_stream(runs: Runs) -> None:
    shown = runs.shown("producer.py")
    for name in ("ada", "grace"):
        assert f"{name}: 50000 acknowledged, 0 failed" in shown
    assert "the stream copied 100000 records" in shown
    assert "0 missing, 0 too many" in shown


def test_broker_directories_are_recognised_and_read(runs: Runs) -> None:
    shown = runs.shown("read_broker_logs.py")
    for layout in ("cursus-broker", "rustlog"):
        assert f"a directory of layout '{layout}', topics ['orders']" in shown
    assert shown.count("orders: 200 records") == 2
    assert shown.count("a stream read 200 records") == 2
    assert "[producer=shop-1, seq=1]" in shown


def test_the_directory_of_a_kafka_broker_is_read_and_copied(runs: Runs) -> None:
    shown = runs.shown("read_kafka_logs.py")
    assert "orders: 3 partitions, high watermarks [8, 24, 40]" in shown
    assert re.search(r"\|orders +\|2 +\|40 +\|0 +\|39 ", shown)
    assert "copied 140 records into from-kafka" in shown


def test_a_migration_is_the_same_on_both_sides(runs: Runs) -> None:
    shown = runs.shown("migrate.py")
    assert "orders-1: offsets 0 to 4999, 5000 copied now" in shown
    assert "layout 'native' with 0 problems" in shown
    assert shown.count("the same on both sides") == 2


def test_sql_answers_what_the_file_asks(runs: Runs) -> None:
    shown = runs.shown("log_analytics.py")
    assert re.search(r"\|/checkout *\|900 +\|5\.6 ", shown)
    assert "2026-01-05 09:30:00" in shown
    assert "requests_of_the_last_minutes" in shown
    assert re.search(r"^\|600 +\|$", shown, re.M)


def test_an_upsert_takes_a_repeated_batch_once(runs: Runs) -> None:
    shown = runs.shown("foreach_batch_upsert.py")
    assert "batch 1 is already in the table" in shown
    assert "10 customers in the table, 1000 changes in the audit topic" in shown
    for customer in range(10):
        assert f"customer-{customer} lives in city-{990 + customer}" in shown


def test_without_a_kafka_broker_the_import_says_so(runs: Runs) -> None:
    code, shown = runs.ended("import_from_kafka.py")
    assert code == 1
    assert "no Kafka broker answers: 127.0.0.1:9" in shown
    assert "Traceback" not in shown
