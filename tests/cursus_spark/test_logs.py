"""Warnings of the connector: time, level and logger, unless the user has set up logging."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from storage_core import Store
from tests.support.spark.micro_batches import MicroBatches, payloads

WARN = "from cursus_spark.logs import logger; logger().warning('lost %s', 5)"
LINE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING cursus_spark: lost 5\n"


def stderr_of(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stderr


@pytest.mark.parametrize("name", ["cursus_spark", "storage_core"])
def test_a_line_has_time_level_and_logger_if_nobody_set_up_logging(name: str) -> None:
    program = f"{WARN}; import logging; logging.getLogger({name!r}).error('and')"
    found = stderr_of(program)
    assert re.fullmatch(LINE + rf"[-\d]+ [:,\d]+ ERROR {name}: and\n", found), found


@pytest.mark.parametrize(
    "setup",
    [
        "import logging; logging.basicConfig(format='mine %(message)s')",
        "import logging, sys; handler = logging.StreamHandler(sys.stderr); "
        "handler.setFormatter(logging.Formatter('mine %(message)s')); "
        "logging.getLogger('cursus_spark').addHandler(handler)",
    ],
    ids=["root", "ours"],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_setup_of_the_user_is_used_alone(setup: str, first: bool) -> None:
    program = f"{setup}; {WARN}" if first else f"import cursus_spark.logs; {setup}; {WARN}"
    assert stderr_of(program) == "mine lost 5\n"


WHERE = """
import sys, pyarrow as pa
from cursus_spark.datasource import CursusDataSource
from storage_core import Store, StoreConfig
path = sys.argv[1]
with Store.open(path, create=True, config=StoreConfig(frame_records=10)) as store:
    store.create_topic("t", schema=pa.schema([("id", pa.int64())]))
    for first in (0, 100, 200):
        store.append_table("t", pa.table({"id": range(first, first + 100)}))
        store.roll("t", 0)
source = CursusDataSource({"path": path, "subscribe": "t", "where": "id = 105"})
reader = source.reader(source.schema())
for task in reader.partitions():
    assert [batch["id"].to_pylist() for batch in reader.read(task)] == [[105]]
"""


@pytest.mark.parametrize(
    "level",
    ["INFO", *(pytest.param(level, marks=pytest.mark.slow) for level in ("", "nonsense"))],
)
def test_a_level_shows_what_a_where_left_out(tmp_path: Path, level: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WHERE, str(tmp_path)],
        env={**os.environ, "CURSUS_LOG_LEVEL": level},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    shown = [line.partition(" INFO cursus_spark: ")[2] for line in done.stderr.splitlines()]
    wanted = ["where: 2 of 3 segments skipped", "where: 1 frames read, 9 skipped"]
    assert shown == (wanted if level == "INFO" else [])


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings since the last call."""
    found = [each.getMessage() for each in caplog.records if each.name == "cursus_spark"]
    caplog.clear()
    return found


def test_one_line_for_an_event_however_many_partitions_it_touches(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Store.open(tmp_path, create=True) as store:
        store.create_topic("orders", 30, retention_bytes=1)
        for number in range(30):
            store.append("orders", number, payloads(0, 3))
        stream = MicroBatches(tmp_path, failOnDataLoss="false", maxOffsetsPerTrigger=30)
        stream.trigger()
        assert lines(caplog) == []
        for number in range(30):
            store.roll("orders", number)
            store.append("orders", number, [b"active"])
        store.retain("orders")
        assert stream.trigger() == ["active"] * 30
        (line,) = lines(caplog)
        assert line.startswith(
            "[CURSUS_DATA_LOSS] orders-0: records 1 to 2 are no longer in the log (it now starts "
            "at 3). orders-1: records 1 to 2 "
        )
        assert line.endswith(" And 10 more. The query continues: failOnDataLoss is false.")
        store.delete_topic("orders")
    assert stream.trigger() == []
    assert lines(caplog) == [
        "[CURSUS_DATA_LOSS] Topic 'orders' was deleted. The query continues: failOnDataLoss is "
        "false."
    ]


def test_a_task_tells_of_a_deleted_topic_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Store.open(tmp_path, create=True) as store:
        store.create_topic("orders", 4)
        for number in range(4):
            store.append("orders", number, payloads(0, 3))
        stream = MicroBatches(tmp_path, failOnDataLoss="false")
        assert stream.plan_next()
        source = stream.reader
        begin, end = source.initialOffset(), stream.position()
        tasks = source.partitions(begin, end)
        store.delete_topic("orders")
    for task in tasks:
        assert list(source.read(task)) == []
    found = lines(caplog)
    assert len(found) == len(tasks)
    assert all("Set failOnDataLoss" not in line for line in found)
