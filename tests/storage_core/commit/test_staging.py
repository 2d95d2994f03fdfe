"""The private files of a task: a finished stage is final, whatever its files were called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from storage_core import Store
from storage_core.commit import staging
from storage_core.commit.staging import Stage
from storage_core.errors import InvalidCommitError, WriteFailedError
from tests.support.stores import TOPIC, after_reboot, columns_of, errors, make_store, values

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
    with pytest.raises(WriteFailedError, match="Stage the records again"):
        stage.write(TOPIC, 0, columns_of(LARGE))
    with pytest.raises(WriteFailedError, match="Stage the records again"):
        stage.finish()
    assert values(store, topic="u") == [b"precious" * 100] * 2000
    assert errors(store) == []


@pytest.mark.parametrize("layout", ["native", "objects"])
def test_a_task_that_lost_rows_on_the_way_is_given_up(
    tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a caller that goes on would commit what came before and after them."""
    store = Store.open(tmp_path, layout=layout, create=True)
    store.create_topic(TOPIC)
    stage = store.stage("job")
    stage.write(TOPIC, 0, columns_of(LARGE))

    def fail(_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(staging, "finish_frame", fail)
        with pytest.raises(MemoryError):
            stage.write(TOPIC, 0, columns_of(LARGE))
    for go_on in (lambda: stage.write(TOPIC, 0, columns_of(LARGE)), stage.finish):
        with pytest.raises(WriteFailedError, match=r"was given up\. Stage"):
            go_on()
    assert list(tmp_path.rglob("*.frames")) == []


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
    (file,) = stage._files.opened
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


@pytest.mark.parametrize("fsync", ["batch", "none"])
def test_records_stand_in_the_order_of_the_tasks_whatever_their_sizes(
    tmp_path: Path, fsync: str
) -> None:
    """Large parts become segments, small ones are copied: both in their places."""
    store = make_store(tmp_path, fsync=fsync, segment_bytes=1 << 16)
    store.append(TOPIC, 0, [b"before"])
    parts, expected = [], [b"before"]
    for task, count in enumerate((1, 100, 2, 100, 100, 1, 1, 300)):
        records = [b"%d/%d " % (task, row) + b"x" * 1000 for row in range(count)]
        stage = store.stage("job")
        stage.write(TOPIC, 0, columns_of(records))
        parts += stage.finish()
        expected += records
    assert {part.own_file for part in parts} == {True, False}
    store.commit("job", parts)
    assert values(store) == expected
    store.append(TOPIC, 0, [b"after"])
    assert values(after_reboot(tmp_path)) == [*expected, b"after"]
    assert errors(store) == []


def test_topics_that_have_the_version_already_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store(tmp_path)
    store.create_topic("u")
    for job, version, topics in (("first", 7, [TOPIC]), ("second", 5, [TOPIC, "u"])):
        stage = store.stage(job)
        for topic in topics:
            stage.write(topic, 0, columns_of([job.encode()]))
        assert not store.commit(job, stage.finish(), app="app", version=version).skipped
    assert (values(store), values(store, topic="u")) == ([b"first"], [b"second"])
    assert "version 5 of 'app' is not above the recorded 7 in t: no record was added" in caplog.text
