"""Compaction of a cursus broker's closed files: what goes and what stays, by the broker's rules."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

from storage_core import Store, StoreConfig, UpkeepProgress
from storage_core.errors import ConfigError, DamagedLogError
from tests.support.brokers.broker_directories import BROKER, RUSTLOG, TOPIC, details, message
from tests.support.faulty_vfs import faulty
from tests.support.sizes import examples

COMPACT = StoreConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
MARK = b"cursus-compaction-v1\n"


class Given(NamedTuple):
    """One record: key, producer and transaction; empty means none."""

    key: bytes = b""
    producer: bytes = b""
    txn: bytes = b""
    value: bytes = b"v"


def write(root: Path, segments: list[list[Given]], first: int = 0) -> list[Path]:
    """Files of the broker, one per list, and an active one after them."""
    files, offset = [], first
    for group in [*segments, [Given(value=b"active")]]:
        file = BROKER.file(root, offset)
        file.parent.mkdir(parents=True, exist_ok=True)
        data = b""
        for record in group:
            fields: dict[str, Any] = {"key": record.key, "producer": record.producer}
            if record.txn:
                fields |= {"txn_id": record.txn, "txn_state": b"open"}
            data += message(offset, record.value + b"%d" % offset, **fields)
            offset += 1
        file.write_bytes(data)
        files.append(file)
    return files


def model(segments: list[list[Given]]) -> list[int]:
    """The offsets that stay, by the rules of the broker, record by record."""
    records = [record for group in segments for record in group]
    keyed = {r.key: at for at, r in enumerate(records) if r.key and not r.txn}
    producers = {r.producer: at for at, r in enumerate(records) if r.producer}
    return [
        at
        for at, r in enumerate(records)
        if not r.key or r.txn or keyed[r.key] == at or (r.producer and producers[r.producer] == at)
    ]


def offsets(store: Store) -> list[int]:
    return [found[0] for found in details(store)]


RECORDS = st.builds(
    Given,
    st.sampled_from([b"", b"a", b"b", b"c"]),
    st.sampled_from([b"", b"p", b"q"]),
    st.sampled_from([b"", b"", b"", b"t"]),
    st.sampled_from([b"", b"x" * 50]),
)


@pytest.mark.slow
@given(groups=st.lists(st.lists(RECORDS, min_size=1, max_size=8), min_size=1, max_size=5))
@settings(max_examples=examples(40), deadline=None)
def test_what_stays_is_what_the_broker_would_keep(groups: list[list[Given]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        files = write(root, groups)
        end = sum(map(len, groups)) + 1
        before = {row[0]: row for row in details(Store.open(root, isolation="read_uncommitted"))}
        store = Store.open(root, config=COMPACT, isolation="read_uncommitted")
        guess = store.compact(TOPIC, dry_run=True)
        reports = store.compact(TOPIC)
        kept = [*model(groups), end - 1]
        assert details(store) == [before[at] for at in kept]
        assert details(Store.open(root, isolation="read_uncommitted")) == details(store)
        removed = sum(report.records_removed for report in reports)
        assert removed == end - len(kept) == sum(report.records_removed for report in guess)
        for file in files:
            marks = [
                found
                for found in file.parent.iterdir()
                if ".compacted-" in found.name and found.name.startswith(file.name)
            ]
            assert [found.name for found in marks] in (
                [],
                [f"{file.name}.compacted-{file.stat().st_size}"],
            )
            assert all(found.read_bytes() == MARK for found in marks)
        assert not list(root.rglob("*.compacting"))
        assert store.check() == []
        assert sum(report.records_removed for report in store.compact(TOPIC)) == 0
        written = store.append(TOPIC, 0, [b"more"], keys=[b"a"])
        assert (written.start, offsets(store)[-1]) == (end, end)


def test_a_reader_goes_on_while_files_shrink_below_it(tmp_path: Path) -> None:
    write(tmp_path, [[Given(b"k", value=b"x" * 4000) for _ in range(40)] for _ in range(4)])
    store = Store.open(tmp_path, config=COMPACT)
    reader = Store.open(tmp_path)
    plan = [(info, info.base, info.end) for info in reader.segments(TOPIC, 0)]
    reading = reader.read(TOPIC, 0)
    first = next(reading).column("offset").to_pylist()
    assert store.compact(TOPIC)[0].records_removed == 159
    rest = [offset for batch in reading for offset in batch.column("offset").to_pylist()]
    assert (first + rest)[-2:] == [159, 160]
    planned = list(reader.read_slices(TOPIC, 0, plan))
    assert [at for batch in planned for at in batch.column("offset").to_pylist()] == [159, 160]
    assert [file.stat().st_size for file in sorted(tmp_path.rglob("*.log"))][:3] == [0, 0, 0]


def test_more_keys_than_memory_take_more_passes(tmp_path: Path) -> None:
    write(tmp_path, [[Given(b"k%d" % (n % 900)) for n in range(1500)] for _ in range(3)])
    small = StoreConfig(
        cleanup_policy="compact", min_cleanable_dirty_ratio=0.0, compaction_memory_bytes=64 << 10
    )
    store = Store.open(tmp_path, config=small)
    assert store.compact(TOPIC)[0].records_removed == 3600
    assert sorted(row[1] for row in details(store)[:-1]) == sorted({b"k%d" % n for n in range(900)})


def test_damage_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    files = write(tmp_path, [[Given(b"a"), Given(b"a")], [Given(b"a")]])
    files[0].write_bytes(files[0].read_bytes()[:-2])
    before = files[0].read_bytes()
    with pytest.raises(DamagedLogError, match="is damaged"):
        Store.open(tmp_path, config=COMPACT).compact(TOPIC)
    assert files[0].read_bytes() == before


def test_layouts_without_keys_are_refused(tmp_path: Path) -> None:
    RUSTLOG.write(tmp_path, [[b"a"], [b"b"]])
    with pytest.raises(ConfigError, match="has no keys"):
        Store.open(tmp_path, config=COMPACT).compact(TOPIC)


RECORDS = st.builds(
    Given,
    st.sampled_from([b"", b"a", b"b", b"c"]),
    st.sampled_from([b"", b"p", b"q", b"r"]),
    st.just(b""),
    st.just(b"v"),
)


@pytest.mark.slow
@given(st.lists(st.lists(st.lists(RECORDS, min_size=1, max_size=5), max_size=3), max_size=4))
@example([[[Given(b"a", b"p"), Given(b"a")]], [[Given(b"", b"p")]]])
@settings(max_examples=examples(20), deadline=None)
def test_compacting_again_and_again_is_compacting_once(rounds: list[list[list[Given]]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root, all_of_them = Path(directory), list[list[Given]]()
        for added in rounds:
            write(root, added, sum(map(len, all_of_them)))
            all_of_them += added
            store = Store.open(root, layout="cursus-broker", config=COMPACT)
            store.compact(TOPIC, min_dirty_ratio=0)
            assert offsets(store)[:-1] == model(all_of_them)


def test_what_others_go_for_is_durable_before_they_go(tmp_path: Path) -> None:
    write(tmp_path, [[Given(b"k")], [Given(b"k")], [Given(b"k")]])
    vfs = faulty(tmp_path)
    assert Store(vfs, COMPACT, "cursus-broker").compact(TOPIC)[0].records_removed == 2
    first = next(at for at, call in enumerate(vfs.calls) if call.path.endswith(".compacting"))
    synced = {call.path for call in vfs.calls[:first] if call.kind == "fsync"}
    assert {str(BROKER.file(Path(), base)) for base in range(3)} <= synced


def test_files_that_retention_takes_meanwhile_end_it(tmp_path: Path) -> None:
    config = replace(COMPACT, compaction_memory_bytes=1 << 16)
    write(
        tmp_path,
        [[Given(b"%d" % (base + row)) for row in range(900)] for base in range(0, 5400, 900)],
    )
    store, other = Store.open(tmp_path, config=config), Store.open(tmp_path)
    dropped: list[object] = []

    def drop(progress: UpkeepProgress) -> None:
        if not dropped and progress.done_bytes > progress.total_bytes // 2:
            dropped.append(other.delete_records(TOPIC, {0: 5400}))

    store.compact(TOPIC, progress=drop)
    assert dropped
    assert offsets(store) == [5400]
