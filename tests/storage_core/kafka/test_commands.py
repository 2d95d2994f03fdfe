"""The commands on a broker's directory: what shows works, what would write is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from storage_core import Store, convert
from storage_core.errors import StorageError
from tests.support.brokers.broker_directories import snapshot
from tests.support.brokers.kafka_directories import (
    CASES,
    DATA,
    Record,
    as_records,
    copied,
    partitions,
    preallocate,
    read,
)
from tests.support.cli_runner import done, run

SEGMENTS = DATA / "segments"
# What takes longest, in make test only.
LARGE = ("codecs", "compaction", "transactions")


def test_topics_and_describe_show_what_is_there() -> None:
    shown = {it["topic"]: it for it in done("topics", SEGMENTS, "--json").json}
    assert set(shown) == {"by_time", "empty", "large-batch", "orders", "web.clicks-2024-7"}
    assert shown["orders"]["partitions"] == 3
    described = done("describe", SEGMENTS, "orders", "--json").json
    ends = [it["end"] for it in described["topics"][0]["partitions"]]
    assert ends == [8, 24, 40]
    assert "orders" in done("describe", SEGMENTS).out
    internal = {it["topic"] for it in done("topics", SEGMENTS, "--internal-topics", "--json").json}
    assert internal - set(shown) >= {"__consumer_offsets"}


def test_cat_and_tail_print_the_records() -> None:
    listed = {(it.topic, it.number): it for it in partitions("segments")}
    expected = listed["orders", 1].uncommitted.records
    lines = done("cat", SEGMENTS, "orders", "-p", 1, "--json").objects
    assert [it["offset"] for it in lines] == [it.offset for it in expected]
    last = done("tail", SEGMENTS, "orders", "-p", 1, "-n", 3, "--json").objects
    assert [it["offset"] for it in last] == [21, 22, 23]
    at = done("cat", SEGMENTS, "by_time", "--at", "1700000005000", "--json").objects
    assert at[0]["offset"] == 6


def test_isolation_is_a_choice_of_cat() -> None:
    (it,) = (it for it in partitions("lagging") if it.topic == "orders")
    for words, end in (((), it.in_file), (("--isolation", "log_end"), it.uncommitted.end)):
        shown = done("cat", DATA / "lagging", "orders", "--json", *words).objects
        assert [each["offset"] for each in shown] == list(range(end or 0))


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.slow] * (case in LARGE)) for case in CASES],
)
def test_check_dump_and_report_find_nothing_wrong(case: str, tmp_path: Path) -> None:
    copy = copied(case, tmp_path)
    preallocate(copy)
    before = snapshot(copy)
    assert done("check", copy, "--strict").code == 0
    for topic in {it.topic for it in partitions(case)}:
        done("dump", copy, topic, "--records")
    page = tmp_path / "page.html"
    done("report", copy, "-o", page)
    assert "kafka" in page.read_text()
    assert "all checksums match" in page.read_text()
    assert snapshot(copy) == before


def test_check_names_what_is_damaged(tmp_path: Path) -> None:
    copy = copied("segments", tmp_path)
    file = copy / "orders-2" / "00000000000000000012.log"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(data)
    answer = run("check", copy)
    assert answer.code == 1
    assert file.name in answer.out + answer.err
    answer = run("cat", copy, "orders", "-p", 2)
    assert answer.code == 1
    assert file.name in answer.err


@pytest.mark.parametrize(
    "words",
    [
        ("append", "orders"),
        ("create", "new"),
        ("delete", "orders", "-y"),
        ("alter", "orders", "--set", "retention_ms=1"),
        ("repair", "-y"),
        ("retain", "-y"),
        ("retain", "orders", "--before", 3, "-y"),
        ("compact", "orders", "-y"),
        ("merge", "orders", "-y"),
        ("recompress", "orders", "-y"),
        ("groups", "g", "-t", "orders", "--reset-to", "earliest", "-y"),
        ("gc", "-y"),
        ("skip", "orders", "-p", 0, "--from", 0, "--to", 3, "-y"),
    ],
    ids=lambda words: str(words[0]),
)
def test_what_would_write_is_refused_in_a_sentence(
    words: tuple[object, ...], tmp_path: Path
) -> None:
    copy = copied("segments", tmp_path)
    before = snapshot(copy)
    command, *rest = words
    answer = run(command, copy, *rest, given="a line\n")
    assert answer.code == 1, answer
    assert "kafka" in answer.err.lower() or command == "gc"
    assert answer.err.startswith("cursus: [")
    assert snapshot(copy) == before
    assert not (copy / ".cursus-spark").exists()


def test_python_may_not_write_either(tmp_path: Path) -> None:
    copy = copied("segments", tmp_path)
    before = snapshot(copy)
    with Store.open(copy) as store:
        actions: list[Callable[[], object]] = [
            lambda: store.append("orders", 0, [b"x"]),
            lambda: store.create_topic("new"),
            lambda: store.delete_topic("orders"),
            lambda: store.add_partitions("orders", 9),
            lambda: store.stage("job"),
            lambda: store.commit_offsets("g", {"orders": {0: 1}}),
            lambda: store.roll("orders", 0),
            lambda: store.retain("orders"),
            lambda: store.compact("orders"),
        ]
        for action in actions:
            with pytest.raises(StorageError, match=r"[kK]afka"):
                action()
    assert snapshot(copy) == before


def test_groups_say_where_the_offsets_of_consumers_are() -> None:
    answer = run("groups", SEGMENTS)
    assert "__consumer_offsets" in answer.out + answer.err


def test_maintain_says_that_there_is_nothing_to_do_and_still_verifies_checksums(
    tmp_path: Path,
) -> None:
    copy = copied("segments", tmp_path)
    before = snapshot(copy)
    answer = done("maintain", copy)
    (line,) = answer.err.splitlines()
    assert line.endswith(
        f"INFO nothing to maintain in {copy}: layout kafka is only read, and its broker does all "
        "that"
    )
    verified = done("maintain", copy, "--scrub-every", "1d").err
    sealed = sum(
        file.stat().st_size
        for directory in copy.iterdir()
        if directory.is_dir() and not directory.name.startswith("__")
        for file in sorted(directory.glob("*.log"))[:-1]
    )
    assert f"scrub verified {sealed} bytes" in verified
    assert snapshot(copy) == before
    damaged = sorted(copy.glob("orders-2/*.log"))[0]
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)
    answer = run("maintain", copy, "--scrub-every", "1d")
    assert answer.code == 1
    assert damaged.name in answer.err


@pytest.mark.parametrize("case", CASES)
def test_metrics_and_describe_give_the_offsets_of_consumers(case: str) -> None:
    lines = dict(line.rsplit(" ", 1) for line in done("metrics", DATA / case).out.splitlines())
    shown = {it["topic"]: it for it in done("describe", DATA / case, "--json").json["topics"]}
    for it in partitions(case):
        end = max(it.committed.start, min(it.committed.end, it.in_file or 0))
        labels = f'{{topic="{it.topic}",partition="{it.number}"}}'
        edges = [lines[f"cursus_partition_{edge}_offset{labels}"] for edge in ("start", "end")]
        described = shown[it.topic]["partitions"][it.number]
        assert list(map(int, edges)) == [it.committed.start, end]
        assert [described["start"], described["end"]] == [it.committed.start, end]


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.slow] * (case in LARGE)) for case in CASES],
)
def test_a_conversion_keeps_offsets_times_and_headers(case: str, tmp_path: Path) -> None:
    target = tmp_path / "native"
    for _ in range(2):  # the second finds everything copied
        done("convert", DATA / case, target)
    with Store.open(DATA / case) as source, Store.open(target) as native:
        assert native.layout == "native"
        assert native.topics() == source.topics()
        for it in partitions(case):
            ours = _without_types(read(source, it.topic, it.number))
            end = max(it.committed.start, min(it.committed.end, it.in_file or 0))
            assert ours == _without_types(
                [each for each in it.committed.records if each.offset < end]
            )
            assert _without_types(read(native, it.topic, it.number)) == ours
            # A marker or an aborted record at the end keeps its offset: no record gets it later.
            assert native.offsets(it.topic, it.number).end == end


def _without_types(found: list[Record]) -> list[Record]:
    """A native store keeps the times as they are, and they are the producer's there."""
    return [it._replace(timestamp_type="") for it in found]


