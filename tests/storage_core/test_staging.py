"""The private files of a task: a finished stage is final, whatever its files were called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from storage_core.errors import InvalidCommitError, WriteFailedError
from storage_core.staging import Stage
from tests.stores import TOPIC, columns_of, errors, make_store, values

LARGE = [b"x" * 1000] * 2000


def finish(stage: Stage) -> None:
    stage.finish()


@pytest.mark.parametrize("end", [finish, Stage.discard])
def test_a_stage_that_ended_takes_nothing_and_touches_no_file(
    tmp_path: Path, end: Callable[[Stage], None]
) -> None:
    """Descriptors are numbers: those of its files belong to other files soon after."""
    store = make_store(tmp_path)
    store.create_topic("u")
    stage = store.stage("job")
    stage.write(TOPIC, 0, columns_of(LARGE))
    end(stage)
    store.append("u", 0, [b"precious" * 100] * 2000)
    with pytest.raises(WriteFailedError, match="Start anew"):
        stage.write(TOPIC, 0, columns_of(LARGE))
    with pytest.raises(WriteFailedError, match="Start anew"):
        stage.finish()
    assert values(store, topic="u") == [b"precious" * 100] * 2000
    assert errors(store) == []


def test_a_finished_stage_can_be_given_up_without_harm(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    stage = store.stage("job")
    stage.write(TOPIC, 0, columns_of(LARGE))
    parts = stage.finish()
    stage.discard()
    store.commit("job", parts)
    assert values(store) == LARGE


def test_a_closed_file_takes_no_frames(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    stage = store.stage("job")
    stage.write(TOPIC, 0, columns_of(LARGE))
    (file,) = stage._files
    stage.finish()
    with pytest.raises(WriteFailedError, match="closed"):
        file.write([b"late"])


@pytest.mark.parametrize("records", [[b"once"], LARGE, [b"x" * 1000] * 20_000])
def test_the_same_part_is_not_committed_twice(tmp_path: Path, records: list[bytes]) -> None:
    store = make_store(tmp_path)
    stage = store.stage("job")
    stage.write(TOPIC, 0, columns_of(records))
    parts = stage.finish()
    with pytest.raises(InvalidCommitError, match="twice"):
        store.commit("job", [*parts, *parts])
    assert values(store) == []
    store.commit("job", parts)
    assert values(store) == records
