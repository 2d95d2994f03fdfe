"""``create``, ``alter`` and ``append`` of typed topics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from storage_core import Store
from storage_core.schema.ddl import to_ddl
from tests.support.cli_runner import EVENTS, EVENTS_DDL, TOPIC, done, made_typed, run

USAGE = 2


def ddl(path: Path) -> str:
    schema = Store.open(path).schema(TOPIC)
    assert schema is not None
    return to_ddl(schema.fields)


def rows(path: Path) -> list[dict[str, Any]]:
    return list(Store.open(path).scan(TOPIC).to_table().to_pylist())


def test_create_makes_a_typed_topic(tmp_path: Path) -> None:
    words = ("--key-columns", "user, ID", "--timestamp-column", "TS", "-p", 3)
    done("create", tmp_path, TOPIC, "--schema", EVENTS_DDL, *words)
    found = Store.open(tmp_path).topic(TOPIC)
    assert (found.kind, found.partitions) == ("typed", 3)
    assert (found.key_columns, found.timestamp_column) == (("user", "id"), "ts")
    assert ddl(tmp_path) == EVENTS_DDL


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ["--schema", "id BIGINTT"],
            1,
            "[SCHEMA_INVALID] the schema cannot be read at character 4",
        ),
        (["--schema", "_offset INT"], 1, "[SCHEMA_INVALID] column _offset: the names"),
        (["--schema", "id INT", "--key-columns", "x"], 1, "[SCHEMA_INVALID] key_columns names 'x'"),
        (
            ["--schema", "m MAP<STRING, INT>", "--key-columns", "m"],
            1,
            "[SCHEMA_INVALID] key column m: found type map<string,int>, whose values "
            "cannot be compared",
        ),
        (
            ["--schema", "id INT", "--timestamp-column", "id"],
            1,
            "[SCHEMA_INVALID] timestamp_column id has type int32",
        ),
        (["--key-columns", "x"], USAGE, "--key-columns and --timestamp-column name columns of"),
        (
            ["--schema", "id INT", "--layout", "rustlog"],
            1,
            "[SCHEMA_MISMATCH] layout rustlog stores keys and values, not columns",
        ),
    ],
)
def test_create_refuses_what_cannot_be(
    tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    answer = run("create", tmp_path, TOPIC, *words)
    assert answer.code == code
    assert said in answer.err
    assert run("describe", tmp_path, TOPIC).code == 1


def test_if_not_exists_does_not_take_a_topic_for_what_it_is_not(tmp_path: Path) -> None:
    words = ("create", tmp_path, TOPIC, "--if-not-exists")
    done(*words, "--schema", EVENTS_DDL, "--key-columns", "user")
    done(*words, "--schema", "user STRING", "--key-columns", "USER")
    for other in ([], ["--schema", "user STRING"]):
        answer = run(*words, *other)
        assert answer.code == 1
        assert (
            "[TOPIC_EXISTS] topic 'orders' exists as a typed topic with key columns" in answer.err
        )
    assert ddl(tmp_path) == EVENTS_DDL
    done("create", tmp_path, "plain")
    assert run("create", tmp_path, "plain", "--if-not-exists", "--schema", "a INT").code == 1


def test_alter_adds_columns_in_one_version(tmp_path: Path) -> None:
    made_typed(tmp_path)
    done("alter", tmp_path, TOPIC, "--add-column", "amount DOUBLE", "--add-column", "`a b` INT")
    assert ddl(tmp_path) == f"{EVENTS_DDL}, amount DOUBLE, `a b` INT"
    assert [row["amount"] for row in rows(tmp_path)] == [None] * 3
    origins = [found.origin for found in Store.open(tmp_path).schema_versions(TOPIC)]
    assert origins == ["create", "alter"]


def test_alter_refuses_columns_that_cannot_be_added(tmp_path: Path) -> None:
    made_typed(tmp_path)
    never = run("alter", tmp_path, TOPIC, "--add-column", "x INT NOT NULL")
    assert never.code == USAGE
    assert "x cannot be NOT NULL: the rows that are there have no value for it." in never.err
    other = run("alter", tmp_path, TOPIC, "--add-column", "id STRING")
    assert other.code == 1
    assert "[SCHEMA_MISMATCH]" in other.err
    done("create", tmp_path, "plain")
    plain = run("alter", tmp_path, "plain", "--add-column", "x INT")
    assert plain.code == 1
    assert "records topic" in plain.err
    assert ddl(tmp_path) == EVENTS_DDL


def test_rows_go_in_and_come_out(tmp_path: Path) -> None:
    made_typed(tmp_path / "a", "-p", 2)
    printed = done("cat", tmp_path / "a", TOPIC, "--json")
    wanted = [json.loads(line) for line in EVENTS.splitlines()]
    columns = list(wanted[0])
    assert [{name: row[name] for name in columns} for row in printed.objects] == wanted
    assert [row["_timestamp"] for row in printed.objects] == [row["ts"] for row in wanted]
    words = ("--schema", EVENTS_DDL, "--timestamp-column", "ts", "-p", 2)
    done("create", tmp_path / "b", TOPIC, *words)
    done("append", tmp_path / "b", TOPIC, "--json", given=printed.out)
    assert done("cat", tmp_path / "b", TOPIC, "--json").out == printed.out


def test_a_row_keeps_its_time_if_it_names_one(tmp_path: Path) -> None:
    done("create", tmp_path, TOPIC, "--schema", "id INT, ts TIMESTAMP", "--timestamp-column", "ts")
    done("create", tmp_path, "plain", "--schema", "id INT")
    lines = (
        '{"id": 1, "_timestamp": "1970-01-01T00:00:00Z"}\n'
        '{"id": 2, "_timestamp": "1990-01-01T00:00:00Z", "ts": "2001-01-01T00:00:00Z"}\n'
    )
    for topic, second in ((TOPIC, "2001"), ("plain", "1990")):
        given = lines if topic == TOPIC else lines.replace(', "ts": "2001-01-01T00:00:00Z"', "")
        done("append", tmp_path, topic, "--json", given=given)
        times = [row["_timestamp"][:4] for row in done("cat", tmp_path, topic, "--json").objects]
        assert times == ["1970", second]
    late = '{"id": 3, "_timestamp": "12345-01-01T00:00:00Z"}'
    answer = run("append", tmp_path, "plain", "--json", given=late)
    assert "line 1: timestamp" in answer.err
    assert "outside the years 1 to 9999" in answer.err


def test_rows_go_to_the_partition_of_their_key(tmp_path: Path) -> None:
    done("create", tmp_path, TOPIC, "--schema", "k STRING, n INT", "--key-columns", "k", "-p", 4)
    lines = [json.dumps({"k": f"key-{n % 20}", "n": n}) for n in range(100)]
    done("append", tmp_path, TOPIC, "--json", given="\n".join(lines))
    with Store.open(tmp_path) as store:
        found = [
            {row["k"] for row in store.scan(TOPIC, partitions=[p]).to_table().to_pylist()}
            for p in range(4)
        ]
        assert sum(map(len, found)) == 20
        assert len([keys for keys in found if keys]) > 1
        table = store.scan(TOPIC).to_table()
        routed = store.append_table(TOPIC, table)
        ends = store.visible_ends(TOPIC)
    assert {p: len(offsets) for p, offsets in routed.items()} == {
        p: end // 2 for p, end in enumerate(ends) if end
    }
    fixed = done(
        "append", tmp_path, TOPIC, "--json", "-p", 3, "--print-offsets", given="\n".join(lines)
    )
    assert [(each["partition"], each["end"] - each["start"]) for each in fixed.objects] == [
        (3, 100)
    ]


WRONG = f"[SCHEMA_MISMATCH] line 3: topic {TOPIC!r}"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "[RECORD_INVALID] line 3: the line is not JSON"),
        ('{"id": "x"}', f'{WRONG}, column id: found "x", wanted bigint'),
        ('{"user": "x"}', f"{WRONG}, column id: found null or nothing, wanted"),
        ('{"id": 1, "usr": "x"}', f"{WRONG}, column usr: found no such column"),
        ('{"id": 1, "tags": [1]}', f"{WRONG}, column tags.element: found 1"),
        ('{"id": 1, "_partition": 7}', "[RECORD_INVALID] line 3: 'orders' has no partition 7"),
        ('{"id": 1, "user": "' + "x" * 2000 + '"}', "[RECORD_TOO_LARGE] line 3:"),
    ],
)
def test_a_bad_row_is_named_and_those_before_it_are_kept(
    tmp_path: Path, line: str, said: str
) -> None:
    made_typed(tmp_path, "--set", "max_record_bytes=1000", rows="")
    given = '{"id": 1}\n\n' + line + '\n{"id": 2}'
    answer = run("append", tmp_path, TOPIC, "--json", "--print-offsets", given=given)
    assert answer.code == 1
    assert [each["end"] - each["start"] for each in answer.objects] == [1]
    assert answer.err.startswith(f"cursus: {said}")
    assert answer.err.endswith("The lines before it were appended.\n")
    assert answer.err.count("\n") == 1
    assert [row["id"] for row in rows(tmp_path)] == [1]


@pytest.mark.parametrize("words", [[], ["-k", ":"], ["--json", "-k", ":"]])
def test_flags_of_records_are_refused(tmp_path: Path, words: list[str]) -> None:
    made_typed(tmp_path)
    answer = run("append", tmp_path, TOPIC, *words, given="x:y\n")
    assert answer.code == USAGE
    assert "'orders' is a typed topic. Pass --json, without --key-separator" in answer.err
    assert len(rows(tmp_path)) == 3


@pytest.mark.parametrize(
    "refused", [["--set", "compression=gzip"], ["-p", 1], ["--set", "cleanup_policy=compact"]]
)
def test_alter_adds_no_column_if_it_refuses_the_rest(tmp_path: Path, refused: list[Any]) -> None:
    done("create", tmp_path, TOPIC, "--schema", "id BIGINT", "-p", 2)
    assert run("alter", tmp_path, TOPIC, "--add-column", "extra INT", *refused).code != 0
    assert ddl(tmp_path) == "id BIGINT"
    rest = ("--set", "compression=zstd", "-p", 3)
    done("alter", tmp_path, TOPIC, "--add-column", "extra INT", *rest)
    found = Store.open(tmp_path).topic(TOPIC)
    assert (ddl(tmp_path), found.partitions) == ("id BIGINT, extra INT", 3)
    assert found.settings == {"compression": "zstd"}
