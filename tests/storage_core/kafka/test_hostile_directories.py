"""What crashes, copies and disks may leave in a broker's directory.

An answer is either what the broker's consumers got, or an error. It is never fewer records in
silence, never a record that nobody produced, and never another exception than ours.
"""

from __future__ import annotations

import contextlib
import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import crc32c
import pyarrow as pa
import pytest

from storage_core import Store
from storage_core.config import StoreConfig
from storage_core.errors import (
    DamagedLogError,
    DamagedMetadataError,
    DataLossError,
    StorageError,
)
from storage_core.kafka import segment_reader
from storage_core.types import IsolationLevel
from storage_core.vfs import PosixVfs
from tests.support.brokers.kafka_directories import DATA, compare, copied, partitions, read
from tests.support.brokers.kafka_encoder import Batch, Record, write_checkpoint, write_partition

TOPIC = "t"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LEVELS: tuple[IsolationLevel, ...] = ("read_committed", "read_uncommitted", "log_end")


def batch(base: int, count: int = 3, text: str = "value") -> Batch:
    records = [Record(f"{text} {base + at}".encode(), time=1000 + base + at) for at in range(count)]
    return Batch(base, records)


def made(root: Path, *segments: Sequence[Batch], high_watermark: int | None = None) -> list[Path]:
    """A directory with one partition."""
    files = write_partition(root, TOPIC, 0, segments)
    end = segments[-1][-1].last + 1 if high_watermark is None else high_watermark
    write_checkpoint(root, {(TOPIC, 0): end})
    return files


def offsets(root: Path, isolation: IsolationLevel = "read_committed") -> list[int]:
    with Store.open(root, isolation=isolation) as store:
        return [it.offset for it in read(store, TOPIC, 0)]


def before_damage(root: Path, isolation: IsolationLevel = "read_uncommitted") -> list[int]:
    """The records that are delivered before the error, which must come."""
    found: list[int] = []
    with Store.open(root, isolation=isolation) as store, pytest.raises(DamagedLogError):
        collect(store, found)
    return found


def collect(store: Store, found: list[int], start: int | None = None) -> None:
    for each in store.read(TOPIC, 0, start):
        found += each["offset"].to_pylist()


def test_names_of_topics_and_of_what_the_broker_has_not_finished(tmp_path: Path) -> None:
    topics = ["a.b-c-7", "orders", "orders-2", "x", "-", "1-2-3", "UPPER_case.1"]
    for topic in topics:
        write_partition(tmp_path, topic, 3, [[batch(0)]])
    write_checkpoint(tmp_path, {(topic, 3): 3 for topic in topics})
    for name in (
        "gone-0.5f1d0b7c-delete",
        "gone-1.9a-stray",
        "gone-2.77-future",
        "plain",
        "x-",
        "x-01",
        "x-20241119",
        "x-3-9999999999",
    ):
        shutil.copytree(tmp_path / "x-3", tmp_path / name)
    (tmp_path / "x-9").write_text("no directory")
    with Store.open(tmp_path) as store:
        assert store.topics() == sorted(topics)
        for topic in topics:
            assert len(read(store, topic, 3)) == 3


@pytest.mark.parametrize("ending", [".deleted", ".cleaned"])
def test_files_that_the_broker_has_not_finished_change_nothing(tmp_path: Path, ending: str) -> None:
    """Their names say nothing of what is in them: here it is of another segment."""
    copy = copied("segments", tmp_path)
    logs = sorted(copy.rglob("*.log"))
    for file in [*copy.rglob("*.log"), *copy.rglob("*.index"), *copy.rglob("*.timeindex")]:
        shutil.copy(logs[-1], file.with_name(file.name + ending))
        shutil.copy(logs[0], file.with_name(f"00000000000000000007{file.suffix}{ending}"))
    compare(copy, "read_committed")
    with Store.open(copy) as store:
        assert store.check() == []


