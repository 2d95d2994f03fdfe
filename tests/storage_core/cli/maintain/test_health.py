"""``check``, ``repair`` and ``scrub``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import stores
from tests.support.cli_runner import LAYOUTS, TOPIC, done, made, run, timed
from tests.support.store_lives import in_segments, numbered
from tests.support.stores import overwrite, segment, tree


def log_file(path: Path) -> Path:
    return path / "topics" / TOPIC / "0" / "segments" / f"{0:020}.log"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_sound_store_has_no_problems_and_nothing_to_repair(tmp_path: Path, layout: str) -> None:
    made(tmp_path, layout)
    assert done("check", tmp_path, "--json").json == []
    assert done("check", tmp_path, "--strict").out == ""
    assert done("repair", tmp_path).out == ""
    assert done("repair", tmp_path, "--yes", "--json").json["left"] == []


def test_check_exits_with_1_for_errors_and_names_them(tmp_path: Path) -> None:
    timed(tmp_path)
    overwrite(log_file(tmp_path), lambda data: data.__setitem__(100, data[100] ^ 1))
    answer = run("check", tmp_path, "--json")
    assert answer.code == 1
    assert {problem["code"] for problem in answer.json} == {"LOG_DAMAGED"}
    assert "LOG_DAMAGED" in run("check", tmp_path).out
    (tmp_path / "rust").mkdir()
    made(tmp_path / "rust", "rustlog")
    (file,) = (tmp_path / "rust").rglob("*.log")
    overwrite(file, lambda data: data.__setitem__(11, 9))
    assert run("check", tmp_path / "rust").code == 1


def test_warnings_count_only_when_strict(tmp_path: Path) -> None:
    timed(tmp_path)
    overwrite(log_file(tmp_path), lambda data: data.extend(b"torn"))
    answer = done("check", tmp_path, "--json")
    assert [(found["severity"], found["code"]) for found in answer.json] == [
        ("warning", "RECOVERY_NEEDED")
    ]
    assert run("check", tmp_path, "--strict").code == 1


def test_repair_shows_first_and_changes_nothing_unasked(tmp_path: Path) -> None:
    timed(tmp_path)
    overwrite(log_file(tmp_path), lambda data: data.extend(b"torn"))
    before = tree(tmp_path)
    for words, given in ((["--dry-run"], ""), ([], "n\n"), ([], "")):
        answer = run("repair", tmp_path, *words, given=given)
        assert answer.code == 1
        assert "RECOVERY_NEEDED" in answer.out
        assert tree(tmp_path) == before
    shown = run("repair", tmp_path, "--dry-run", "--json").json
    assert [problem["code"] for problem in shown["problems"]] == ["RECOVERY_NEEDED"]


def test_repair_mends_what_it_can_and_says_what_is_left(tmp_path: Path) -> None:
    timed(tmp_path)
    overwrite(log_file(tmp_path), lambda data: data.extend(b"torn"))
    answer = done("repair", tmp_path, given="y\n")
    (line,) = [line for line in answer.lines if line.startswith(TOPIC)]
    assert line.split()[:4] == [TOPIC, "0", "10", "4"]
    assert done("check", tmp_path, "--strict", "--json").json == []
    overwrite(log_file(tmp_path), lambda data: data.__setitem__(100, data[100] ^ 1))
    damaged = run("repair", tmp_path, "--yes")
    assert damaged.code == 1
    assert "LOG_DAMAGED" in damaged.out


def test_scrub_reports_damage_with_exit_code_1(tmp_path: Path) -> None:
    in_segments(tmp_path, numbered(2)).close()
    (clean,) = done("scrub", tmp_path, stores.TOPIC, "--json").json
    assert (clean["problems"], clean["segments_before"]) == ([], 2)
    assert done("scrub", tmp_path).out == ""
    overwrite(segment(tmp_path, 3), lambda data: data.__setitem__(80, data[80] ^ 1))
    found = run("scrub", tmp_path, "--rate", "100000000")
    assert found.code == 1
    assert "LOG_DAMAGED" in found.out
