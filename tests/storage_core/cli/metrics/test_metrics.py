"""``metrics``: what it prints is true, is read by Prometheus' own parser, and costs little."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from storage_core import Store, __version__
from storage_core.cli.metrics.exposition import FAMILIES, Sample, exposition
from storage_core.cli.metrics.measures import Measures
from storage_core.errors import StorageError
from storage_core.format.file_names import segment_file
from storage_core.vfs import PosixVfs
from tests.support.cli_runner import LAYOUTS, TOPIC, Answer, done, made, run
from tests.support.crashed_stores import let_go
from tests.support.paths import ROOT
from tests.support.stores import columns_of, overwrite, segments

Found = dict[tuple[str, ...], float]
PAGE = (ROOT / "docs" / "metrics.md").read_text()
DASHBOARD = json.loads((ROOT / "examples" / "grafana-dashboard.json").read_text())


def parsed(text: str) -> Found:
    """By metric and labels the values, as the parser of Prometheus' own client reads them."""
    found: Found = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            key = (sample.name, *sample.labels.values())
            assert key not in found, key
            found[key] = sample.value
    return found


def metrics(path: Path, *words: object) -> Found:
    return parsed(done("metrics", path, *words).out)


def names(found: Found) -> set[str]:
    return {key[0] for key in found}


