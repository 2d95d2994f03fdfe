"""A scrub finds every flipped byte of sealed segments, slowly if asked to, and changes nothing."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from storage_core import Problem, Store, StoreConfig
from storage_core.errors import DiskFullError
from tests.support.brokers.broker_directories import BROKER
from tests.support.faulty_vfs import faulty
from tests.support.store_lives import in_segments, numbered
from tests.support.stores import TOPIC, make_store, on, overwrite, segment, tree


def test_a_sound_log_has_no_problems(tmp_path: Path) -> None:
    store = in_segments(tmp_path, numbered(3))
    before = tree(tmp_path)
    (report,) = store.scrub(bytes_per_second=1 << 40)
    assert (report.segments_before, report.problems, report.done) == (3, (), True)
    assert report.saved_bytes == 0
    assert tree(tmp_path) == before


def test_damage_is_named_and_the_rest_is_looked_at_too(tmp_path: Path) -> None:
    store = in_segments(tmp_path, numbered(4))
    overwrite(segment(tmp_path, 0), lambda data: data.__setitem__(90, data[90] ^ 4))
    overwrite(segment(tmp_path, 6), lambda data: data.__setitem__(3, 0))
    overwrite(segment(tmp_path, 9, ".idx"), lambda data: data.__setitem__(1, 7))
    (report,) = store.scrub(TOPIC, bytes_per_second=1 << 40)
    assert [(found.severity, found.code, found.offset) for found in report.problems] == [
        ("error", "LOG_DAMAGED", 0),
        ("error", "LOG_DAMAGED", 6),
        ("warning", "INDEX_STALE", None),
    ]
    assert f"{6:020d}.log" in str(report.problems[1].path)


def test_it_keeps_below_its_rate_and_can_be_stopped(tmp_path: Path) -> None:
    in_segments(tmp_path, numbered(4, size=1000)).close()
    vfs, slept = faulty(tmp_path), list[float]()
    clock = [0.0]
    vfs.monotonic = lambda: clock[0]  # type: ignore[method-assign]

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds

    vfs.sleep = sleep  # type: ignore[method-assign]
    store = Store(vfs, StoreConfig(scrub_bytes_per_second=1000))
    (report,) = store.scrub()
    assert abs(sum(slept) - report.bytes_before / 1000) < 0.01
    until = clock[0] + 5
    (stopped,) = store.scrub(stop=lambda: clock[0] > until)
    assert (stopped.done, stopped.segments_before) == (False, 1)


def test_files_of_a_broker_are_followed_record_by_record(tmp_path: Path) -> None:
    files = BROKER.write(tmp_path, [[b"a", b"b"], [b"c"], [b"d"]])
    store = Store.open(tmp_path)
    assert store.scrub()[0].problems == ()
    files[0].write_bytes(files[0].read_bytes()[:-1])
    (problem,) = Store.open(tmp_path).scrub()[0].problems
    assert (problem.code, problem.severity) == ("LOG_DAMAGED", "error")


def test_an_append_that_is_taken_back_meanwhile_is_no_damage(tmp_path: Path) -> None:
    with make_store(tmp_path, segment_bytes=65_536, frame_bytes=8192) as store:
        store.append(TOPIC, 0, [b"old"])
    writing, reading = faulty(tmp_path), faulty(tmp_path)
    found: list[Problem] = []
    listed, taken_back = threading.Event(), threading.Event()

    def before_reading(kind: str, path: str) -> None:
        if kind == "open:read" and path.endswith(".log"):
            listed.set()
            taken_back.wait(10)

    def scrub() -> None:
        found.extend(problem for report in on(reading).scrub() for problem in report.problems)
        listed.set()

    def before_writing(kind: str, path: str) -> None:
        if (
            kind == "pwritev"
            and path.endswith(".log")
            and not path.endswith(segment(tmp_path).name)
        ):
            scrubbing.start()
            listed.wait(10)
            raise OSError(errno.ENOSPC, "no space left", path)

    reading.hook, writing.hook = before_reading, before_writing
    scrubbing = threading.Thread(target=scrub)
    with pytest.raises(DiskFullError):
        on(writing).append(TOPIC, 0, [b"%04d" % number * 1000 for number in range(25)])
    taken_back.set()
    scrubbing.join(20)
    assert found == []
