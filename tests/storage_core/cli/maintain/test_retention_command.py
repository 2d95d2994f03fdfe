"""``retain``: by limits, and below an offset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from storage_core import Store
from tests.support import stores
from tests.support.cli_runner import TOPIC, done, run, timed
from tests.support.store_lives import in_segments, numbered
from tests.support.stores import offsets, tree


def rolled(path: Path, **settings: Any) -> Path:
    timed(path, **settings)
    with Store.open(path) as store:
        for number in range(2):
            store.roll(TOPIC, 0)
            store.append(TOPIC, 0, [f"more-{number}".encode()])
    return path


def test_retain_shows_what_would_go_and_asks(tmp_path: Path) -> None:
    rolled(tmp_path, retention_bytes=0)
    before = tree(tmp_path)
    planned = done("retain", tmp_path, "--dry-run", "--json").json
    assert [(row["base"], row["end"]) for row in planned] == [(0, 10), (10, 11)]
    refused = run("retain", tmp_path, TOPIC, given="n\n")
    assert refused.code == 1
    assert "Delete 2 segments" in refused.err
    assert tree(tmp_path) == before
    done("retain", tmp_path, "--yes")
    assert Store.open(tmp_path).offsets(TOPIC, 0).start == 11
    assert done("retain", tmp_path, "--json").json == []


def test_retain_without_limits_does_nothing(tmp_path: Path) -> None:
    rolled(tmp_path)
    assert done("retain", tmp_path).out == ""
    assert run("retain", tmp_path, "nosuch").err.startswith("cursus: [TOPIC_NOT_FOUND] ")


def test_records_below_an_offset_are_deleted(tmp_path: Path) -> None:
    in_segments(tmp_path, numbered(3), partitions=2).close()
    assert run("retain", tmp_path, "--before", "4").code == 2
    assert run("retain", tmp_path, stores.TOPIC, "--partition", "0").code == 2
    (planned,) = done(
        "retain", tmp_path, stores.TOPIC, "--before", "4", "-p", "0", "-n", "--json"
    ).json
    assert (planned["segments_before"], planned["start_offset"]) == (2, 4)
    assert run("retain", tmp_path, stores.TOPIC, "--before", "4", given="n\n").code == 1
    done("retain", tmp_path, stores.TOPIC, "--before", "4", "--yes")
    assert offsets(Store.open(tmp_path)) == [4, 5, 6, 7, 8, 9]
    shown = done("retain", tmp_path, stores.TOPIC, "--before", "99", "--yes", "--json").json
    assert [report["start_offset"] for report in shown] == [10, 0]


def test_a_deletion_that_a_group_holds_back_says_so_and_fails(tmp_path: Path) -> None:
    with in_segments(tmp_path, numbered(4), retention_hold_groups="audit") as store:
        store.commit_offsets("audit", {stores.TOPIC: {0: 3}})
    found = run("retain", tmp_path, stores.TOPIC, "--before", "9", "--yes")
    assert found.code == 1
    assert "a group that holds retention has read up to 3" in found.out
    assert offsets(Store.open(tmp_path))[0] == 3
