"""Queries in a process of their own, killed with their JVM."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from storage_core import Store
from tests.support.spark import stream_child
from tests.support.spark.killing import Deaths
from tests.support.spark.micro_batches import payloads, texts
from tests.support.stores import errors

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]
PATIENCE_S = 400.0
KILLS = (("b", "after intent"), ("c", "after apply"), ("b", "before commit log"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Topics of two partitions; ``a`` has twelve records in each."""
    made = Store.open(tmp_path / "log", create=True)
    for topic in ("a", "b", "c"):
        made.create_topic(topic, 2)
    for partition in (0, 1):
        made.append("a", partition, payloads(0, 12, f"{partition}:"))
    return made


def values(store: Store, topic: str, partition: int) -> list[str]:
    batches = store.read(topic, partition, columns=("value",))
    return [value.decode() for batch in batches for value in batch[0].to_pylist()]


def run(output: Path, armed: str, **arguments: object) -> int:
    """Run a child to its end, by itself or by a kill that takes its whole group."""
    child = stream_child.start(output, **arguments)
    try:
        for topic, step in KILLS:
            deaths = Deaths(f"{armed}/{topic}")
            if step in deaths.armed():
                deaths.arm(step, group=child.pid)
        return child.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        pytest.fail(f"it did not end in time: {output.read_text()[-3000:]}")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


@pytest.mark.chaos
@pytest.mark.long
def test_a_chain_of_queries_killed_with_its_jvm_in_the_middle_of_commits_is_exactly_once(
    store: Store, tmp_path: Path
) -> None:
    path, armed, output = str(tmp_path / "log"), str(tmp_path / "deaths"), tmp_path / "output"
    for topic, step in KILLS:
        Deaths(f"{armed}/{topic}").arm(step)
    endings = []
    while ending := run(output, armed, path=path, deaths=armed, records=24):
        endings.append(ending)
        assert ending == -signal.SIGKILL, output.read_text()[-3000:]
    assert len(endings) == len(KILLS)
    for topic in ("b", "c"):
        for partition in (0, 1):
            assert values(store, topic, partition) == texts(0, 12, f"{partition}:")
    assert errors(store) == []
    assert "was committed before: nothing was added" in output.read_text()
