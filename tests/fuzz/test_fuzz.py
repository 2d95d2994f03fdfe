"""Changed and random bytes for every decoder and every layout, in children with little memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from tests.fuzz import runner
from tests.fuzz.checks import written
from tests.fuzz.trees import CORPUS, TREES
from tests.support.paths import ROOT
from tests.support.sizes import FUZZ, PROCESSES, SEED


@pytest.mark.row(16, 17, 18, 19, 23, 24, 25, 29)
@pytest.mark.slow
@pytest.mark.timeout(0)
def test_no_input_crashes_hangs_or_gives_a_wrong_record(capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "tests.fuzz.runner", str(SEED), str(FUZZ), str(PROCESSES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    with capsys.disabled():
        print("\n" + done.stdout.strip().splitlines()[-1] if done.stdout else "")
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_older_releases_wrote_stays_readable() -> None:
    counts = {tree: sum(map(len, written(tree).values())) for tree in TREES}
    assert counts == {"native": 24, "cursus": 8, "cursus-broker": 8, "rustlog": 8}


def test_the_corpus_is_small() -> None:
    assert sum(file.stat().st_size for file in CORPUS.rglob("*") if file.is_file()) < 50_000


def abort(*_: int) -> None:
    os.abort()


def raise_untyped(*_: int) -> None:
    raise KeyError("a field")


def take_all_memory(*_: int) -> None:
    assert len(bytearray(runner.MEMORY * 2))


def hang(*_: int) -> None:
    while True:
        time.sleep(1)


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (abort, "SIGABRT"),
        (raise_untyped, "KeyError"),
        (take_all_memory, "MemoryError"),
        (hang, "hangs"),
    ],
)
def test_whatever_goes_wrong_in_a_child_is_noticed(
    act: Callable[..., None], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "check", act)
    monkeypatch.setattr(runner, "HANG_S", 1)
    pid, notes = runner.run_child(SEED, range(7, 9))
    _, status = os.waitpid(pid, 0)
    outcome = runner.outcome_of(status, notes)
    assert outcome.number == 7
    assert said in (outcome.problem or "")
