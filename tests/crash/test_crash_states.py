"""Power cuts at every call of many stories: thousands of disks, each recovered and checked."""

from __future__ import annotations

import threading

import pytest

from tests.crash.explorer import explorer
from tests.crash.explorer.exploration import describe, explore_story, explore_until
from tests.support.sizes import PROCESSES, SAMPLES, SEED, STATES

_SHOWN = 50_000
"""How many states there are between two lines of progress."""


@pytest.mark.row(1, 2, 3, 4)
@pytest.mark.slow
@pytest.mark.timeout(0)
def test_every_crash_state_recovers(capsys: pytest.CaptureFixture[str]) -> None:
    shown = 0

    def tell(found: int) -> None:
        nonlocal shown
        if found // _SHOWN > shown:
            shown = found // _SHOWN
            with capsys.disabled():
                print(f"\n{found:,} of {STATES:,} crash states", end="", flush=True)

    reports = explore_until(STATES, SEED, SAMPLES, PROCESSES, tell)
    with capsys.disabled():
        print("\n" + describe(reports, SEED))
    assert [found for report in reports.values() for found in report.violations] == []
    assert len(set[int]().union(*(report.distinct for report in reports.values()))) >= STATES
    assert all(report.nested and report.killed for report in reports.values())


def test_a_store_that_lost_power_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    assert explore_story("interval", SEED, 2).states > 0
    assert threading.active_count() == before


@pytest.mark.timeout(120)
def test_an_exploration_ends_however_often_another_writer_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(explorer, "_WRITES_ON", 1.0)
    assert explore_story("interval", SEED, 8).states > 0
