"""``groups``: lag, and resets to every kind of place."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_core import Store
from tests.support.cli_runner import LAYOUTS, TOPIC, done, made, run, timed


def committed(path: Path) -> dict[int, int]:
    return Store.open(path).committed_offsets("readers")[TOPIC]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_lag_is_shown_for_every_layout(tmp_path: Path, layout: str) -> None:
    made(tmp_path, layout, values=5)
    assert done("groups", tmp_path, "--json").json == []
    with Store.open(tmp_path) as store:
        store.commit_offsets("readers", {TOPIC: {0: 2}})
    (found,) = done("groups", tmp_path, "readers", "--json").json
    assert found == {
        "group": "readers", "topic": TOPIC, "partition": 0, "committed": 2, "end": 5, "lag": 3
    }  # fmt: skip
    assert done("groups", tmp_path).lines[1].split() == ["readers", TOPIC, "0", "2", "5", "3"]


@pytest.mark.parametrize(
    ("target", "offset"),
    [
        ("earliest", 0),
        ("latest", 10),
        ("4", 4),
        ("2023-11-14T22:13:27Z", 7),
        ("now", 10),
    ],
)
def test_a_group_is_set_to_any_place(tmp_path: Path, target: str, offset: int) -> None:
    timed(tmp_path, partitions=2)
    words = ["--topic", TOPIC, "--reset-to", target, "--yes"]
    done("groups", tmp_path, "readers", *words)
    assert committed(tmp_path) == {0: offset, 1: offset}


def test_a_reset_asks_and_can_be_narrowed(tmp_path: Path) -> None:
    timed(tmp_path, partitions=2)
    done("groups", tmp_path, "readers", "-t", TOPIC, "--reset-to", "latest", "-y")
    refused = run("groups", tmp_path, "readers", "--reset-to", "earliest", given="n\n")
    assert refused.code == 1
    assert "orders-0: 10 → 0\norders-1: 10 → 0\n" in refused.err
    assert committed(tmp_path) == {0: 10, 1: 10}
    done("groups", tmp_path, "readers", "--reset-to", "3", "--partition", 1, given="y\n")
    assert committed(tmp_path) == {0: 10, 1: 3}


@pytest.mark.parametrize("target", ["99", "1700000007000", "-1700000007000", "-3"])
def test_a_number_is_an_offset_and_not_a_time(tmp_path: Path, target: str) -> None:
    """Milliseconds would be an offset after the end, and skip everything."""
    timed(tmp_path, partitions=2)
    words = ["--topic", TOPIC, f"--reset-to={target}", "--yes"]
    refused = run("groups", tmp_path, "readers", *words)
    assert refused.code == 2
    assert target in refused.err
    assert "milliseconds" not in refused.err
    assert Store.open(tmp_path).committed_offsets("readers") == {}


def test_an_offset_that_one_partition_has_ends_the_others_at_theirs(tmp_path: Path) -> None:
    timed(tmp_path, partitions=2)
    with Store.open(tmp_path) as store:
        store.append(TOPIC, 1, [b"more"] * 10)
    done("groups", tmp_path, "readers", "--topic", TOPIC, "--reset-to", "15", "--yes")
    assert committed(tmp_path) == {0: 10, 1: 15}


def test_unknown_groups_and_wrong_words(tmp_path: Path) -> None:
    timed(tmp_path)
    unknown = run("groups", tmp_path, "nobody")
    assert (unknown.code, unknown.err) == (
        1,
        "cursus: group 'nobody' has committed no offsets in this store. Groups found: none.\n",
    )
    Store.open(tmp_path).commit_offsets("readers", {TOPIC: {0: 1}})
    assert run("groups", tmp_path, "reader").err.endswith(" Groups found: readers.\n")
    assert run("groups", tmp_path, "--reset-to", "latest").code == 2
    assert run("groups", tmp_path, "nobody", "--reset-to", "latest", "--yes").code == 2
    assert run("groups", tmp_path, "readers", "--reset-to", "someday").code == 2
