"""``tail``, mostly as a process of its own: it follows, and stops when interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from storage_core import Store
from tests.support.cli_runner import LAYOUTS, TOPIC, done, made, run, spawn, timed


@contextmanager
def following(path: Path, *words: object) -> Iterator[subprocess.Popen[bytes]]:
    with spawn("tail", path, TOPIC, "-f", "--json", "--interval", 0.02, *words) as process:
        try:
            yield process
        finally:
            process.kill()


def next_value(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    value = json.loads(process.stdout.readline())["value"]
    assert isinstance(value, str)
    return value


@pytest.mark.parametrize(
    "layout",
    [pytest.param(name, marks=[pytest.mark.slow] * (name != "native")) for name in LAYOUTS],
)
def test_tail_follows_and_stops_cleanly_on_sigint(tmp_path: Path, layout: str) -> None:
    made(tmp_path, layout, values=3)
    with following(tmp_path, "-n", 1) as process:
        assert next_value(process) == "value-2"
        with Store.open(tmp_path) as store:
            for number in range(3):
                store.append(TOPIC, 0, [f"new-{number}".encode()])
                assert next_value(process) == f"new-{number}"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (0, b"", b"")


def test_a_test_run_in_the_background_can_still_interrupt_what_it_starts(tmp_path: Path) -> None:
    made(tmp_path, values=1)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with following(tmp_path) as process:
            assert next_value(process) == "value-0"
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0
    finally:
        signal.signal(signal.SIGINT, before)


def test_follow_stops_at_max_and_notices_new_partitions(tmp_path: Path) -> None:
    timed(tmp_path)
    with following(tmp_path, "-n", 1, "--max", 3) as process:
        assert next_value(process) == "value-9"
        with Store.open(tmp_path) as store:
            store.add_partitions(TOPIC, 2)
            store.append(TOPIC, 1, [b"a"])
            store.append(TOPIC, 1, [b"b", b"c"])
        assert process.wait(timeout=60) == 0
        assert [next_value(process), next_value(process)] == ["a", "b"]


def test_tail_shows_the_last_of_each_partition(tmp_path: Path) -> None:
    timed(tmp_path, partitions=2)
    answer = done("tail", tmp_path, TOPIC, "--raw", "-n", 2)
    assert answer.lines == ["value-8", "value-9"] * 2
    assert done("tail", tmp_path, TOPIC, "--raw", "-n", 2, "-p", 1, "--max", 1).lines == ["value-8"]
    assert done("tail", tmp_path, TOPIC, "-n", 0).out == ""
    assert run("tail", tmp_path, TOPIC, "-p", 2).err.startswith("cursus: [PARTITION_NOT_FOUND] ")


def test_a_topic_that_is_created_again_ends_the_follow(tmp_path: Path) -> None:
    timed(tmp_path)
    with following(tmp_path, "-n", 1) as process:
        assert next_value(process) == "value-9"
        with Store.open(tmp_path) as store:
            store.delete_topic(TOPIC)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 1
        assert err.startswith(b"cursus: [TOPIC_NOT_FOUND] ")


def test_records_that_retention_removed_are_reported(tmp_path: Path) -> None:
    timed(tmp_path, retention_bytes=0)
    with following(tmp_path, "-n", 1) as process:
        assert next_value(process) == "value-9"
        process.send_signal(signal.SIGSTOP)
        with Store.open(tmp_path) as store:
            for value in (b"lost", b"kept"):
                store.roll(TOPIC, 0)
                store.append(TOPIC, 0, [value])
            store.retain()
        process.send_signal(signal.SIGCONT)
        assert next_value(process) == "kept"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert err.startswith(b"cursus: [DATA_LOSS] orders-0: records 10 to 10 ")
