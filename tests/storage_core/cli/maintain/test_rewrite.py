"""``compact``, ``merge`` and ``recompress``."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_core import Store
from tests.support.brokers.broker_directories import BROKER
from tests.support.cli_runner import done, run
from tests.support.store_lives import in_segments, numbered
from tests.support.stores import TOPIC, offsets, tree


@pytest.mark.parametrize(
    "words",
    [("merge",), ("recompress", "--compression", "zstd"), ("compact", "--policy", "compact")],
)
def test_an_operation_shows_first_asks_and_then_does_it(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    in_segments(tmp_path, numbered(4, size=300)).close()
    before = tree(tmp_path)
    command, *options = words
    (planned,) = done(command, tmp_path, *options, "--dry-run", "--json").json
    assert (planned["action"], planned["segments_before"]) == (command, 4)
    refused = run(command, tmp_path, TOPIC, *options, given="n\n")
    assert refused.code == 1
    assert "4 →" in refused.out
    assert tree(tmp_path) == before
    (did,) = done(command, tmp_path, TOPIC, *options, "--yes", "--json").json
    assert (did["segments_before"], did["done"]) == (4, True)
    assert offsets(Store.open(tmp_path)) == ([10, 11, 12] if command == "compact" else [*range(13)])
    again = done(command, tmp_path, TOPIC, *options, "--json").json
    assert again == []


def test_the_limits_are_handed_on(tmp_path: Path) -> None:
    in_segments(tmp_path, numbered(3), cleanup_policy="compact").close()
    assert done("merge", tmp_path, "--below", "10", "-n", "--json").json == []
    old = ("--compression", "lz4", "--level", "3", "--older-than-ms", "3600000")
    assert done("recompress", tmp_path, *old, "-n", "--json").json == []
    done("compact", tmp_path, TOPIC, "--yes")
    (said,) = done("compact", tmp_path, TOPIC, "--min-dirty-ratio", "1", "-n", "--json").json
    assert said["note"] == "nothing is new"
    assert "nothing is new" in done("compact", tmp_path, TOPIC, "-n").out


def test_a_topic_that_is_not_compacted_is_refused(tmp_path: Path) -> None:
    in_segments(tmp_path, numbered(2)).close()
    answer = run("compact", tmp_path, TOPIC, "--yes")
    assert (answer.code, "[CONFIG_INVALID]" in answer.err) == (1, True)
    assert answer.err.endswith(f"cursus alter PATH {TOPIC} --set cleanup_policy=compact.\n")


def test_a_broker_directory_is_compacted_if_asked_to(tmp_path: Path) -> None:
    BROKER.write(tmp_path, [[b"a"], [b"b"]])
    done("compact", tmp_path, "orders", "--policy", "compact", "--yes")
    assert run("merge", tmp_path, "--yes").err.startswith("cursus: [CONFIG_INVALID]")


def test_segments_without_a_record_are_shown_like_others(tmp_path: Path) -> None:
    store = in_segments(tmp_path, numbered(4, keys=1), cleanup_policy="compact")
    store.compact(TOPIC, min_dirty_ratio=0)
    store.close()
    for command in ("topics", "describe", "check"):
        done(command, tmp_path)
    shown = done("dump", tmp_path, TOPIC, "--json").objects
    assert [entry["records"] for entry in shown if entry.get("kind") == "frame"] == [0, 0, 0, 1, 1]
    assert done("dump", tmp_path, TOPIC).out
    assert done("describe", tmp_path, TOPIC).out
    done("report", tmp_path, "--output", tmp_path / "page.html")
