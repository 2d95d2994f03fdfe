"""``skip``: shows damage, and gives up exactly what is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_core import Store
from storage_core.format.frame_scan import segment_frames
from tests.support.cli_runner import TOPIC, Answer, done, made, made_typed, run
from tests.support.stores import overwrite


def damaged(path: Path) -> Path:
    """Two partitions of five records, one frame each; the middle one of partition 1 is damaged."""
    done("create", path, TOPIC, "-p", 2)
    for number in range(3):
        for partition in range(2):
            done("append", path, TOPIC, "-p", partition, given=f"{number}-0\n{number}-1\n")
    flip(path, 1, 1)
    return path


def flip(path: Path, partition: int, number: int) -> None:
    with Store.open(path) as store:
        (found,) = store.segments(TOPIC, partition)
        frame = list(segment_frames(store.vfs, found.path, found.base))[number]
    at = frame.position + 100
    overwrite(path / found.path, lambda data: data.__setitem__(at, data[at] ^ 1))


def skipped(path: Path, *words: object) -> Answer:
    return run("skip", path, TOPIC, *words)


def test_damage_is_shown_given_up_and_remembered(tmp_path: Path) -> None:
    damaged(tmp_path)
    shown = skipped(tmp_path)
    assert shown.code == 1
    assert shown.lines[1].split()[:4] == ["1", "2", "4", "damaged"]
    (entry,) = skipped(tmp_path, "--json").json
    assert (entry["partition"], entry["start"], entry["end"]) == (1, 2, 4)
    assert entry["skipped"] is False
    failed = run("cat", tmp_path, TOPIC, "--raw")
    assert failed.code == 1
    assert "cursus skip gives up only the damaged records" in failed.err
    answer = done("skip", tmp_path, TOPIC, "-p", 1, "--from", 2, "--to", 4, "--yes", "--json").json
    assert answer["saved_as"].endswith(".broken")
    assert done("cat", tmp_path, TOPIC, "--raw", "-p", 1).lines == ["0-0", "0-1", "2-0", "2-1"]
    assert done("cat", tmp_path, TOPIC, "--raw", "-p", 0).lines == [
        f"{n}-{m}" for n in range(3) for m in range(2)
    ]
    done("check", tmp_path, "--strict")
    (again,) = done("skip", tmp_path, TOPIC, "--json").json
    assert again == {"partition": 1, "start": 2, "end": 4, "skipped": True}
    assert "skipped" in done("skip", tmp_path, TOPIC).out
    text = done("describe", tmp_path).out
    assert "records 2 to 3 of partition 1 were damaged and are skipped\n" in text
    facts = done("describe", tmp_path, TOPIC, "--json").json["topics"][0]
    assert [each["skipped"] for each in facts["partitions"]] == [[], [{"start": 2, "end": 4}]]
    assert facts["records"] == 10


def test_nothing_is_given_up_without_an_answer_or_without_the_exact_range(tmp_path: Path) -> None:
    damaged(tmp_path)
    words = ("-p", 1, "--from", 2, "--to", 4)
    assert skipped(tmp_path, *words).code == 1
    for part in (words[:2] + words[2:4], words[:2] + words[4:], words[2:]):
        assert skipped(tmp_path, *part, "--yes").code == 2
    wrong = skipped(tmp_path, "-p", 1, "--from", 2, "--to", 5, "--yes")
    assert wrong.code == 1
    assert "orders-1: offsets 2 to 5 are not the range of one damage." in wrong.err
    assert skipped(tmp_path).code == 1
    with Store.open(tmp_path) as store:
        assert store.skipped(TOPIC, 1) == []


def test_a_sound_topic_has_nothing_to_skip(tmp_path: Path) -> None:
    made(tmp_path)
    assert done("skip", tmp_path, TOPIC).out == ""
    assert done("skip", tmp_path, TOPIC, "--json").json == []


@pytest.mark.parametrize("layout", ["cursus", "cursus-broker", "rustlog"])
def test_brokers_directories_are_refused_in_a_sentence(tmp_path: Path, layout: str) -> None:
    made(tmp_path, layout)
    answer = skipped(tmp_path)
    assert answer.code == 1
    assert "only a native store has frames that can be skipped" in answer.err


def test_rows_of_a_typed_topic_are_given_up_too(tmp_path: Path) -> None:
    made_typed(tmp_path)
    done("append", tmp_path, TOPIC, "--json", given='{"id": 4}')
    flip(tmp_path, 0, 0)
    done("skip", tmp_path, TOPIC, "-p", 0, "--from", 0, "--to", 3, "--yes")
    assert [row["id"] for row in done("cat", tmp_path, TOPIC, "--json").objects] == [4]
