"""``topics``, ``describe``, ``create``, ``alter``, ``delete``."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_core import Store
from tests.support.cli_runner import LAYOUTS, TOPIC, done, made, run, timed


@pytest.mark.parametrize("layout", LAYOUTS)
def test_topics_and_describe_show_every_layout(tmp_path: Path, layout: str) -> None:
    made(tmp_path, layout, values=3, partitions=2)
    (found,) = done("topics", tmp_path, "--json").json
    assert (found["topic"], found["partitions"], found["records"]) == (TOPIC, 2, 6)
    assert found["bytes"] > 0
    head, line = done("topics", tmp_path).lines
    assert head.split() == ["topic", "partitions", "segments", "records", "size"]
    assert line.split()[:4] == [TOPIC, "2", "2", "6"]
    shown = done("describe", tmp_path, TOPIC, "--json").json
    assert shown["layout"] == layout
    ends = [part["end"] for part in shown["topics"][0]["partitions"]]
    assert ends == [3, 3]
    assert f"layout {layout}" in done("describe", tmp_path).out


def test_describe_draws_segments_over_time_and_shows_lag(tmp_path: Path) -> None:
    timed(tmp_path, partitions=2)
    done("groups", tmp_path, "readers", "--topic", TOPIC, "--reset-to", "4", "--yes")
    answer = done("describe", tmp_path, TOPIC)
    assert "2023-11-14 22:13:20Z" in answer.out
    assert "██" in answer.out
    lag = [line.split() for line in answer.lines if line.startswith("readers")]
    assert lag == [["readers", TOPIC, "0", "4", "10", "6"], ["readers", TOPIC, "1", "4", "10", "6"]]
    facts = done("describe", tmp_path, "--json").json
    (segment,) = facts["topics"][0]["partitions"][0]["segments"]
    assert segment["first_time"] == "2023-11-14T22:13:20.000000Z"
    assert segment["last_time"] == "2023-11-14T22:13:29.000000Z"
    assert {group["lag"] for group in facts["groups"]} == {6}


def test_create_makes_the_store_and_takes_settings(tmp_path: Path) -> None:
    path = tmp_path / "new"
    settings = ["--set", "compression=zstd", "--set", "retention_ms=60000"]
    done("create", path, TOPIC, "--partitions", 3, *settings)
    found = Store.open(path).topic(TOPIC)
    assert found.partitions == 3
    assert dict(found.settings) == {"compression": "zstd", "retention_ms": 60000}
    again = run("create", path, TOPIC)
    assert again.code == 1
    assert again.err.startswith("cursus: [TOPIC_EXISTS] ")
    done("create", path, TOPIC, "--if-not-exists")
    wrong = run("create", path, "other", "--set", "speed=9")
    assert (wrong.code, wrong.err[:25]) == (1, "cursus: [CONFIG_INVALID] ")
    assert run("create", path, "other", "--set", "compression").code == 2


def test_alter_grows_and_changes(tmp_path: Path) -> None:
    made(tmp_path)
    done("alter", tmp_path, TOPIC, "--partitions", 2, "--set", "compression=lz4")
    found = Store.open(tmp_path).topic(TOPIC)
    assert (found.partitions, dict(found.settings)) == (2, {"compression": "lz4"})
    done("alter", tmp_path, TOPIC, "--set", "compression=default", "--set", "segment_ms=1000")
    assert dict(Store.open(tmp_path).topic(TOPIC).settings) == {"segment_ms": 1000}
    done("create", tmp_path, "plain", "--set", "compression=none", "--set", "segment_ms=default")
    assert dict(Store.open(tmp_path).topic("plain").settings) == {"compression": "none"}
    assert run("alter", tmp_path, TOPIC).code == 2


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("min_cleanable_dirty_ratio=0.3", 0.3),
        ("min_cleanable_dirty_ratio=1", 1),
        ("retention_hold_groups=123", "123"),
        ("retention_hold_groups=", ""),
        ("retention_ms=1000", 1000),
        ("cleanup_policy=delete,compact", "delete,compact"),
    ],
)
def test_a_setting_has_its_own_type(tmp_path: Path, pair: str, value: object) -> None:
    name = pair.partition("=")[0]
    done("create", tmp_path, TOPIC, "--set", pair)
    assert dict(Store.open(tmp_path).topic(TOPIC).settings) == {name: value}
    done("create", tmp_path, "other")
    done("alter", tmp_path, "other", "--set", pair)
    assert dict(Store.open(tmp_path).topic("other").settings) == {name: value}


@pytest.mark.parametrize("pair", ["retention_ms=", "retention_ms=null"])
def test_a_setting_without_a_value_is_not_taken_for_the_default(tmp_path: Path, pair: str) -> None:
    refused = run("create", tmp_path / "log", TOPIC, "--set", pair)
    assert refused.code == 2
    assert "retention_ms=default" in refused.err
    assert not (tmp_path / "log").exists()


def test_delete_asks_first(tmp_path: Path) -> None:
    made(tmp_path)
    refused = run("delete", tmp_path, TOPIC, given="n\n")
    assert refused.code == 1
    assert "Delete orders (1 partition, 5 records" in refused.err
    assert run("delete", tmp_path, TOPIC, given="").code == 1
    assert Store.open(tmp_path).topics() == [TOPIC]
    done("delete", tmp_path, TOPIC, given="y\n")
    assert Store.open(tmp_path).topics() == []
    assert run("delete", tmp_path, TOPIC, "--yes").code == 1


def test_a_topic_that_cannot_be_read_is_named_beside_the_others(tmp_path: Path) -> None:
    made(tmp_path)
    done("create", tmp_path, "other")
    (tmp_path / "topics" / "other" / "watermark").unlink()
    (tmp_path / "topics" / "other" / "topic.json").write_text("{")
    answer = run("topics", tmp_path, "--json")
    assert answer.code == 1
    first, second = answer.json
    assert (first["topic"], first["records"]) == (TOPIC, 5)
    assert second["problem"]["code"] == "METADATA_DAMAGED"
    assert answer.err.startswith("cursus: [METADATA_DAMAGED] ")
    assert run("describe", tmp_path).code == 1