@pytest.mark.parametrize("deleted", range(5))
@pytest.mark.row(50)
def test_a_swap_of_cleaned_segments_at_any_of_its_steps(tmp_path: Path, deleted: int) -> None:
    """The cleaner makes one segment of four, deletes these, then gives it its name.

    A broker that starts again takes the new one, so its records count from the first step on.
    """
    old = [batch(at, 3) for at in range(0, 12, 3)]
    kept = Batch(0, [Record(b"value 1", time=1001, delta=1)], last_delta=2)
    files = made(tmp_path, *([it] for it in old), [batch(12)])
    write_checkpoint(tmp_path, {(TOPIC, 0): 12}, "cleaner-offset-checkpoint")
    directory = tmp_path / "t-0"
    data = kept.encode() + batch(9, 2).encode()
    (directory / f"{0:020d}.log.swap").write_bytes(data)
    (directory / f"{0:020d}.index.swap").write_bytes(b"")
    # Of another swap that was not whole when the broker was killed: it counts for nothing.
    (directory / f"{12:020d}.log.cleaned").write_bytes(batch(12, 1).encode()[:70])
    (directory / f"{12:020d}.log.swap").write_bytes(batch(12, 1).encode())
    for file in files[: min(deleted, 4)]:
        file.rename(file.with_name(file.name + ".deleted"))
    if deleted == 4:
        (directory / f"{0:020d}.log.swap").rename(files[0])
    for level in LEVELS:
        after_tail = [9, 10, 12, 13, 14]
        due = [1, *after_tail]
        # The last old segment may still be there: of it the new one has only the first records.
        assert offsets(tmp_path, level) == due


def test_a_swap_that_ends_under_a_reader(tmp_path: Path) -> None:
    files = made(tmp_path, [batch(0)], [batch(3)], [batch(6)])
    write_checkpoint(tmp_path, {(TOPIC, 0): 6}, "cleaner-offset-checkpoint")
    swap = files[0].with_name(files[0].name + ".swap")
    swap.write_bytes(batch(0).encode() + batch(3).encode())
    with Store.open(tmp_path) as store:
        listed = store.segments(TOPIC, 0)
        assert [it.base for it in listed] == [0, 6]
        files[1].unlink()
        files[0].unlink()
        swap.rename(files[0])
        slices = ((it, it.base, it.end) for it in listed)
        found = [
            at for it in store.read_slices(TOPIC, 0, slices) for at in it["offset"].to_pylist()
        ]
        assert found == list(range(9))


@pytest.mark.parametrize(
    "content",
    [
        b"0\n",
        b"junk",
        b"1\n1\nt 0 3\n",
        b"0\n5\nt 0 3\n",
        b"0\n0\nt 0 3\n",
        b"0\n1\nt 0 -3\n",
        b"0\n1\nt 0 99999999999999999999\n",
        b"0\n1\nt 0\n",
        b"0\n1\nt zero 3\n",
        b"0\n1\nt 0 3 4\n",
        b"0\n2\nt 0 3\nt 0 2\n",
        b"\xff\xfe\n1\nt 0 3\n",
        b"0\n-1\n",
        b"0\n1\n\xd9\xa3 0 3\n",
    ],
)
@pytest.mark.parametrize("name", [HIGH_WATERMARKS, "log-start-offset-checkpoint"])
@pytest.mark.row(50)
def test_a_damaged_checkpoint_is_an_error_that_names_it(
    tmp_path: Path, name: str, content: bytes
) -> None:
    made(tmp_path, [batch(0), batch(3)])
    (tmp_path / name).write_bytes(content)
    with Store.open(tmp_path) as store, pytest.raises(DamagedMetadataError, match=name):
        read(store, TOPIC, 0)
    with Store.open(tmp_path) as store:
        assert any(name in str(problem) for problem in store.check())


def test_a_missing_high_watermark_file_is_an_error_and_the_log_end_is_read(tmp_path: Path) -> None:
    made(tmp_path, [batch(0)])
    (tmp_path / HIGH_WATERMARKS).unlink()
    (tmp_path / "meta.properties").write_text("version=1\n")
    with Store.open(tmp_path) as store, pytest.raises(DamagedMetadataError):
        read(store, TOPIC, 0)
    assert offsets(tmp_path, "log_end") == [0, 1, 2]


