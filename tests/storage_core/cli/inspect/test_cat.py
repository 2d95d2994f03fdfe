"""``append`` and ``cat``: every form in, every form out."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pyarrow as pa
import pytest

from storage_core import Store
from storage_core.format.partitioner import partition_for_keys
from tests.support.cli_runner import LAYOUTS, TOPIC, done, made, run, timed, values_of
from tests.support.stores import rows


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
    odd = {"key_b64": "/w==", "value_b64": "AP8=", "headers": [{"key": "h", "value_b64": "/w=="}]}
    line = json.dumps({**odd, "partition": 1, "timestamp": "2026-01-02T03:04:05.000006Z"})
    done("append", tmp_path / "a", TOPIC, "--json", given=line + "\n\n")
    printed = done("cat", tmp_path / "a", TOPIC, "--json")
    last = printed.objects[-1]
    assert (last["key_b64"], last["value_b64"]) == ("/w==", "AP8=")
    assert "key" not in last
    assert "value" not in last
    assert last["headers"] == odd["headers"]
    assert last["timestamp"] == "2026-01-02T03:04:05.000006Z"
    done("create", tmp_path / "b", TOPIC, "-p", 2)
    done("append", tmp_path / "b", TOPIC, "--json", given=printed.out)
    assert done("cat", tmp_path / "b", TOPIC, "--json").out == printed.out
    done("create", tmp_path / "b", "single")
    done("append", tmp_path / "b", "single", "--json", "--partition", 0, given=printed.out)
    assert len(done("cat", tmp_path / "b", "single").lines) == len(printed.lines)


def test_json_takes_short_forms(tmp_path: Path) -> None:
    done("create", tmp_path, TOPIC)
    lines = [
        {"key": "k", "value": {"a": [1, None]}, "headers": {"h": "x"}, "timestamp": 1000},
        {"value": None},
        {},
    ]
    text = "\n".join(map(json.dumps, lines))
    done("append", tmp_path, TOPIC, "--json", given=text)
    found = rows(Store.open(tmp_path).read(TOPIC, 0))
    assert [row["value"] for row in found] == [b'{"a": [1, null]}', None, None]
    assert found[0]["headers"] == [{"key": "h", "value": b"x"}]
    assert found[0]["timestamp"].timestamp() == 1


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("{", "this is not JSON"),
        ("[1]", "expected a JSON object"),
        ('{"vlaue": 1}', "field 'vlaue' is unknown"),
        ('{"key_b64": "?"}', "key_b64 is not base64"),
        ('{"value": "\\ud800"}', "value is not text"),
        ('{"headers": ["h"]}', "headers must be"),
        ('{"timestamp": "soon"}', "timestamp: 'soon' is not a time"),
        ('{"timestamp": "2h"}', "timestamp must be"),
        ('{"partition": -1}', "partition must be"),
        ('{"partition": 1}', "'orders' has no partition 1; it has 0 to 0."),
    ],
)
def test_a_bad_line_is_named_and_those_before_it_are_kept(
    tmp_path: Path, line: str, word: str
) -> None:
    done("create", tmp_path, TOPIC)
    answer = run("append", tmp_path, TOPIC, "--json", given='{"value": "good"}\n' + line + "\n{}")
    assert answer.code == 1
    assert answer.err.startswith(f"cursus: [RECORD_INVALID] line 2: {word}")
    assert answer.err.count("\n") == 1
    assert values_of(tmp_path) == ["good"]


def test_keys_go_where_kafka_would_put_them(tmp_path: Path) -> None:
    done("create", tmp_path, TOPIC, "-p", 5)
    keys = [f"key-{number}" for number in range(20)]
    lines = "".join(f"{key}=v=1\n" for key in keys)
    words = ["-k", "=", "--print-offsets"]
    printed = done("append", tmp_path, TOPIC, *words, given=lines).objects
    assert sum(part["end"] - part["start"] for part in printed) == 20
    found = done("cat", tmp_path, TOPIC, "--json").objects
    expected = partition_for_keys(pa.array(keys), 5).tolist()
    assert {record["key"]: record["partition"] for record in found} == dict(
        zip(keys, expected, strict=True)
    )
    assert {record["value"] for record in found} == {"v=1"}
    assert "no '='" in run("append", tmp_path, TOPIC, "-k", "=", given="plain\n").err


def test_input_may_be_a_file(tmp_path: Path) -> None:
    done("create", tmp_path / "s", TOPIC)
    (tmp_path / "lines").write_bytes(b"a\r\n\n\xff\x1b\n")
    done("append", tmp_path / "s", TOPIC, "--input", tmp_path / "lines")
    found = rows(Store.open(tmp_path / "s").read(TOPIC, 0))
    assert [row["value"] for row in found] == [b"a\r", b"", b"\xff\x1b"]
    shown = done("cat", tmp_path / "s", TOPIC).lines
    assert [line.rpartition("  ")[2] for line in shown] == ["a\\r", "", "\\xff\\x1b"]


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


def test_a_line_for_people_shows_everything_and_commands_no_terminal(tmp_path: Path) -> None:
    timed(tmp_path)
    first, second, *_ = done("cat", tmp_path, TOPIC).lines
    assert first == "0:0  2023-11-14T22:13:20.000000Z  k  value-0  {h=x}"
    assert second == "0:1  2023-11-14T22:13:21.000000Z  –  value-1"
    coded = base64.b64encode("\x1b[2Jé\n".encode()).decode()
    done("append", tmp_path, TOPIC, "--json", given=json.dumps({"value_b64": coded}))
    assert done("cat", tmp_path, TOPIC, "--from", 10).lines[0].endswith("–  \\x1b[2Jé\\n")


def test_a_record_that_the_store_refuses_is_named_by_its_line(tmp_path: Path) -> None:
    done("create", tmp_path, TOPIC, "-p", "2", "--set", "max_record_bytes=10")
    lines = [f'{{"value": "r{number}", "partition": {number % 2}}}' for number in range(10)]
    lines[6] = '{"value": "far too large for it", "partition": 0}'
    answer = run("append", tmp_path, TOPIC, "--json", given="\n".join(lines))
    assert answer.code == 1
    assert answer.err.startswith("cursus: [RECORD_TOO_LARGE] line 7: ")
    assert sorted(values_of(tmp_path)) == [f"r{number}" for number in range(6)]


def test_what_a_layout_cannot_store_is_named_by_its_line(tmp_path: Path) -> None:
    done("create", tmp_path, TOPIC, "--layout", "rustlog")
    lines = '{"value": "a"}\n\n{"value": "b"}\n{"value": null}\n{"value": "c"}\n'
    answer = run("append", tmp_path, TOPIC, "--json", given=lines)
    assert answer.code == 1
    assert " line 4: " in answer.err
    assert values_of(tmp_path) == ["a", "b"]


def test_odd_input_of_append_is_one_line(tmp_path: Path) -> None:
    done("create", tmp_path, TOPIC)
    deep = '{"value": "a"}\n{"value": ' + "[" * 100_000 + "\n"
    answer = run("append", tmp_path, TOPIC, "--json", given=deep)
    assert (answer.code, answer.err.count("\n")) == (1, 1)
    assert " line 2: this is not JSON" in answer.err
    assert values_of(tmp_path) == ["a"]
    assert run("append", tmp_path, TOPIC, "-k", "", given="a=b\n").code == 2
