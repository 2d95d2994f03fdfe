"""``topics`` and ``describe``."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_core import Store, StoreConfig
from tests.support.cli_runner import LAYOUTS, TOPIC, done, made, run, timed
from tests.support.stores import T0, overwrite


@pytest.mark.parametrize("layout", LAYOUTS)
def test_topics_and_describe_show_every_layout(tmp_path: Path, layout: str) -> None:
    made(tmp_path, layout, values=3, partitions=2)
    (found,) = done("topics", tmp_path, "--json").json
    assert (found["topic"], found["partitions"], found["records"]) == (TOPIC, 2, 6)
    assert found["bytes"] > 0
    head, line = done("topics", tmp_path).lines
    assert head.split() == ["topic", "kind", "partitions", "segments", "records", "size"]
    assert line.split()[:5] == [TOPIC, "records", "2", "2", "6"]
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


@pytest.mark.parametrize("rolls", [True, False])
def test_describe_says_when_times_are_out_of_order(tmp_path: Path, rolls: bool) -> None:
    with Store.open(tmp_path, create=True) as store:
        store.create_topic(TOPIC, 2)
        for partition, times in enumerate(([1, 2, 2, 3], [1, 3, 2, 4])):
            for time in times:
                store.append(TOPIC, partition, [b"v"], timestamps=[T0 + time])
                if rolls:
                    store.roll(TOPIC, partition)
    (found,) = done("describe", tmp_path, "--json").json["topics"]
    assert [part["times_in_order"] for part in found["partitions"]] == [True, False]
    assert "times are out of order in partition 1:" in done("describe", tmp_path).out


def test_describe_looks_into_the_first_frames_of_the_active_segment(tmp_path: Path) -> None:
    with Store.open(tmp_path, create=True) as store:
        store.create_topic(TOPIC, 2)
        store.append(TOPIC, 0, [b"v"] * 3, timestamps=[T0, T0 + 1, T0 + 1])
        store.append(TOPIC, 1, [b"v"] * 3, timestamps=[T0, T0 + 2, T0 + 1])
    (found,) = done("describe", tmp_path, "--json").json["topics"]
    assert [part["times_in_order"] for part in found["partitions"]] == [True, False]


def compacted(path: Path, layout: str) -> int:
    """A store whose compaction leaves holes; returns how many records it still has."""
    config = StoreConfig(
        segment_bytes=4096, cleanup_policy="compact", min_cleanable_dirty_ratio=0.0
    )
    with Store.open(path, layout=layout, create=True, config=config) as store:
        store.create_topic(TOPIC)
        for number in range(40):
            store.append(TOPIC, 0, [b"v" * 300] * 2, keys=[b"same", b"%d" % (number % 3)])
        store.compact(TOPIC, policy="compact", min_dirty_ratio=0)
        left = sum(int(batch.num_rows) for batch in store.read(TOPIC, 0))
    assert 0 < left < 80
    return left


@pytest.mark.parametrize("layout", ["native", "cursus-broker"])
def test_holes_of_compaction_are_no_records(tmp_path: Path, layout: str) -> None:
    left = compacted(tmp_path, layout)
    (found,) = done("topics", tmp_path, "--json").json
    assert found["records"] == left
    assert done("topics", tmp_path).lines[1].split()[4] == str(left)
    (topic,) = done("describe", tmp_path, "--json").json["topics"]
    (partition,) = topic["partitions"]
    assert (topic["records"], partition["records"], partition["end"]) == (left, left, 80)
    assert sum(segment["records"] for segment in partition["segments"]) == left
    assert f"{left} records" in done("report", tmp_path).out


def test_damage_does_not_hide_the_records_around_it(tmp_path: Path) -> None:
    timed(tmp_path)
    (file,) = tmp_path.rglob("*.log")
    overwrite(file, lambda data: data.__setitem__(4, data[4] ^ 1))
    (found,) = done("topics", tmp_path, "--json").json
    assert found["records"] == 10
