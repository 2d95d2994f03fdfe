"""``cat``: every form that ``append`` takes comes out."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from storage_core import Store
from tests.support.cli_runner import LAYOUTS, TOPIC, done, made, run, timed, values_of


@pytest.mark.parametrize("layout", LAYOUTS)
def test_lines_go_in_and_come_out_of_every_layout(tmp_path: Path, layout: str) -> None:
    made(tmp_path, layout, values=3)
    assert values_of(tmp_path) == ["value-0", "value-1", "value-2"]
    done("append", tmp_path, TOPIC, given="without a newline")
    assert values_of(tmp_path, "--from", 2) == ["value-2", "without a newline"]
    assert values_of(tmp_path, "--from", -3, "--to", 3) == ["value-1", "value-2"]
    first = done("cat", tmp_path, TOPIC, "--json", "--max", 1).json
    assert list(first) == "topic partition offset timestamp key value headers".split()
    assert (first["topic"], first["partition"], first["offset"]) == (TOPIC, 0, 0)
    assert (first["key"], first["value"]) == (None, "value-0")
    assert (first["timestamp"] is None) == (layout != "native")


def test_what_cat_prints_as_json_append_takes_back(tmp_path: Path) -> None:
    timed(tmp_path / "a", partitions=2)
    raw = {"key_b64": "/w==", "value_b64": "AP8=", "headers": [{"key": "h", "value_b64": "/w=="}]}
    line = json.dumps({**raw, "partition": 1, "timestamp": "2026-01-02T03:04:05.000006Z"})
    done("append", tmp_path / "a", TOPIC, "--json", given=line + "\n\n")
    printed = done("cat", tmp_path / "a", TOPIC, "--json")
    last = printed.objects[-1]
    assert (last["key_b64"], last["value_b64"]) == ("/w==", "AP8=")
    assert "key" not in last
    assert "value" not in last
    assert last["headers"] == raw["headers"]
    assert last["timestamp"] == "2026-01-02T03:04:05.000006Z"
    done("create", tmp_path / "b", TOPIC, "-p", 2)
    done("append", tmp_path / "b", TOPIC, "--json", given=printed.out)
    assert done("cat", tmp_path / "b", TOPIC, "--json").out == printed.out
    done("create", tmp_path / "b", "single")
    done("append", tmp_path / "b", "single", "--json", "--partition", 0, given=printed.out)
    assert len(done("cat", tmp_path / "b", "single").lines) == len(printed.lines)


def test_cat_begins_at_a_time(tmp_path: Path) -> None:
    timed(tmp_path, partitions=2)
    moment = "2023-11-14T22:13:28Z"
    assert values_of(tmp_path, "--at", moment) == ["value-8", "value-9"] * 2
    assert values_of(tmp_path, "--at", moment, "--partition", 1, "--max", 1) == ["value-8"]
    assert values_of(tmp_path, "--at", "1700000009000", "--partition", 0) == ["value-9"]
    assert values_of(tmp_path, "--at", "now") == []
    assert run("cat", tmp_path, TOPIC, "--at", moment, "--from", 1).code == 2
    wrong = run("cat", tmp_path, TOPIC, "--at", "yesterday")
    assert wrong.code == 2
    assert "'yesterday' is not a time. Use ISO 8601" in wrong.err
    made(tmp_path / "rust", "rustlog")
    untimed = run("cat", tmp_path / "rust", TOPIC, "--at", moment)
    assert (untimed.code, untimed.err[:25]) == (1, "cursus: [CONFIG_INVALID] ")


def test_cat_is_strict_about_one_partition_and_lenient_over_all(tmp_path: Path) -> None:
    timed(tmp_path, partitions=2)
    Store.open(tmp_path).append(TOPIC, 1, [b"more"])
    assert values_of(tmp_path, "--from", 10) == ["more"]
    answer = run("cat", tmp_path, TOPIC, "--from", 11, "--partition", 0)
    assert (answer.code, answer.err[:30]) == (1, "cursus: [OFFSET_OUT_OF_RANGE] ")
    assert run("cat", tmp_path, TOPIC, "--partition", 2).err.startswith(
        "cursus: [PARTITION_NOT_FOUND] "
    )
    assert values_of(tmp_path, "--max", 0) == []


def test_cat_says_why_it_printed_nothing(tmp_path: Path) -> None:
    timed(tmp_path, partitions=2)
    Store.open(tmp_path).create_topic("empty")
    assert done("cat", tmp_path, "empty").err == "No record to print: empty is empty.\n"
    nothing = done("cat", tmp_path, TOPIC, "--from", 100)
    assert nothing.err == (
        f"No record of {TOPIC} matches. Offsets by partition, the end excluded: 0: 0 to 10, "
        "1: 0 to 10.\n"
    )
    assert done("cat", tmp_path, TOPIC, "--where", "_offset > 100").err == nothing.err
    assert done("cat", tmp_path, TOPIC, "--from", 100, "-q").err == ""
    assert done("cat", tmp_path, TOPIC, "--from", 9).err == ""
    assert done("cat", tmp_path, TOPIC, "--max", 0).err == ""
    Store.open(tmp_path).add_partitions(TOPIC, 20)
    assert done("cat", tmp_path, TOPIC, "--from", 100).err.endswith(" 7: 0 to 0, …\n")


def test_a_line_for_people_shows_everything_and_commands_no_terminal(tmp_path: Path) -> None:
    timed(tmp_path)
    first, second, *_ = done("cat", tmp_path, TOPIC).lines
    assert first == "0:0  2023-11-14T22:13:20.000000Z  k  value-0  {h=x}"
    assert second == "0:1  2023-11-14T22:13:21.000000Z  –  value-1"
    coded = base64.b64encode("\x1b[2Jé\n".encode()).decode()
    done("append", tmp_path, TOPIC, "--json", given=json.dumps({"value_b64": coded}))
    assert done("cat", tmp_path, TOPIC, "--from", 10).lines[0].endswith("–  \\x1b[2Jé\\n")
