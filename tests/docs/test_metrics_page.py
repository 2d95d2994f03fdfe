"""The timer of ``docs/metrics.md`` never writes less into the file that Prometheus reads."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from storage_core import Store
from tests.support.paths import ROOT

[LINE] = re.findall(
    r"^(cursus metrics \S+ > .*)$", (ROOT / "docs" / "metrics.md").read_text(), re.M
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The ``/data`` of the page, with a store of two topics and the command."""
    found = tmp_path / "my data"
    found.mkdir()
    command = found / "cursus"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m storage_core "$@"\n')
    command.chmod(0o755)
    with Store.open(found / "log", create=True) as store:
        for topic in ("orders", "taps"):
            store.create_topic(topic)
            store.append(topic, 0, [b"one"])
    return found


def run(data: Path) -> str:
    """Run the timer once; what Prometheus then reads."""
    line = LINE.replace("/data/", f"{shlex.quote(str(data))}/")
    environment = {**os.environ, "PATH": f"{data}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    subprocess.run(["sh", "-c", line], env=environment, capture_output=True, check=False)
    return (data / "cursus.prom").read_text()


def test_a_sound_store_is_written(data: Path) -> None:
    found = run(data)
    assert 'cursus_partition_end_offset{topic="taps",partition="0"} 1' in found
    assert found.splitlines()[-1].startswith("cursus_collection_seconds ")


def test_a_topic_that_cannot_be_read_is_written_as_such(data: Path) -> None:
    run(data)
    (data / "log" / "topics" / "orders" / "topic.json").write_text("{")
    found = run(data)
    assert 'cursus_unreadable{kind="topic",name="orders"' in found
    assert 'topic="taps"' in found


def test_a_store_that_cannot_be_opened_leaves_the_file_alone(data: Path) -> None:
    before = run(data)
    (data / "log").rename(data / "elsewhere")
    assert run(data) == before


def test_a_full_disk_leaves_the_file_alone(data: Path) -> None:
    before = run(data)
    command = data / "cursus"
    # What is left of an output whose end did not fit.
    command.write_text("#!/bin/sh\nprintf 'cursus_topics 2\\ncursus_part'\nexit 1\n")
    assert run(data) == before
