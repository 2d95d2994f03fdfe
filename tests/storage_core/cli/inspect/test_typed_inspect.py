"""Commands that show typed topics, and ``--where`` of both kinds of topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_core import Store
from tests.support.cli_runner import EVENTS_DDL, LAYOUTS, TOPIC, done, made, made_typed, run, timed
from tests.support.stores import overwrite


def ids(path: Path, *words: object) -> list[int]:
    return [row["id"] for row in done("cat", path, TOPIC, "--json", *words).objects]


def test_a_line_shows_place_time_and_columns(tmp_path: Path) -> None:
    made_typed(tmp_path, rows='{"id": 1, "user": "a\\u001b\\" b", "tags": ["x"]}')
    (line,) = done("cat", tmp_path, TOPIC).lines
    place, time, *rest = line.split("  ")
    assert place == "0:0"
    assert time.endswith("Z")
    assert rest == ["id=1", 'user="a\\u001b\\" b"', "ts=null", 'tags=["x"]']


def test_json_shows_topic_partition_offset_and_timestamp_first(tmp_path: Path) -> None:
    made_typed(tmp_path)
    first = done("cat", tmp_path, TOPIC, "--json", "--max", 1).json
    assert list(first)[:4] == ["_topic", "_partition", "_offset", "_timestamp"]
    assert list(first)[4:] == ["id", "user", "ts", "tags"]


def test_columns_are_chosen_by_name(tmp_path: Path) -> None:
    made_typed(tmp_path)
    chosen = done("cat", tmp_path, TOPIC, "--json", "--columns", "user, id,_offset", "--max", 1)
    assert list(chosen.json)[4:] == ["user", "id"]
    only = done("cat", tmp_path, TOPIC, "--json", "--columns", "_offset")
    assert [list(row)[4:] for row in only.objects] == [[], [], []]
    wrong = run("cat", tmp_path, TOPIC, "--columns", "usr")
    assert wrong.code == 1
    assert "column 'usr' does not exist. Columns: id, user, ts, tags." in wrong.err


def test_where_chooses_rows(tmp_path: Path) -> None:
    made_typed(tmp_path)
    assert ids(tmp_path, "--where", "id > 1") == [2, 3]
    assert ids(tmp_path, "--where", "user is null or user = 'ada'") == [1, 3]
    assert ids(tmp_path, "--where", "ts >= '2026-11-01 10:00:00'", "--max", 1) == [2]
    assert ids(tmp_path, "--where", "_offset = 0") == [1]
    assert ids(tmp_path, "--where", "id > 1", "--columns", "id") == [2, 3]
    wrong = run("cat", tmp_path, TOPIC, "--where", "nope = 1")
    assert wrong.code == 1
    assert "[PREDICATE_INVALID]" in wrong.err


@pytest.mark.parametrize("layout", LAYOUTS)
def test_where_chooses_records(tmp_path: Path, layout: str) -> None:
    made(tmp_path, layout, values=3, partitions=2)
    found = done("cat", tmp_path, TOPIC, "--raw", "--where", "_partition = 1 and _offset >= 1")
    assert found.lines == ["value-1", "value-2"]
    assert done("tail", tmp_path, TOPIC, "--raw", "--where", "_offset = 2").lines == ["value-2"] * 2


def test_where_chooses_records_by_key_and_time(tmp_path: Path) -> None:
    timed(tmp_path)
    keyed = done("cat", tmp_path, TOPIC, "--json", "--where", "key = X'6b' and _offset < 4")
    assert [row["offset"] for row in keyed.objects] == [0, 2]
    late = done("cat", tmp_path, TOPIC, "--raw", "--where", "_timestamp >= '2023-11-14 22:13:28'")
    assert late.lines == ["value-8", "value-9"]


def test_forms_that_a_topic_does_not_have_are_refused(tmp_path: Path) -> None:
    made_typed(tmp_path)
    raw = run("cat", tmp_path, TOPIC, "--raw")
    assert raw.code == 2
    assert "--raw is for records topics; 'orders' is typed. Use --json." in raw.err
    made(tmp_path / "records")
    columns = run("tail", tmp_path / "records", TOPIC, "--columns", "value")
    assert columns.code == 2
    assert "--columns is for typed topics; 'orders' is a records topic." in columns.err


def test_older_rows_have_null_in_new_columns(tmp_path: Path) -> None:
    made_typed(tmp_path)
    done("alter", tmp_path, TOPIC, "--add-column", "amount DOUBLE")
    done("append", tmp_path, TOPIC, "--json", given='{"id": 4, "amount": 2.5}')
    found = done("tail", tmp_path, TOPIC, "-n", 2, "--json").objects
    assert [(row["id"], row["amount"]) for row in found] == [(3, None), (4, 2.5)]


def test_topics_and_describe_show_kind_schema_and_versions(tmp_path: Path) -> None:
    made_typed(tmp_path, "--key-columns", "user")
    done("create", tmp_path, "plain")
    done("alter", tmp_path, TOPIC, "--add-column", "amount DOUBLE")
    kinds = {each["topic"]: each["kind"] for each in done("topics", tmp_path, "--json").json}
    assert kinds == {TOPIC: "typed", "plain": "records"}
    assert "typed" in done("topics", tmp_path).out
    typed, plain = done("describe", tmp_path, "--json").json["topics"]
    assert typed["schema"] == f"{EVENTS_DDL}, amount DOUBLE"
    assert [(v["version"], v["origin"]) for v in typed["schema_versions"]] == [
        (1, "create"), (2, "alter"),
    ]  # fmt: skip
    assert typed["schema_versions"][0]["schema"] == EVENTS_DDL
    assert (typed["key_columns"], typed["timestamp_column"]) == (["user"], "ts")
    assert (plain["schema"], plain["schema_versions"], plain["key_columns"]) == (None, [], [])
    text = done("describe", tmp_path, TOPIC).out
    assert f"schema  {EVENTS_DDL}, amount DOUBLE\n" in text
    assert "key columns  user\ntimestamp column  ts\n" in text
    (row,) = [line for line in text.splitlines() if "alter" in line]
    assert row.split()[:2] == ["2", "alter"]
    assert row.endswith("  amount DOUBLE")


def test_describe_sees_times_out_of_order(tmp_path: Path) -> None:
    lines = '{"id": 1, "ts": "2026-11-02T00:00:00Z"}\n{"id": 2, "ts": "2026-11-01T00:00:00Z"}\n'
    made_typed(tmp_path, rows=lines)
    assert "times are out of order in partition 0" in done("describe", tmp_path).out


def test_a_damaged_schema_is_a_problem_of_the_topic(tmp_path: Path) -> None:
    made_typed(tmp_path)
    file = tmp_path / "topics" / TOPIC / "schemas" / "00000001.json"
    overwrite(file, lambda data: data.__setitem__(slice(20, 24), b"????"))
    for words in (["describe"], ["topics"], ["cat"], ["dump"]):
        answer = run(*words, tmp_path, *([] if words == ["topics"] else [TOPIC]))
        assert answer.code == 1
        assert "00000001.json" in answer.err + answer.out


def test_dump_shows_schema_version_encodings_and_statistics(tmp_path: Path) -> None:
    made_typed(tmp_path, "--set", "compression=zstd", rows="")
    lines = "".join(
        f'{{"id": {n}, "user": "user-{n % 3}", "ts": "2026-11-01T00:00:{n % 60:02}Z"}}\n'
        for n in range(500)
    )
    done("append", tmp_path, TOPIC, "--json", given=lines)
    done("alter", tmp_path, TOPIC, "--add-column", "amount DOUBLE")
    done("append", tmp_path, TOPIC, "--json", given='{"id": 7, "amount": "NaN"}')
    entries = done("dump", tmp_path, TOPIC, "--json").objects
    frames = [each for each in entries if each["kind"] == "frame"]
    assert [frame["schema_version"] for frame in frames] == [1, 2]
    assert frames[0]["columns"] == ["timestamp", "id", "user", "ts"]
    columns = [each for each in entries if each["kind"] == "column"]
    assert [each["name"] for each in columns[:4]] == ["id", "user", "ts", "tags"]
    by_id, by_user, by_time, by_tags = columns[:4]
    assert (by_id["min"], by_id["max"], by_id["nulls"]) == (0, 499, 0)
    assert by_id["body_bytes"] < by_id["raw_bytes"]
    assert (by_user["min"], by_user["max"]) == ("user-0", "user-2")
    assert by_user["encodings"] != ["plain"]
    assert by_time["min"] == "2026-11-01T00:00:00.000000Z"
    assert "encodings" not in by_tags
    assert columns[-1]["name"] == "amount"
    assert columns[-1]["nan"] is True
    text = done("dump", tmp_path, TOPIC, "--records").out
    assert "schema_version=1 columns=timestamp,id,user,ts " in text
    assert "    column id field_id=1 encodings=" in text
    assert "    column tags field_id=4 null in all rows\n" in text
    assert '"_offset": 0' in text
    rows = [each["row"] for each in done("dump", tmp_path, TOPIC, "--records", "--json").objects
            if each["kind"] == "row"]  # fmt: skip
    assert [row["id"] for row in rows] == [*range(500), 7]


def test_dump_names_damage_in_a_typed_frame(tmp_path: Path) -> None:
    made_typed(tmp_path)
    with Store.open(tmp_path) as store:
        (segment,) = store.segments(TOPIC, 0)
    overwrite(tmp_path / segment.path, lambda data: data.__setitem__(200, data[200] ^ 1))
    answer = run("dump", tmp_path, TOPIC)
    assert answer.code == 1
    assert "PROBLEM [LOG_DAMAGED]" in answer.out
