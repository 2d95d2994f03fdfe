"""Statistics of sealed segments: reads skip segments by them, and never miss a row."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_core import Store, StoreConfig
from storage_core.format import segment_statistics
from storage_core.format.segment_statistics import VersionStatistics
from storage_core.io.byte_source import MappedSource
from storage_core.schema.statistics import ColumnStatistics
from storage_core.vfs import PosixVfs
from tests.support.sizes import examples
from tests.support.stores import TOPIC, segment, segments
from tests.support.typed.typed_topics import commit_table

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())])
ROWS, SEGMENTS = 100, 5


def rows(first: int, count: int = ROWS) -> pa.Table:
    texts = [
        None if number % 10 == 0 else f"text {number:05}" for number in range(first, first + count)
    ]
    return pa.table({"id": pa.array(range(first, first + count)), "text": texts}, schema=SCHEMA)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Five sealed segments of 100 rows each, in frames of 20, and an active one."""
    with Store.open(tmp_path, create=True, config=StoreConfig(frame_records=20)) as opened:
        opened.create_topic(TOPIC, schema=SCHEMA)
        for number in range(SEGMENTS + 1):
            opened.append_table(TOPIC, rows(number * ROWS))
            if number < SEGMENTS:
                opened.roll(TOPIC, 0)
        yield opened


def ids(store: Store, where: str) -> tuple[list[int], int]:
    """The rows that a scan finds, and the segments that it skipped."""
    scan = store.scan(TOPIC, where=where)
    return scan.to_table()["id"].to_pylist(), scan.counts.segments


def statistics(path: Path, base: int) -> Path:
    return segment(path, base, ".stats")


def test_a_sealed_segment_has_the_statistics_of_its_frames(store: Store, tmp_path: Path) -> None:
    log = MappedSource(PosixVfs(str(segments(tmp_path))), "00000000000000000200.log")
    found = segment_statistics.unpack(statistics(tmp_path, 200).read_bytes(), log)
    texts = ColumnStatistics("text 00201", "text 00299", 10)
    assert found == [VersionStatistics(1, ROWS, {1: ColumnStatistics(200, 299, 0), 2: texts})]
    assert not statistics(tmp_path, 500).exists()
    store.create_topic("records")
    store.append("records", 0, [b"a"])
    store.roll("records", 0)
    assert not list((tmp_path / "topics/records").rglob("*.stats"))


@pytest.mark.parametrize(
    ("where", "found", "skipped"),
    [
        ("id = 250", [250], 4),
        ("id between 199 and 200", [199, 200], 3),
        ("text > 'text 00498' and id < 500", [499], 4),
        ("text is null and id > 480", [490, *range(500, 600, 10)], 4),
        ("_offset < 3", [0, 1, 2], 5),
        ("_partition = 1", [], 6),
        ("_topic = 't' and id < 1", [0], 4),
        ("_timestamp is null", [], 5),
        ("id < 0", [], 5),
    ],
)
def test_reads_skip_segments_that_cannot_match(
    store: Store, where: str, found: list[int], skipped: int
) -> None:
    assert ids(store, where) == (found, skipped)
    batches = store.read(TOPIC, 0, where=where)
    assert [number for batch in batches for number in batch["id"].to_pylist()] == found
    listed = store.segments(TOPIC, 0)
    assert store.may_match(TOPIC, 0, listed, where).count(False) == skipped


def test_a_staged_file_that_becomes_a_segment_has_statistics(tmp_path: Path) -> None:
    with Store.open(tmp_path, create=True, config=StoreConfig(segment_bytes=4096)) as opened:
        opened.create_topic(TOPIC, schema=SCHEMA)
        opened.append_table(TOPIC, rows(0, 10))
        parts = commit_table(opened, TOPIC, rows(10, 40_000))
        assert any(part.own_file for part in parts)
        opened.append_table(TOPIC, rows(40_010, 10))
        logs, made = (len(list(segments(tmp_path).glob(f"*.{kind}"))) for kind in ("log", "stats"))
        assert made == logs - 1 >= 3
        assert ids(opened, "id = 39000") == ([39000], made - 1)


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "longer", "of another segment"])
def test_damaged_statistics_mean_read(store: Store, tmp_path: Path, damage: str) -> None:
    path = statistics(tmp_path, 200)
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        other = statistics(tmp_path, 300).read_bytes()
        path.write_bytes(
            {"empty": b"", "cut": data[:-1], "longer": data + b"\0"}.get(damage, other)
        )
    assert ids(store, "id = 250") == ([250], 4)
    assert ids(store, "id = 350") == ([350], 3)


