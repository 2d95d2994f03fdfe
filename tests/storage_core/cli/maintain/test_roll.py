"""``roll`` and ``compact --roll``; commands that say what they did, or why there was nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_core import Store
from storage_core.errors import ConfigError
from tests.support.cli_runner import done, made, run
from tests.support.stores import TOPIC, make_store, names, offsets


def keyed(path: Path, partitions: int = 1, **settings: str) -> Path:
    with make_store(path, partitions, **settings) as store:
        store.append(TOPIC, 0, [b"1", b"2", b"3"], keys=[b"a", b"a", b"b"])
    return path


def test_roll_seals_what_has_records_and_begins_a_segment(tmp_path: Path) -> None:
    keyed(tmp_path, 2)
    assert done("roll", tmp_path).err == "1 active segment sealed\n"
    assert names(tmp_path, ".log") == [f"{0:020d}.log", f"{3:020d}.log"]
    assert names(tmp_path, ".log", 1) == []
    again = done("roll", tmp_path, TOPIC, "-p", "0")
    assert again.err == "There is nothing to seal: no active segment has a record.\n"
    with Store.open(tmp_path) as store:
        assert store.append(TOPIC, 0, [b"4"]).start == 3
        assert store.check() == []
    assert run("roll", tmp_path, "-p", "0").code == 2
    assert run("roll", tmp_path, "nosuch").err.startswith("cursus: [TOPIC_NOT_FOUND]")


def test_a_segment_that_was_sealed_without_a_next_one_counts_too(tmp_path: Path) -> None:
    with make_store(tmp_path) as store:
        store.append(TOPIC, 0, [b"1"])
        assert store.roll(TOPIC, 0)
    assert done("roll", tmp_path).err == "1 active segment sealed\n"


@pytest.mark.parametrize("layout", ["cursus", "cursus-broker", "rustlog"])
def test_a_brokers_files_are_not_rolled_by_command(tmp_path: Path, layout: str) -> None:
    made(tmp_path, layout)
    answer = run("roll", tmp_path)
    assert answer.code == 1
    assert answer.err.startswith(f"cursus: [CONFIG_INVALID] layout {layout} is what its broker")
    with Store.open(tmp_path) as store, pytest.raises(ConfigError, match="native stores"):
        store.roll("orders", 0, begin=True)


def test_compact_says_that_all_is_active_and_rolls_if_asked_to(tmp_path: Path) -> None:
    keyed(tmp_path, cleanup_policy="compact")
    for words in ((), ("--dry-run",), ("--yes",)):
        answer = done("compact", tmp_path, *words)
        assert answer.err == (
            "t-0: all records are in the active segment, which compaction leaves alone. Pass "
            "--roll to seal it first.\n"
        )
    assert offsets(Store.open(tmp_path)) == [0, 1, 2]
    assert run("compact", tmp_path, "--roll", "--dry-run").code == 2
    answer = done("compact", tmp_path, "--roll", "--yes")
    assert answer.err.splitlines()[0] == "1 active segment sealed"
    assert answer.err.splitlines()[1].startswith("1 segment rewritten: ")
    assert offsets(Store.open(tmp_path)) == [1, 2]


def test_a_topic_that_is_not_compacted_is_not_rolled_either(tmp_path: Path) -> None:
    keyed(tmp_path)
    assert run("compact", tmp_path, TOPIC, "--roll", "--yes").code == 1
    assert len(names(tmp_path, ".log")) == 1
    assert "No topic has compact in its cleanup_policy" in done("compact", tmp_path).err


def test_commands_answer(tmp_path: Path) -> None:
    path = tmp_path / "log"

    def said(*words: object, given: str | None = None) -> str:
        command, *rest = words
        answer = done(command, path, *rest, given=given)
        return answer.err

    assert said("create", "o", "-p", 2) == "o is created: a records topic with 2 partitions\n"
    assert said("create", "o", "-p", 2, "--if-not-exists") == (
        "o is there already: a records topic with 2 partitions\n"
    )
    assert said("append", "o", given="") == "0 records appended\n"
    assert said("append", "o", given="a\nb\n") == "2 records appended\n"
    assert said("check") == f"{path}: 1 topic read, no problems found\n"
    assert said("groups").startswith("No consumer group has committed offsets here.")
    assert said("groups", "g", "-t", "o", "--reset-to", "latest", "-y").endswith(
        "the offsets of group g are set in 2 partitions\n"
    )
    assert said("groups") == ""  # the table says it
    assert said("retain").startswith("Nothing to delete: no topic has retention_ms")
    changed = said("alter", "o", "--set", "retention_ms=7d", "--partitions", 3)
    assert changed == "o: retention_ms is 604800000, 3 partitions\n"
    assert said("alter", "o", "--set", "retention_ms=7d") == (
        "o: nothing changed: it was so already\n"
    )
    assert said("retain").startswith("Nothing to delete: no sealed segment is past the limits")
    idle = "All records of 1 partition are in the active segment: cursus roll seals it.\n"
    assert said("merge") == (
        f"Nothing to merge in {path}: no neighbouring segments are small enough. {idle}"
    )
    assert said("recompress", "o") == (
        f"Nothing to recompress in {path}: no sealed segment has another codec. {idle}"
    )
    assert said("repair", "-y") == "3 partitions recovered, 0 problems left\n"
    for words in (("check",), ("retain",), ("alter", "o", "--set", "retention_ms=default")):
        assert said(*words, "-q") == ""
