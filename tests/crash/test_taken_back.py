"""Readers beside an append that is taken back see the old records or all, and live on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.breakers.taken_back import LOOKS, FailingAppend
from tests.support.faulty_vfs import faulty
from tests.support.paths import ROOT
from tests.support.sizes import LONG
from tests.support.stores import T0, TOPIC, make_store, on, segment

AT_ONCE = 1 << 30
STEPS = [1, 3, AT_ONCE] if LONG else [1, AT_ONCE]
"""How many calls the append makes between two of the reader."""


@pytest.mark.row(8, 36)
@pytest.mark.slow
@pytest.mark.parametrize("then", ["gives up", "again"] if LONG else ["again"])
@pytest.mark.parametrize("look", LOOKS)
def test_no_reader_is_killed_or_misled_by_an_append_that_is_taken_back(
    look: str, then: str
) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.crash.breakers.taken_back",
        look,
        then,
        *map(str, STEPS),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr[-3000:]}"
    looks = [int(line.split()[0]) for line in done.stdout.splitlines()]
    assert min(looks) > 10


@pytest.mark.row(8)
def test_a_segment_that_is_emptied_and_filled_again_under_a_reader_is_not_damaged(
    tmp_path: Path,
) -> None:
    with make_store(tmp_path, segment_bytes=65_536, frame_bytes=8192) as store:
        store.append(TOPIC, 0, [b"old"])
        store.delete_records(TOPIC, {0: 1})
    log = segment(tmp_path, 1)
    append = FailingAppend(tmp_path, again=True, rolled=log.name)
    vfs, steps = faulty(tmp_path), 0

    def before(kind: str, path: str) -> None:
        nonlocal steps
        if steps == 0 and kind == "open:read" and path.endswith(log.name):
            steps = 1
            while log.stat().st_size:
                append.go_on(1)
        elif steps == 1 and kind == "stat" and path.endswith("segments"):
            steps = 2
            append.finish()

    vfs.hook = before
    assert on(vfs).offset_for_timestamp(TOPIC, 0, T0 + 1) in (None, 1)
    assert steps == 2
