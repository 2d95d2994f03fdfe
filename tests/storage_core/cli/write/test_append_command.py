"""``append``: lines and JSON lines."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from storage_core import Store
from storage_core.format.partitioner import partition_for_keys
from tests.support.cli_runner import TOPIC, done, run, values_of
from tests.support.stores import rows


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
        ("{", "the line is not JSON"),
        ("[1]", "the line is not a JSON object"),
        ('{"vlaue": 1}', "field 'vlaue' is unknown"),
        ('{"key_b64": "?"}', "key_b64 is not base64"),
        ('{"value": "\\ud800"}', "value cannot be encoded"),
        ('{"headers": ["h"]}', "headers must be"),
        ('{"timestamp": "soon"}', "timestamp: 'soon' is not a time"),
        ('{"timestamp": "2h"}', "timestamp must be"),
        ('{"partition": -1}', "partition must be"),
        ('{"partition": 1}', "'orders' has no partition 1; it has partitions 0 to 0."),
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


def test_malformed_input_gives_one_line(tmp_path: Path) -> None:
    done("create", tmp_path, TOPIC)
    deep = '{"value": "a"}\n{"value": ' + "[" * 100_000 + "\n"
    answer = run("append", tmp_path, TOPIC, "--json", given=deep)
    assert (answer.code, answer.err.count("\n")) == (1, 1)
    assert " line 2: the line is not JSON" in answer.err
    assert values_of(tmp_path) == ["a"]
    assert run("append", tmp_path, TOPIC, "-k", "", given="a=b\n").code == 2
