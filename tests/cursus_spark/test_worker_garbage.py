"""What a worker has imported is frozen in its second task, and in no other process."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from cursus_spark.datasource import CursusDataSource
from cursus_spark.options.parse import parse_stream_read_options, parse_stream_write_options
from cursus_spark.schema import read_schema
from cursus_spark.stream.reader import CursusStreamReader
from cursus_spark.stream.writer import CursusStreamWriter
from storage_core import Store
from tests.support.paths import ROOT

TASKS = """
import gc, pickle, sys
given = sys.stdin.buffer.read()
for _ in range(3):
    pickle.loads(given)
    print(gc.get_freeze_count())
    gc.collect()
"""


def frozen_after_tasks(given: object, runtime: str) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-c", TASKS],
        input=pickle.dumps(given),
        env={**os.environ, "SPARK_PYTHON_RUNTIME": runtime},
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    return list(map(int, done.stdout.split()))


@pytest.fixture
def path(tmp_path: Path) -> str:
    with Store.open(tmp_path / "log", create=True) as store:
        store.create_topic("t")
    return str(tmp_path / "log")


@pytest.mark.parametrize("kind", ["source", "reader", "writer"])
def test_modules_are_frozen_in_the_second_task(path: str, kind: str) -> None:
    options = {"path": path, "subscribe": "t"}
    schema = read_schema(include_headers=False)
    given: object = CursusDataSource(options)
    if kind == "reader":
        given = CursusStreamReader(parse_stream_read_options(options), schema)
    if kind == "writer":
        given = CursusStreamWriter(parse_stream_write_options({"path": path, "topic": "t"}), schema)
    first, second, third = frozen_after_tasks(given, "PYTHON_WORKER")
    assert first == 0
    assert second > 10_000
    assert third <= second, "it freezes once: garbage of later tasks is collected"


def test_a_process_of_the_user_is_left_alone(path: str) -> None:
    given = CursusDataSource({"path": path, "subscribe": "t"})
    assert frozen_after_tasks(given, "") == [0, 0, 0]