@pytest.mark.row(50)
def test_a_log_that_ends_below_its_high_watermark_is_damaged(tmp_path: Path) -> None:
    made(tmp_path, [batch(0)], [batch(3)], high_watermark=9)
    assert before_damage(tmp_path) == list(range(6))
    assert before_damage(tmp_path, "read_committed") == list(range(6))
    assert offsets(tmp_path, "log_end") == list(range(6))


def test_a_log_start_above_everything_is_no_crash(tmp_path: Path) -> None:
    made(tmp_path, [batch(0)], [batch(3)])
    for start in (3, 4, 6):
        write_checkpoint(tmp_path, {(TOPIC, 0): start}, "log-start-offset-checkpoint")
        for level in LEVELS:
            assert offsets(tmp_path, level) == list(range(start, 6))
    write_checkpoint(tmp_path, {(TOPIC, 0): 600}, "log-start-offset-checkpoint")
    with Store.open(tmp_path) as store, contextlib.suppress(StorageError):
        assert read(store, TOPIC, 0) == []


@pytest.mark.row(50)
def test_a_wrong_checksum_in_the_middle_ends_the_read_there(tmp_path: Path) -> None:
    file, _ = made(tmp_path, [batch(at) for at in range(0, 30, 3)], [batch(30)])
    size = len(batch(0).encode())
    data = bytearray(file.read_bytes())
    data[4 * size + 70] ^= 1
    file.write_bytes(data)
    for level in LEVELS:
        assert before_damage(tmp_path, level) == list(range(12))
    with Store.open(tmp_path, isolation="read_uncommitted") as store:
        assert [it.offset for it in read(store, TOPIC, 0, start=30)] == [30, 31, 32]
        (problem,) = store.check()
        assert file.name in str(problem)
        assert "12" in str(problem)


def test_a_missing_segment_is_an_error(tmp_path: Path) -> None:
    files = made(tmp_path, [batch(0)], [batch(3)], [batch(6)])
    files[1].unlink()
    for level in LEVELS:
        with Store.open(tmp_path, isolation=level) as store, pytest.raises(StorageError):
            read(store, TOPIC, 0)


BAD = {
    "offsets past the last one": Batch((1 << 63) - 2, batch(0).records),
    "a huge last offset": Batch(6, batch(0).records, last_delta=(1 << 31) - 1),
    "a negative base": Batch(-9, batch(0).records),
    "a negative last delta": Batch(6, batch(0).records, last_delta=-1),
    "a record after the last": Batch(
        6, [Record(b"a", delta=0), Record(b"b", delta=9)], last_delta=1
    ),
    "falling deltas": Batch(6, [Record(b"a", delta=1), Record(b"b", delta=0)], last_delta=1),
    "equal deltas": Batch(6, [Record(b"a", delta=0), Record(b"b", delta=0)], last_delta=1),
    "a negative delta": Batch(6, [Record(b"a", delta=-1), Record(b"b", delta=0)], last_delta=1),
    "offsets that came before": batch(3),
    "no payload": Batch(6, batch(0).records, payload=b""),
    "records that end early": Batch(6, batch(0).records, payload=b"\x10\x00"),
    "a length of its own size": Batch(6, batch(0).records, payload=b"\xff" * 400),
    "no such codec": Batch(6, batch(0).records, codec="zstd", payload=b""),
    "magic 1": Batch(6, batch(0).records, magic=1),
    "magic 0": Batch(6, batch(0).records, magic=0),
    "magic 9": Batch(6, batch(0).records, magic=9),
    "magic -1": Batch(6, batch(0).records, magic=-1),
}


