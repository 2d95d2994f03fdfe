"""Power cuts and kills at every call of what we write into a broker's directory."""

from __future__ import annotations

from random import Random

import pytest

from tests.crash.bugs.detectors import found_by
from tests.crash.explorer.broker_states import SHORT, BrokerExplorer
from tests.crash.explorer.broker_stories import LAYOUTS, PLAYED, STORIES
from tests.crash.explorer.exploration import quickly
from tests.support.sizes import BROKER_SAMPLES, LONG, SEED


@pytest.mark.row(1, 2, 3, 4)
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("layout", "story"), PLAYED)
def test_every_crash_state_of_a_brokers_directory_keeps_what_was_acknowledged(
    layout: str, story: str, capsys: pytest.CaptureFixture[str]
) -> None:
    explorer = BrokerExplorer(layout, Random(SEED), BROKER_SAMPLES, 1.0 if LONG else 0.4)
    with quickly(SEED):
        explorer.run(STORIES[story])
    with capsys.disabled():
        print(
            f"\n[crash states] {story} in {layout}: seed {SEED}, {explorer.states} states, "
            f"{len(explorer.violations)} violations"
        )
    assert explorer.violations == []
    assert explorer.states > 50


@pytest.mark.row(2, 3)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("what", SHORT)
def test_topics_of_brokers_are_made_and_deleted_durably(what: str, layout: str) -> None:
    with quickly(SEED):
        assert found_by(f"{what} in {layout}") is None
