"""A Kafka broker's log directory through ``Store``."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import crc32c
import pytest

from storage_core import Store
from storage_core.errors import (
    DamagedLogError,
    DamagedMetadataError,
    DataLossError,
    NotWritableError,
    PartitionNotFoundError,
    StorageError,
)
from storage_core.types import IsolationLevel
from tests.support.brokers.broker_directories import snapshot
from tests.support.brokers.kafka_encoder import (
    CODECS,
    Batch,
    Record,
    marker,
    write_checkpoint,
    write_partition,
)
from tests.support.stores import rows

LEVELS: tuple[IsolationLevel, ...] = ("read_committed", "read_uncommitted", "log_end")


def segments(seed: int = 1, count: int = 3) -> list[list[Batch]]:
    """Some segments whose record at offset o has the time 1000 + o."""
    rnd, found, offset = random.Random(seed), list[list[Batch]](), 0
    for _ in range(count):
        batches = []
        for size in rnd.choices([1, 3, 40], k=40):
            records = [
                Record(rnd.randbytes(60), rnd.choice([None, b"k"]), time=1000 + offset + at)
                for at in range(size)
            ]
            batches.append(Batch(offset, records, rnd.choice(CODECS)))
            offset = batches[-1].last + 1
        found.append(batches)
    return found


def make(root: Path, found: list[list[Batch]], end: int | None = None) -> int:
    """Write a partition; its high watermark is the end of the log unless given."""
    write_partition(root, "t", 0, found)
    last = found[-1][-1].last + 1
    write_checkpoint(root, {("t", 0): last if end is None else end})
    return last


def offsets(
    root: Path, isolation: IsolationLevel = "read_committed", start: int | None = None
) -> list[int]:
    with Store.open(root, isolation=isolation) as store:
        return [row["offset"] for row in rows(store.read("t", 0, start=start))]


def values(found: list[list[Batch]]) -> list[bytes | None]:
    return [each.value for batches in found for batch in batches for each in batch.records]


def test_a_directory_is_recognised_and_read(tmp_path: Path) -> None:
    found = segments()
    end = make(tmp_path, found)
    before = snapshot(tmp_path)
    with Store.open(tmp_path) as store:
        assert (store.layout, store.topics()) == ("kafka", ["t"])
        assert (store.offsets("t", 0).start, store.offsets("t", 0).end) == (0, end)
        assert [row["value"] for row in rows(store.read("t", 0))] == values(found)
        assert store.scan("t").to_table().column("value").to_pylist() == values(found)
        assert (store.check(), [each.problems for each in store.scrub()]) == ([], [()])
    assert snapshot(tmp_path) == before


def test_any_range_and_any_time(tmp_path: Path) -> None:
    found, rnd = segments(), random.Random(2)
    end = make(tmp_path, found)
    with Store.open(tmp_path) as store:
        for _ in range(15):
            first, last = sorted(rnd.sample(range(end + 1), 2))
            read = [row["offset"] for row in rows(store.read("t", 0, start=first, end=last))]
            assert read == list(range(first, last))
            assert store.offset_for_timestamp("t", 0, (1000 + first) * 1000) == first
            assert store.end_of_older("t", 0, (1000 + last) * 1000) == last
        assert store.offset_for_timestamp("t", 0, (1000 + end) * 1000) is None


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["gone", "empty", "random", "zeros", "shifted", "of another"])
def test_indexes_are_hints(tmp_path: Path, suffix: str, damage: str) -> None:
    found, rnd = segments(), random.Random(4)
    end = make(tmp_path, found)
    files = sorted((tmp_path / "t-0").glob(f"*{suffix}"))
    kept = [file.read_bytes() for file in files]
    for at, file in enumerate(files):
        entry = 8 if suffix == ".index" else 12
        file.write_bytes(
            {
                "gone": b"",
                "empty": b"",
                "random": rnd.randbytes(len(kept[at])),
                "zeros": kept[at] + bytes(1 << 16),
                "shifted": kept[at][entry // 2 :],
                "of another": kept[at - 1],
            }[damage]
        )
        if damage == "gone":
            file.unlink()
    with Store.open(tmp_path) as store:
        for _ in range(4):
            first, last = sorted(rnd.sample(range(end + 1), 2))
            read = [row["offset"] for row in rows(store.read("t", 0, start=first, end=last))]
            assert read == list(range(first, last))
            assert store.offset_for_timestamp("t", 0, (1000 + first) * 1000) == first
        assert rows(store.read("t", 0))[-1]["offset"] == end - 1


def test_one_false_entry_discredits_an_index_of_times(tmp_path: Path) -> None:
    """The first entry names a later batch, which has the same largest time."""
    large = [Record(b"v" * 5000, time=time) for time in (100, 150, 100, 400)]
    first = [Batch(at, [each]) for at, each in enumerate(large)]
    make(tmp_path, [first, [Batch(4, [Record(b"e", time=500)])]])
    index = tmp_path / "t-0" / f"{0:020d}.timeindex"
    for entries in (((100, 0), (150, 1), (400, 3)), ((100, 2), (150, 1), (400, 3))):
        index.write_bytes(b"".join(struct.pack(">qI", *entry) for entry in entries))
        with Store.open(tmp_path) as store:
            assert store.offset_for_timestamp("t", 0, 120_000) == 1


def test_nothing_above_the_high_watermark_is_read_unless_asked_for(tmp_path: Path) -> None:
    found = segments(count=2)
    end = found[1][20].base
    last = make(tmp_path, found, end)
    assert offsets(tmp_path) == offsets(tmp_path, "read_uncommitted") == list(range(end))
    assert offsets(tmp_path, "log_end") == list(range(last))
    (tmp_path / "replication-offset-checkpoint").write_text("0\n0\n")
    assert offsets(tmp_path) == []
    (tmp_path / "replication-offset-checkpoint").unlink()
    assert offsets(tmp_path, "log_end") == list(range(last))
    with pytest.raises(DamagedMetadataError, match="no replication-offset-checkpoint"):
        offsets(tmp_path)


def test_the_log_start_may_be_inside_a_batch(tmp_path: Path) -> None:
    found = segments()
    end = make(tmp_path, found)
    start = found[1][0].base + 3
    write_checkpoint(tmp_path, {("t", 0): start}, "log-start-offset-checkpoint")
    assert offsets(tmp_path) == list(range(start, end))
    with Store.open(tmp_path) as store:
        assert store.offsets("t", 0).start == start
        assert store.offset_for_timestamp("t", 0, 0) == start
        assert [each.base for each in store.segments("t", 0)] == [start, found[2][0].base]


def transactions(root: Path) -> None:
    """Producer 1 commits and aborts, producer 2 commits, producer 3 never ends."""

    def data(base: int, producer: int, count: int = 2) -> Batch:
        records = [Record(b"p%d" % producer)] * count
        return Batch(base, records, producer=producer, transactional=True)

    first = [data(0, 1), data(2, 2), Batch(4, [Record(b"plain")]), marker(5, 1, commit=False)]
    second = [data(6, 1), marker(8, 2, commit=True), marker(9, 1, commit=True), data(10, 3)]
    third = [Batch(12, [Record(b"plain")] * 2), data(14, 1), marker(16, 1, commit=False)]
    write_partition(root, "t", 0, [first, second, third])
    write_checkpoint(root, {("t", 0): 17})


def test_aborted_and_open_transactions(tmp_path: Path) -> None:
    transactions(tmp_path)
    assert offsets(tmp_path) == [2, 3, 4, 6, 7]
    assert offsets(tmp_path, "read_uncommitted") == [
        *range(5), 6, 7, 10, 11, 12, 13, 14, 15
    ]  # fmt: skip
    with Store.open(tmp_path) as store:
        assert store.offsets("t", 0).end == 10
    # A marker that is not replicated has not happened.
    write_checkpoint(tmp_path, {("t", 0): 9})
    assert offsets(tmp_path) == [2, 3, 4]


def test_a_snapshot_of_producers_spares_the_log_before_it(tmp_path: Path) -> None:
    transactions(tmp_path)
    entry = struct.pack(">qhiqiqiq", 3, 0, 0, 11, 1, 0, 0, 10)
    rest = struct.pack(">I", 1) + entry
    file = tmp_path / "t-0" / f"{12:020d}.snapshot"
    file.write_bytes(struct.pack(">hI", 1, crc32c.crc32c(rest)) + rest)
    assert offsets(tmp_path) == [2, 3, 4, 6, 7]
    file.write_bytes(file.read_bytes()[:-1] + b"\1")  # its checksum differs
    assert offsets(tmp_path) == [2, 3, 4, 6, 7]


@pytest.mark.parametrize("isolation", LEVELS)
def test_a_torn_batch_and_zeros_after_the_end(tmp_path: Path, isolation: IsolationLevel) -> None:
    found = segments(count=2)
    end = make(tmp_path, found)
    file = sorted((tmp_path / "t-0").glob("*.log"))[-1]
    whole = file.read_bytes()
    more = Batch(end, [Record(b"x" * 500)] * 3).encode()
    for tail in (more[:7], more[:40], more[:-1], bytes(5), bytes(1 << 16)):
        file.write_bytes(whole + tail)
        assert offsets(tmp_path, isolation) == list(range(end))
    file.write_bytes(whole + more[:-1] + b"?")
    if isolation == "log_end":
        with pytest.raises(DamagedLogError, match="checksum"):
            offsets(tmp_path, isolation)
    else:
        assert offsets(tmp_path, isolation) == list(range(end))


def test_a_cut_file_is_noticed(tmp_path: Path) -> None:
    found = segments()
    make(tmp_path, found)
    files = sorted((tmp_path / "t-0").glob("*.log"))
    for at, kind in ((1, DataLossError), (2, DamagedLogError)):
        kept = files[at].read_bytes()
        files[at].write_bytes(b"".join(batch.encode() for batch in found[at][:-1]))
        with pytest.raises(kind, match="offset"):
            offsets(tmp_path)
        files[at].unlink()
        with pytest.raises((DataLossError, DamagedLogError), match="offset"):
            offsets(tmp_path)
        files[at].write_bytes(kept)


def test_compaction_explains_missing_offsets(tmp_path: Path) -> None:
    found = segments()
    end = make(tmp_path, found)
    del found[0][-2:]
    make(tmp_path, found)
    with pytest.raises(DataLossError, match="nothing tells that the topic is compacted"):
        offsets(tmp_path)
    write_checkpoint(tmp_path, {("t", 0): 100}, "cleaner-offset-checkpoint")
    with pytest.raises(DataLossError, match="nothing tells that the topic is compacted"):
        offsets(tmp_path)  # the cleaner did not come so far
    write_checkpoint(tmp_path, {("t", 0): found[1][0].base}, "cleaner-offset-checkpoint")
    lost = set(range(found[0][-1].last + 1, found[1][0].base))
    assert offsets(tmp_path) == [at for at in range(end) if at not in lost]
    (tmp_path / "cleaner-offset-checkpoint").unlink()
    found[0][3] = Batch(found[0][3].base, [], last_delta=found[0][3].last - found[0][3].base)
    make(tmp_path, found)
    assert len(offsets(tmp_path)) < end - len(lost)


def test_remote_segments_are_an_error_that_names_the_offsets(tmp_path: Path) -> None:
    found = segments()
    end = make(tmp_path, found)
    base = found[1][0].base
    for file in (tmp_path / "t-0").glob(f"{0:020d}.*"):
        file.unlink()
    assert offsets(tmp_path) == list(range(base, end))
    write_checkpoint(tmp_path, {("t", 0): 5}, "log-start-offset-checkpoint")
    assert offsets(tmp_path) == list(range(base, end))  # deleted, and not yet written
    (tmp_path / "t-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 5\n")
    with pytest.raises(DataLossError, match=f"offsets 5 to {base - 1} are not on this disk"):
        offsets(tmp_path)
    assert offsets(tmp_path, start=base) == list(range(base, end))


def test_partitions_of_other_disks_are_named(tmp_path: Path) -> None:
    write_partition(tmp_path, "t", 2, segments(count=1))
    write_checkpoint(tmp_path, {("t", 2): 1})
    with Store.open(tmp_path) as store:
        assert store.visible_ends("t") == (0, 0, 1)
        with pytest.raises(PartitionNotFoundError, match="t-1 is not in"):
            list(store.read("t", 1))


def test_what_the_broker_has_not_finished_is_left_alone(tmp_path: Path) -> None:
    found = segments()
    end = make(tmp_path, found)
    log = (tmp_path / "t-0" / f"{0:020d}.log").read_bytes()
    for suffix in (".deleted", ".cleaned", ".swap"):
        (tmp_path / "t-0" / f"{0:020d}.log{suffix}").write_bytes(log)
    for name in ("t-0.abc-delete", "t-0.abc-stray", "t-0.abc-future", "__consumer_offsets-0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020d}.log").write_bytes(log)
    assert offsets(tmp_path) == list(range(end))
    with Store.open(tmp_path) as store:
        assert store.topics() == ["t"]
    with Store.open(tmp_path, internal_topics=True) as store:
        assert store.topics() == ["__consumer_offsets", "t"]


def test_a_topic_has_the_id_of_its_broker(tmp_path: Path) -> None:
    make(tmp_path, segments(count=1))
    text = "version: 0\ntopic_id: 5ZMJYFPcTNaXnYS7lkxJfg"
    (tmp_path / "t-0" / "partition.metadata").write_text(text)
    with Store.open(tmp_path) as store:
        assert str(store.topic("t").uuid) == "e5930960-53dc-4cd6-979d-84bb964c497e"


def test_every_way_to_write_is_refused(tmp_path: Path) -> None:
    make(tmp_path, segments(count=1))
    before = snapshot(tmp_path)
    with Store.open(tmp_path) as store:
        for write in (
            lambda: store.append("t", 0, [b"v"]),
            lambda: store.create_topic("u"),
            lambda: store.delete_topic("t"),
            lambda: store.add_partitions("t", 4),
            lambda: store.alter_topic("t", retention_bytes=1),
            lambda: store.stage("job"),
            lambda: store.commit("job", []),
            lambda: store.abort("job"),
            lambda: store.commit_offsets("g", {"t": {0: 1}}),
            lambda: store.roll("t", 0),
            lambda: store.repair(),
            lambda: store.compact("t", policy="compact"),
            lambda: store.merge("t"),
            lambda: store.retain("t"),
            lambda: store.flush_partition("t", 0),
        ):
            with pytest.raises(StorageError, match="layout kafka is only read"):
                write()
        with pytest.raises(NotWritableError):
            store.delete_records("t", {0: 1})
    assert snapshot(tmp_path) == before