@pytest.mark.row(50)
def test_a_time_that_no_column_can_hold_ends_the_read_before_its_record(tmp_path: Path) -> None:
    headers = Batch(3, [Record(b"v", b"k", [("h", b"1")], time=5), Record(b"far", time=1 << 62)])
    made(tmp_path, [batch(0), headers, batch(5)], [batch(8)])
    for level in LEVELS:
        assert before_damage(tmp_path, level) == list(range(4))
    with Store.open(tmp_path) as store, pytest.raises(DamagedLogError) as caught:
        read(store, TOPIC, 0)
    assert caught.value.offset == 4
    with Store.open(tmp_path) as store:
        values = pa.concat_tables(
            pa.Table.from_batches([it]) for it in store.read(TOPIC, 0, columns=["offset", "value"])
        )
    assert values["offset"].to_pylist() == list(range(11))


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.row(50)
def test_a_batch_that_contradicts_itself_is_damage(
    tmp_path: Path, what: str, is_last: bool
) -> None:
    """Its checksum is right; below the high watermark nothing of it may be delivered."""
    after = [] if is_last else [batch(9)]
    file, *_ = made(tmp_path, [batch(0), batch(3), BAD[what], *after], high_watermark=12)
    assert set(before_damage(tmp_path)) <= set(range(6))
    # A base offset is under no checksum: of two batches that overlap neither may be the right one.
    assert before_damage(tmp_path, "read_committed") in ([0, 1, 2], list(range(6)))
    with Store.open(tmp_path) as store:
        assert any(file.name in str(it) for it in store.check())


def _bomb(codec: str) -> bytes:
    """Some bytes that unpack to 64 MiB of zeros."""
    zeros = bytes(1 << 20)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as out:
        for _ in range(64):
            out.write(zeros)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_compressed_zeros_are_no_records(tmp_path: Path, codec: str) -> None:
    raw = Batch(3, [Record(b"")], codec=codec).encode()
    checked = raw[21:61] + _bomb(codec)
    head = struct.pack(">ibI", 0, 2, crc32c.crc32c(checked))
    data = struct.pack(">qi", 3, len(head) + len(checked)) + head + checked
    (file,) = made(tmp_path, [batch(0)], high_watermark=4)
    file.write_bytes(file.read_bytes() + data)
    assert before_damage(tmp_path) == [0, 1, 2]


def test_names_of_headers_that_are_no_text_are_refused_or_given(tmp_path: Path) -> None:
    """A consumer in Java would replace the bytes; what we give must be valid text."""
    made(tmp_path, [batch(0), Batch(3, [Record(b"v", headers=[(b"\xff\xfe", b"x")])])])
    with Store.open(tmp_path) as store:
        try:
            found = read(store, TOPIC, 0)
        except DamagedLogError:
            return
    assert [it.offset for it in found] == [0, 1, 2, 3]


def _delete(file: Path) -> None:
    file.rename(file.with_name(file.name + ".deleted"))