def test_an_interrupted_conversion_goes_on_when_there_is_more(tmp_path: Path) -> None:
    """First up to the old high watermark, then, as after a checkpoint, to the end."""
    copy = copied("lagging", tmp_path)
    target = tmp_path / "native"
    first = {it.topic: it.copied for it in convert(copy, target)}
    assert first == {"orders": 16, "new": 0}
    high = copy / "replication-offset-checkpoint"
    high.write_text("0\n2\norders 0 36\nnew 0 10\n")
    second = {it.topic: it.copied for it in convert(copy, target)}
    assert second == {"orders": 20, "new": 10}
    with Store.open(target) as native:
        assert [it.offset for it in read(native, "orders", 0)] == list(range(36))


def test_scan_gives_all_partitions_as_one_table() -> None:
    with Store.open(SEGMENTS) as store:
        table = store.scan("orders", columns=["key", "value", "headers", "timestamp"]).to_table()
        assert table.num_rows == 8 + 24 + 40
        few = as_records(
            store.read(
                "orders", 2, where="value = 'value'", columns=(
                    "offset", "timestamp", "timestamp_type", "key", "value", "headers",
                ),
            )
        )  # fmt: skip
    listed = {(it.topic, it.number): it for it in partitions("segments")}
    expected = [it for it in listed["orders", 2].uncommitted.records if it.value == b"value"]
    assert few == expected