def test_no_flipped_bit_hides_a_row(store: Store, tmp_path: Path) -> None:
    path = statistics(tmp_path, 200)
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :])
        assert ids(store, "id = 250")[0] == [250]
        assert ids(store, "id = 350")[1] == 3


def test_statistics_of_an_earlier_log_of_the_same_name_and_size_are_stale(tmp_path: Path) -> None:
    """A power cut may bring back a file that was not yet replaced."""
    paths = []
    for name, first in (("old", 100), ("new", 700)):
        with Store.open(tmp_path / name, create=True) as opened:
            opened.create_topic(TOPIC, schema=SCHEMA.remove(1))
            opened.append_table(TOPIC, rows(first).select(["id"]))
            opened.roll(TOPIC, 0)
        paths.append(statistics(tmp_path / name, 0))
    assert segment(tmp_path / "old").stat().st_size == segment(tmp_path / "new").stat().st_size
    shutil.copy(paths[0], paths[1])
    with Store.open(tmp_path / "new") as opened:
        assert ids(opened, "id = 750") == ([750], 0)


def test_check_reports_and_repair_rebuilds_them(store: Store, tmp_path: Path) -> None:
    good = {path: path.read_bytes() for path in segments(tmp_path).glob("*.stats")}
    assert len(good) == SEGMENTS
    statistics(tmp_path, 0).unlink()
    statistics(tmp_path, 200).write_bytes(b"torn")
    found = [(problem.code, Path(problem.path or "").name) for problem in store.check()]
    assert found == [
        ("INDEX_STALE", "00000000000000000000.log"), ("INDEX_STALE", "00000000000000000200.log")
    ]  # fmt: skip
    store.repair()
    assert store.check() == []
    assert {path: path.read_bytes() for path in segments(tmp_path).glob("*.stats")} == good


def test_they_go_with_their_segment(store: Store, tmp_path: Path) -> None:
    store.delete_records(TOPIC, {0: 200})
    left = sorted(path.name for path in segments(tmp_path).glob("*.stats"))
    assert left == [f"{base:020}.stats" for base in (200, 300, 400)]


def test_rows_from_before_a_column_are_null_in_it(store: Store) -> None:
    store.alter_topic(TOPIC, add_columns=pa.schema([("new", pa.int64())]))
    store.append_table(TOPIC, pa.table({"id": [900, 901], "new": [5, None]}))
    store.roll(TOPIC, 0)  # this segment has rows of both versions
    store.append_table(TOPIC, pa.table({"id": [902], "new": [6]}))
    store.roll(TOPIC, 0)
    assert ids(store, "new = 5") == ([900], 6)
    assert ids(store, "new is not null") == ([900, 902], 5)
    assert ids(store, "new is null and id > 898") == ([901], 6)


def test_frames_without_statistics_make_a_column_unknown() -> None:
    one = VersionStatistics(1, 5, {1: ColumnStatistics(1, 2, 0), 2: ColumnStatistics("a", "b", 1)})
    other = VersionStatistics(1, 3, {1: ColumnStatistics(7, 9, 1)})
    joined = segment_statistics._joined(one, other)
    assert joined == VersionStatistics(1, 8, {1: ColumnStatistics(1, 9, 1)})


@settings(max_examples=examples(300))
@given(data=st.binary(max_size=120), keep=st.integers(0, 60))
def test_any_bytes_are_statistics_or_nothing(data: bytes, keep: int) -> None:
    assert segment_statistics.unpack((b"CRSS" + bytes(60))[:keep] + data, _Log()) is None


class _Log:
    size = 0
    ahead = 1

    def read(self, position: int, size: int) -> memoryview:  # noqa: ARG002
        return memoryview(b"")
