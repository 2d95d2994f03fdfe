"""A directory from which something is missing is an error with a sentence, not fewer records."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from storage_core import Store
from storage_core.config import StoreConfig
from storage_core.errors import (
    DamagedLogError,
    DamagedMetadataError,
    DataLossError,
    PartitionNotFoundError,
)
from storage_core.kafka import segments
from storage_core.types import IsolationLevel
from storage_core.vfs import PosixVfs
from tests.support.brokers.kafka_directories import CASES, copied
from tests.support.brokers.kafka_directories import partitions as partitions_of
from tests.support.brokers.kafka_encoder import Batch, Record, write_checkpoint, write_partition
from tests.support.stores import rows

CLEANED, STARTS = "cleaner-offset-checkpoint", "log-start-offset-checkpoint"
LEVELS: tuple[IsolationLevel, ...] = ("read_committed", "read_uncommitted", "log_end")


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader looks as often as ever for what the cleaner does, but sooner."""
    monkeypatch.setattr(segments, "_CLEANER_S", 0.001)


def batch(base: int, count: int = 3) -> Batch:
    return Batch(base, [Record(b"value %d" % (base + at), b"key") for at in range(count)])


def made(root: Path, *bases: int, high_watermark: int | None = None) -> list[Path]:
    files = write_partition(root, "t", 0, [[batch(base)] for base in bases])
    end = bases[-1] + 3 if high_watermark is None else high_watermark
    write_checkpoint(root, {("t", 0): end})
    return files


def offsets(root: Path, level: IsolationLevel = "read_committed") -> list[int]:
    with Store.open(root, isolation=level) as store:
        return [row["offset"] for row in rows(store.read("t", 0))]


@pytest.mark.parametrize("level", LEVELS[:2])
def test_compaction_is_no_reason_for_an_active_segment_that_was_cut(
    tmp_path: Path, level: IsolationLevel
) -> None:
    made(tmp_path, 0, 3, high_watermark=9)
    write_checkpoint(tmp_path, {("t", 0): 3}, CLEANED)
    with pytest.raises(DamagedLogError, match="no batch has the offsets 6 to 8"):
        offsets(tmp_path, level)
    with Store.open(tmp_path, isolation=level) as store:
        assert "offsets 6 to 8" in str(store.check())


@pytest.mark.parametrize("level", LEVELS)
def test_compaction_explains_only_what_the_cleaner_has_come_to(
    tmp_path: Path, level: IsolationLevel
) -> None:
    files = made(tmp_path, 0, 3, 6, 9)
    files[2].write_bytes(b"")
    write_checkpoint(tmp_path, {("t", 0): 6}, CLEANED)
    with pytest.raises((DataLossError, DamagedLogError), match="offsets 6 to 8"):
        offsets(tmp_path, level)
    write_checkpoint(tmp_path, {("t", 0): 9}, CLEANED)
    assert offsets(tmp_path, level) == [*range(6), *range(9, 12)]
    # At work in the segments after those, the cleaner has not written yet how far it came.
    write_checkpoint(tmp_path, {("t", 0): 3}, CLEANED)
    kept = Batch(3, [Record(b"value 4", b"key", delta=1)], last_delta=2)
    files[1].write_bytes(kept.encode())
    assert offsets(tmp_path, level) == [0, 1, 2, 4, *range(9, 12)]


class CleanerVfs(PosixVfs):
    """The cleaner has emptied a segment, and writes how far it came while a reader waits."""

    def sleep(self, seconds: float) -> None:  # noqa: ARG002
        write_checkpoint(Path(self.root), {("t", 0): 6}, CLEANED)


@pytest.mark.parametrize("level", LEVELS)
def test_a_segment_that_the_cleaner_has_just_emptied_is_not_missed(
    tmp_path: Path, level: IsolationLevel
) -> None:
    files = made(tmp_path, 0, 3, 6)
    old = files[1].with_name(files[1].name + ".deleted")
    shutil.copy(files[1], old)
    files[1].write_bytes(b"")
    assert offsets(tmp_path, level) == [0, 1, 2, 6, 7, 8]
    old.unlink()
    with pytest.raises((DataLossError, DamagedLogError), match="offsets 3 to 5"):
        offsets(tmp_path, level)
    with Store(CleanerVfs(tmp_path), StoreConfig(), "kafka", isolation=level) as store:
        assert [row["offset"] for row in rows(store.read("t", 0))] == [0, 1, 2, 6, 7, 8]


def test_segments_that_no_retention_deleted_are_missed(tmp_path: Path) -> None:
    files = made(tmp_path, 0, 3, 6)
    epochs = tmp_path / "t-0" / "leader-epoch-checkpoint"
    epochs.write_text("0\n2\n0 0\n1 6\n")
    for file in files[:2]:
        file.unlink()
    for level in LEVELS:
        with pytest.raises(DataLossError, match="offsets 0 to 5 are not on this disk"):
            offsets(tmp_path, level)
    with Store.open(tmp_path) as store:
        assert [row["offset"] for row in rows(store.read("t", 0, start=6))] == [6, 7, 8]
        assert "no retention deleted them" in str(store.check())
    # Retention forgets the epochs with the records, or is about to.
    epochs.write_text("0\n1\n1 6\n")
    assert offsets(tmp_path) == [6, 7, 8]
    epochs.write_text("0\n2\n0 0\n1 6\n")
    files[0].with_name(files[0].name + ".deleted").write_bytes(b"")
    assert offsets(tmp_path) == [6, 7, 8]
    epochs.write_text("junk")
    assert offsets(tmp_path) == [6, 7, 8]