def _delete_for_good(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("gone", [_delete, _delete_for_good])
@pytest.mark.row(50)
def test_segments_that_retention_takes_from_a_reader(
    tmp_path: Path, gone: Callable[[Path], None]
) -> None:
    files = made(tmp_path, *([batch(at, 50)] for at in range(0, 500, 50)))
    with Store.open(tmp_path) as store:
        store.segments(TOPIC, 0)
        reading = iter(store.read(TOPIC, 0))
        first = next(reading)["offset"].to_pylist()
        assert first[0] == 0
        for file in files[:6]:
            gone(file)
        found = list(first)
        try:
            for each in reading:
                found += each["offset"].to_pylist()
        except DataLossError:
            assert len(found) < 300
        else:
            assert len(found) == 500
        assert found == list(range(len(found)))
        assert [it.offset for it in read(store, TOPIC, 0)] == list(range(300, 500))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.row(50)
def test_a_leader_change_that_rewrites_the_end_under_a_reader(
    tmp_path: Path, level: IsolationLevel
) -> None:
    """The log loses what was not replicated and gets other records there, perhaps as many bytes."""
    high = 6 if level != "log_end" else None
    (file,) = made(tmp_path, [batch(0), batch(3), batch(6), batch(9)], high_watermark=high)
    with Store.open(tmp_path, isolation=level) as store:
        before = read(store, TOPIC, 0)
        assert [it.value for it in before[:6]] == [b"value %d" % at for at in range(6)]
        kept = len(batch(0).encode()) * 2
        with file.open("r+b") as log:
            log.truncate(kept)
            log.seek(kept)
            log.write(batch(6, text="other").encode() + batch(9, text="other").encode())
        write_checkpoint(tmp_path, {(TOPIC, 0): 12})
        found = read(store, TOPIC, 0)
    values = [b"value %d" % at for at in range(6)] + [b"other %d" % at for at in range(6, 12)]
    assert [it.value for it in found] == values


def test_a_log_that_is_cut_in_the_middle_of_a_read(tmp_path: Path) -> None:
    (file,) = made(tmp_path, [batch(at, 100) for at in range(0, 50_000, 100)])
    with Store.open(tmp_path) as store:
        reading = iter(store.read(TOPIC, 0))
        found = next(reading)["offset"].to_pylist()
        with file.open("r+b") as log:
            log.truncate(file.stat().st_size // 2)
        try:
            for each in reading:
                found += each["offset"].to_pylist()
        except StorageError:
            assert len(found) < 50_000
        else:
            assert len(found) == 50_000
        assert found == list(range(len(found)))


@pytest.mark.parametrize("level", LEVELS)
def test_a_sealed_segment_that_a_leader_change_cuts_kills_no_reader(
    tmp_path: Path, level: IsolationLevel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end is above the high watermark, so the broker may cut it off under the reader."""
    monkeypatch.setattr(segment_reader, "_MOST_BYTES", 256 << 10)
    large = [Record(bytes(10_000)) for _ in range(100)]
    batches = [Batch(at, large) for at in range(0, 3000, 100)]
    high = None if level == "log_end" else 2900
    file, _ = made(tmp_path, batches, [batch(3000)], high_watermark=high)
    with Store.open(tmp_path, isolation=level) as store:
        reading = iter(store.read(TOPIC, 0))
        found = next(reading)["offset"].to_pylist()
        with file.open("r+b") as log:
            log.truncate(file.stat().st_size // 2)
        with pytest.raises(StorageError):
            found += [at for each in reading for at in each["offset"].to_pylist()]
        assert found == list(range(len(found)))


@pytest.mark.parametrize("case", ["segments", "transactions"])
def test_a_copy_without_any_small_file_is_still_read_to_its_end(case: str, tmp_path: Path) -> None:
    copy = copied(case, tmp_path)
    for file in copy.rglob("*"):
        if file.is_file() and file.suffix not in (".log", ".json") and file.name != HIGH_WATERMARKS:
            file.unlink()
    for level in LEVELS:
        compare(copy, level)


def test_every_other_file_of_the_root_may_be_empty(tmp_path: Path) -> None:
    for case in ("segments", "retention"):
        copy = copied(case, tmp_path)
        for file in copy.iterdir():
            if file.is_file() and "offset-checkpoint" not in file.name and file.suffix != ".json":
                file.write_bytes(b"")
        compare(copy, "read_committed")


def test_the_data_stay_as_they_are() -> None:
    assert all(not (DATA / it / ".cursus-spark").exists() for it in ("segments", "retention"))
    assert sum(len(list(partitions(it))) for it in ("segments", "retention")) > 8


class DeletingVfs(PosixVfs):
    """Retention deletes a segment between the listing of a partition and the next step."""

    def __init__(self, root: Path, doomed: Sequence[Path]) -> None:
        super().__init__(root)
        self.doomed = list(doomed)

    def listdir(self, path: str) -> list[str]:
        names = super().listdir(path)
        if path == "t-0" and self.doomed:
            self.doomed.pop(0).unlink()
        return names


@pytest.mark.parametrize("isolation", LEVELS)
def test_segments_deleted_after_each_listing_are_no_error(
    tmp_path: Path, isolation: IsolationLevel
) -> None:
    files = made(tmp_path, *([batch(at)] for at in range(0, 15, 3)))
    vfs = DeletingVfs(tmp_path, files[:3])
    with Store(vfs, StoreConfig(), "kafka", isolation=isolation) as store:
        assert store.visible_ends(TOPIC) == (15,)
        while vfs.doomed:
            vfs.doomed.pop().unlink()
        assert [it.offset for it in read(store, TOPIC, 0)] == list(range(9, 15))