def now_us() -> int:
    """Of the test, not of the module: a worker may load it long before."""
    return int(time.time() * 1e6)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A partition with a sealed segment an hour old and a recent one, a group in the first."""
    made_store = Store.open(tmp_path, create=True)
    made_store.create_topic(TOPIC, 2)
    old = now_us() - 3_600_000_000
    for first in range(0, 100, 10):  # a frame each, with index entries between
        made_store.append(TOPIC, 0, [b"x" * 1000] * 10, timestamps=[old + first * 1_000_000] * 10)
    made_store.roll(TOPIC, 0)
    made_store.append(TOPIC, 0, [b"y" * 1000] * 30, timestamps=[now_us() - 10_000_000] * 30)
    made_store.commit_offsets("billing", {TOPIC: {0: 60, 1: 0}})
    return made_store


def test_lag_in_records_bytes_and_seconds(store: Store, tmp_path: Path) -> None:
    found = metrics(tmp_path)
    place = ("billing", TOPIC, "0")
    assert found[("cursus_group_committed_offset", *place)] == 60
    assert found[("cursus_group_lag_records", *place)] == 70
    first, second = store.segments(TOPIC, 0)
    read = found[("cursus_group_lag_bytes", *place)]
    assert second.size < read < first.size + second.size
    assert read == pytest.approx(0.4 * first.size + second.size, rel=0.15)
    # The first unread record is that of an hour ago, plus a minute.
    assert 3_540 <= found[("cursus_group_lag_seconds", *place)] < 3_840
    idle = ("billing", TOPIC, "1")
    for name in ("records", "bytes", "seconds"):
        assert found[(f"cursus_group_lag_{name}", *idle)] == 0


def test_ends_sizes_segments_and_rates(store: Store, tmp_path: Path) -> None:
    found, place = metrics(tmp_path), (TOPIC, "0")
    sizes = [segment.size for segment in store.segments(TOPIC, 0)]
    assert found[("cursus_partition_start_offset", *place)] == 0
    assert found[("cursus_partition_end_offset", *place)] == 130
    assert found[("cursus_partition_segments", *place)] == 2
    assert found[("cursus_partition_size_bytes", *place)] == sum(sizes)
    assert found[("cursus_partition_records_per_second", *place)] == 30 / 300
    assert found[("cursus_partition_bytes_per_second", *place)] == pytest.approx(sizes[1] / 300)
    assert found[("cursus_topics",)] == 1
    assert found[("cursus_store_info", "native", __version__)] == 1


def test_what_a_group_lost_and_what_was_skipped(store: Store, tmp_path: Path) -> None:
    store.delete_records(TOPIC, {0: 100})
    found = metrics(tmp_path)
    assert found[("cursus_group_lost_records", "billing", TOPIC, "0")] == 40
    assert found[("cursus_partition_start_offset", TOPIC, "0")] == 100
    assert found[("cursus_partition_skipped_records", TOPIC, "0")] == 0
    assert found[("cursus_group_lag_bytes", "billing", TOPIC, "0")] == pytest.approx(
        sum(segment.size for segment in store.segments(TOPIC, 0))
    )


def test_leftover_staging_and_pending_commits(store: Store, tmp_path: Path) -> None:
    stage = store.stage("job-1")
    stage.get_handler(TOPIC, 0).append(columns_of([b"v" * 500]))
    stage.finish()
    found = metrics(tmp_path)
    assert found[("cursus_staging_jobs",)] == 1
    files = [each.stat().st_size for each in (tmp_path / "staging" / "job-1").iterdir()]
    assert found[("cursus_staging_bytes",)] == sum(files) > 500
    assert 0 <= found[("cursus_staging_oldest_seconds",)] < 60
    assert found[("cursus_pending_commits",)] == 0
    store.abort("job-1")
    assert metrics(tmp_path)[("cursus_staging_jobs",)] == 0


def test_a_pending_commit(store: Store, tmp_path: Path) -> None:
    stage = store.stage("job-2")
    stage.get_handler(TOPIC, 0).append(columns_of([b"v"]))
    parts = stage.finish()
    written = store.vfs.now_us()

    def crash(*_: object) -> None:
        raise RuntimeError("killed after the commit point")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("storage_core.commit.ledger.Ledger.record", crash)
        with pytest.raises((RuntimeError, StorageError)):
            store.commit("job-2", parts)
    found = metrics(tmp_path)
    assert found[("cursus_pending_commits",)] == 1
    age = (store.vfs.now_us() - written) / 1e6
    assert 0 <= found[("cursus_pending_commit_oldest_seconds",)] <= age + 0.1


def test_a_typed_topic(tmp_path: Path) -> None:
    done("create", tmp_path, TOPIC, "--schema", "id BIGINT")
    done("append", tmp_path, TOPIC, "--json", given='{"id": 1}\n{"id": 2}\n')
    done("groups", tmp_path, "g", "-t", TOPIC, "--reset-to", "earliest", "-y")
    found = metrics(tmp_path)
    assert found[("cursus_group_lag_records", "g", TOPIC, "0")] == 2
    assert 0 < found[("cursus_group_lag_seconds", "g", TOPIC, "0")] < 120
    assert found[("cursus_partition_records_per_second", TOPIC, "0")] == 2 / 300


@pytest.mark.parametrize("layout", [*LAYOUTS, "objects"])
def test_every_layout(tmp_path: Path, layout: str) -> None:
    made(tmp_path, layout, values=7, partitions=2)
    done("groups", tmp_path, "g", "-t", TOPIC, "--reset-to", "2", "-y")
    found = metrics(tmp_path)
    assert found[("cursus_partition_end_offset", TOPIC, "1")] == 7
    assert found[("cursus_group_lag_records", "g", TOPIC, "1")] == 5
    size = found[("cursus_partition_size_bytes", TOPIC, "1")]
    assert 0 < found[("cursus_group_lag_bytes", "g", TOPIC, "1")] <= size
    timed = layout in ("native", "objects")
    assert ("cursus_group_lag_seconds" in names(found)) == timed
    assert ("cursus_partition_records_per_second" in names(found)) == timed
    assert ("cursus_garbage_bytes" in names(found)) == (layout == "objects")
    assert ("cursus_staging_bytes" in names(found)) == (layout != "objects")


def test_a_store_of_objects_has_the_times_of_its_slices(tmp_path: Path) -> None:
    with Store.open(tmp_path, layout="objects", create=True) as made_store:
        made_store.create_topic(TOPIC)
        made_store.append(TOPIC, 0, [b"old"] * 5, timestamps=[now_us() - 600_000_000] * 5)
        made_store.append(TOPIC, 0, [b"new"] * 6, timestamps=[now_us() - 1_000_000] * 6)
        made_store.commit_offsets("g", {TOPIC: {0: 5}})
    found = metrics(tmp_path)
    assert found[("cursus_partition_records_per_second", TOPIC, "0")] == 6 / 300
    assert 1 <= found[("cursus_group_lag_seconds", "g", TOPIC, "0")] < 300


def test_what_cannot_be_read_is_named_and_the_rest_is_printed(store: Store, tmp_path: Path) -> None:
    store.create_topic("broken")
    overwrite(tmp_path / "topics/broken/topic.json", lambda data: data.__setitem__(0, 0))
    (tmp_path / "meta" / "consumer-offsets" / "bad.json").write_text("{")
    answer: Answer = run("metrics", tmp_path)
    found = parsed(answer.out)
    assert answer.code == 1
    assert answer.err.count("cursus: [METADATA_DAMAGED]") == 2
    assert found[("cursus_unreadable", "topic", "broken", "METADATA_DAMAGED")] == 1
    assert found[("cursus_unreadable", "group", "bad", "METADATA_DAMAGED")] == 1
    assert found[("cursus_group_lag_records", "billing", TOPIC, "0")] == 70


def test_damage_at_the_place_of_a_group_hides_only_its_time(store: Store, tmp_path: Path) -> None:
    position = store.segments(TOPIC, 0)[0].size * 6 // 10 + 500  # in the body of the frame at 60
    file = segments(tmp_path, topic=TOPIC) / segment_file(0, ".log")
    overwrite(file, lambda data: data.__setitem__(position, data[position] ^ 1))
    answer = run("metrics", tmp_path)
    found = parsed(answer.out)
    assert answer.code == 1
    assert found[("cursus_group_lag_records", "billing", TOPIC, "0")] == 70
    assert ("cursus_group_lag_seconds", "billing", TOPIC, "0") not in found
    assert found[("cursus_unreadable", "partition", f"{TOPIC}-0", "LOG_DAMAGED")] == 1


def test_a_long_log_costs_a_few_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(tmp_path, create=True) as made_store:
        made_store.create_topic(TOPIC)
        for number in range(60):
            made_store.append(TOPIC, 0, [b"x" * 100] * 10, timestamps=[number * 1_000_000] * 10)
            made_store.roll(TOPIC, 0)
        made_store.append(TOPIC, 0, [b"x"] * 10)
        made_store.commit_offsets("g", {TOPIC: {0: 300}})
    let_go()
    counted: Counter[str] = Counter()
    for name in ("open", "pread", "map", "listdir"):
        method = getattr(PosixVfs, name)

        def call(*given: Any, _name: str = name, _method: Any = method, **named: Any) -> Any:
            counted[_name] += 1
            return _method(*given, **named)

        monkeypatch.setattr(PosixVfs, name, call)
    reader = Store.open(tmp_path)
    samples = Measures(reader).collect()
    assert len(samples) > 15
    assert counted["open"] < 30, counted
    assert counted["pread"] + counted["map"] < 60, counted


def test_the_labels_are_escaped() -> None:
    quoted_name = 'a"b\\c\nd'
    text = exposition([Sample("cursus_unreadable", 1, ("group", quoted_name, "X"))])
    assert parsed(text) == {("cursus_unreadable", "group", quoted_name, "X"): 1}


def test_the_page_lists_every_metric_and_no_other() -> None:
    listed = re.findall(r"^\| `(cursus_\w+)` \| ([^|]*) \|", PAGE, re.M)
    assert [name for name, _ in listed] == list(FAMILIES)
    labels = {name: tuple(re.findall(r"`(\w+)`", cell)) for name, cell in listed}
    assert labels == {name: family.labels for name, family in FAMILIES.items()}


@pytest.mark.usefixtures("store")
def test_the_dashboard_names_metrics_and_labels_that_exist(tmp_path: Path) -> None:
    panels = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    used = set(re.findall(r"\bcursus_\w+", " ".join(expressions)))
    assert used <= set(FAMILIES)
    assert len(used) > 12
    for expression in expressions:
        family = FAMILIES[re.findall(r"\bcursus_\w+", expression)[0]]
        named = set(re.findall(r"by \(([\w, ]+)\)|(\w+)=~?\"", expression))
        labels = {word for pair in named for part in pair for word in part.split(", ") if word}
        assert labels <= {*family.labels, "instance"}, expression
    rules = (ROOT / "docs" / "metrics.md").read_text()
    assert set(re.findall(r"expr: .*?(cursus_\w+)", rules)) <= set(FAMILIES)
    # All of them, but for what only stores of objects, or stores with damage, have.
    printed = names(metrics(tmp_path))
    assert set(FAMILIES) - printed == {
        "cursus_unreadable",
        "cursus_garbage_objects",
        "cursus_garbage_bytes",
    }