@pytest.mark.parametrize("case", CASES)
def test_a_broker_leaves_nothing_that_is_missed(case: str, tmp_path: Path) -> None:
    """The rules above, without the deleted files, which the broker removes after a minute."""
    copy = copied(case, tmp_path)
    for file in copy.rglob("*.deleted"):
        file.unlink()
    with Store.open(copy) as store:
        assert [it for it in store.check() if it.severity == "error"] == []
        for it in partitions_of(copy):
            assert store.offsets(it.topic, it.number).start == it.committed.start


def test_a_partition_that_the_broker_has_here_is_missed(tmp_path: Path) -> None:
    made(tmp_path, 0, 3)
    write_partition(tmp_path, "t", 1, [[batch(0)]])
    write_checkpoint(tmp_path, {("t", 0): 6, ("t", 1): 3, ("other", 7): 3})
    shutil.rmtree(tmp_path / "t-1")
    with Store.open(tmp_path) as store:
        assert store.topics() == ["t"]
        assert store.topic("t").partitions == 2
        assert len(rows(store.read("t", 0))) == 6
        with pytest.raises(PartitionNotFoundError, match=r"t-1 is not in .* has partitions 0"):
            rows(store.read("t", 1))
    # On its way to this disk: the other one has it until it is complete.
    shutil.copytree(tmp_path / "t-0", tmp_path / "t-1.5f1d0b7c8a9e4f6ab1c2d3e4f5a6b7c8-future")
    with Store.open(tmp_path) as store, pytest.raises(PartitionNotFoundError, match="t-1 is not"):
        rows(store.read("t", 1))
    write_checkpoint(tmp_path, {("t", 0): 6, ("t", 1 << 40): 3})
    with Store.open(tmp_path) as store:
        assert store.topic("t").partitions == 1
        assert len(rows(store.read("t", 0))) == 6


def test_a_partition_that_is_a_link_is_missed(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    made(here, 0, 3)
    write_partition(there, "t", 1, [[batch(0)]])
    write_partition(there, "linked", 0, [[batch(0)]])
    write_checkpoint(here, {("t", 0): 6, ("t", 1): 3, ("linked", 0): 3})
    for name in ("t-1", "linked-0"):
        (here / name).symlink_to(there / name, target_is_directory=True)
    with Store.open(here) as store:
        assert store.topics() == ["linked", "t"]
        assert (store.topic("t").partitions, store.topic("linked").partitions) == (2, 1)
        assert len(rows(store.read("t", 0))) == 6
        for topic, partition in (("t", 1), ("linked", 0)):
            with pytest.raises(PartitionNotFoundError, match="is a symbolic link"):
                rows(store.read(topic, partition))


def test_a_partition_that_lost_all_its_segments_is_an_error(tmp_path: Path) -> None:
    made(tmp_path, 0, 3)
    (file,) = write_partition(tmp_path, "t", 1, [[batch(0)]])
    file.unlink()
    write_checkpoint(tmp_path, {("t", 0): 6, ("t", 1): 3})
    (alone,) = write_partition(tmp_path, "alone", 0, [[batch(0)]])
    alone.unlink()
    write_checkpoint(tmp_path, {("t", 0): 6, ("t", 1): 3, ("alone", 0): 3})
    for level in LEVELS:
        with Store.open(tmp_path, isolation=level) as store:
            assert store.topics() == ["alone", "t"]
            for topic, partition in (("t", 1), ("alone", 0)):
                with pytest.raises(DataLossError, match="offsets 0 to 2 are not on this disk"):
                    rows(store.read(topic, partition))
            found = store.check()
            assert [(it.topic, it.partition) for it in found] == [("alone", 0), ("t", 1)]
    with Store.open(tmp_path, isolation="read_uncommitted") as store:
        assert len(rows(store.read("t", 0))) == 6


def test_a_stopped_broker_names_the_high_watermarks_of_all_partitions(tmp_path: Path) -> None:
    """Of a running one the file may be older than a topic; here it is of another disk."""
    made(tmp_path, 0, 3)
    write_partition(tmp_path, "empty", 0, [[batch(0)]])[0].write_bytes(b"")
    write_checkpoint(tmp_path, {("other", 0): 6})
    assert offsets(tmp_path) == []
    (tmp_path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    for level in LEVELS[:2]:
        with Store.open(tmp_path, isolation=level) as store:
            assert rows(store.read("empty", 0)) == []
            with pytest.raises(DamagedMetadataError, match="does not name t-0, which has records"):
                rows(store.read("t", 0))
            assert [(it.topic, it.severity) for it in store.check()] == [("t", "error")]
    assert offsets(tmp_path, "log_end") == list(range(6))
