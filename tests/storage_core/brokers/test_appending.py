"""Appending beside a stopped broker: bytes, rotation, torn tails, indexes, failures."""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storage_core import OffsetRange, Store, StoreConfig
from storage_core.brokers.segment_reader import RowSegment
from storage_core.brokers.summaries import pack, unpack
from storage_core.errors import WriteFailedError
from storage_core.vfs import Buffer, PosixVfs
from tests.support.brokers.broker_directories import (
    BROKER,
    KINDS,
    NESTED,
    RUSTLOG,
    TOPIC,
    Kind,
    details,
    message,
    read,
)
from tests.support.faulty_vfs import FaultyVfs, faulty
from tests.support.stores import columns_of, errors

MIB = 1 << 20


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


def make(root: Path, layout: str, partitions: int = 1, **settings: Any) -> Store:
    store = Store.open(root, layout=layout, create=True, config=StoreConfig(**settings))
    store.create_topic(TOPIC, partitions)
    return store


def sizes(root: Path) -> list[int]:
    files = sorted(root.rglob("*.log"), key=lambda file: (len(file.name), file.name))
    return [file.stat().st_size for file in files]


def test_appended_bytes_are_the_brokers_own(tmp_path: Path, kind: Kind) -> None:
    kind.write(tmp_path, [[b"a"], [b"b"]])
    store = kind.open(tmp_path)
    assert store.append(TOPIC, 0, [b"Hello", b"", b"World!"]) == OffsetRange(2, 5)
    last = kind.file(tmp_path, 1)
    assert last.read_bytes() == kind.encode([b"b", b"Hello", b"", b"World!"], 1)
    assert read(store).values == [b"a", b"b", b"Hello", b"", b"World!"]
    assert read(kind.open(tmp_path)) == read(store)
    assert errors(store) == []


@pytest.mark.parametrize("layout", ["cursus", "cursus-broker", "rustlog"])
def test_a_new_directory_is_recognised_again(tmp_path: Path, layout: str) -> None:
    store = make(tmp_path, layout, partitions=3)
    for partition in range(3):
        store.append(TOPIC, partition, [b"%d" % partition])
    again = Store.open(tmp_path)
    assert (again.layout, again.topic(TOPIC).partitions) == (layout, 3)
    assert [read(again, partition).values for partition in range(3)] == [[b"0"], [b"1"], [b"2"]]


def test_seed_example_byte_for_byte(tmp_path: Path) -> None:
    store = make(tmp_path, "cursus")
    store.append(TOPIC, 0, [b"Hello"])
    store.append(TOPIC, 0, [b"World!"])
    file = tmp_path / TOPIC / "partition_0_segment_0.log"
    assert file.read_bytes().hex(" ", 1) == (
        "00 00 00 05 48 65 6c 6c 6f 00 00 00 06 57 6f 72 6c 64 21"
    )


def test_rotation_comes_before_the_limit_is_passed(tmp_path: Path) -> None:
    store = make(tmp_path, "cursus")
    payload = bytes(1000)
    store.append(TOPIC, 0, [payload] * 1044)
    assert sizes(tmp_path) == [1044 * 1004]
    # One byte too many for the first file, then exactly the limit.
    left = MIB - 1044 * 1004
    store.append(TOPIC, 0, [bytes(left - 4 + 1)])
    assert sizes(tmp_path) == [1044 * 1004, left + 1]
    store.append(TOPIC, 0, [bytes(MIB - (left + 1) - 4)])
    assert sizes(tmp_path) == [1044 * 1004, MIB]
    store.append(TOPIC, 0, [b""])
    assert sizes(tmp_path) == [1044 * 1004, MIB, 4]
    assert read(store).offsets == list(range(1047))


def test_rotation_inside_one_append(tmp_path: Path) -> None:
    store = make(tmp_path, "cursus")
    values = [bytes([at % 251]) * (at * 37 % 5000) for at in range(3000)]
    store.append(TOPIC, 0, values)
    expected, current = [0], 0
    for value in values:
        if current + 4 + len(value) > MIB:
            expected.append(0)
            current = 0
        current += 4 + len(value)
        expected[-1] = current
    assert sizes(tmp_path) == expected
    assert len(expected) > 5
    assert read(store).values == values


def test_a_record_larger_than_a_segment_stands_alone(tmp_path: Path) -> None:
    store = make(tmp_path, "cursus")
    store.append(TOPIC, 0, [b"a", bytes(3 * MIB), b"b"])
    assert sizes(tmp_path) == [5, 3 * MIB + 4, 5]
    assert [len(value) for value in read(store).values] == [1, 3 * MIB, 1]


@pytest.mark.parametrize("layout", ["cursus-broker", "rustlog"])
def test_large_records_do_not_roll_while_there_is_room(tmp_path: Path, layout: str) -> None:
    store = make(tmp_path, layout)
    store.append(TOPIC, 0, [b"a", bytes(9 * MIB), b"b", bytes(9 * MIB)])
    store.append(TOPIC, 0, [bytes(9 * MIB)])
    assert len(sizes(tmp_path)) == 1


@pytest.mark.parametrize("kind", [BROKER, RUSTLOG], ids=lambda kind: str(kind.name))
def test_rolled_files_are_named_by_their_first_offset(tmp_path: Path, kind: Kind) -> None:
    store = make(tmp_path, kind.layout, segment_bytes=4096)
    for first in range(0, 200, 50):
        store.append(TOPIC, 0, [b"%020d" % at for at in range(first, first + 50)])
    found = store.segments(TOPIC, 0)
    assert len(found) > 1
    assert all(kind.file(tmp_path, info.base).stat().st_size <= 4096 for info in found)
    assert read(Store.open(tmp_path)).values == [b"%020d" % at for at in range(200)]
    assert store.roll(TOPIC, 0)
    assert not store.roll(TOPIC, 0)
    assert kind.file(tmp_path, 200).read_bytes() == b""
    assert store.append(TOPIC, 0, [b"more"]) == OffsetRange(200, 201)


def test_a_torn_tail_is_cut_and_saved_before_the_next_append(tmp_path: Path, kind: Kind) -> None:
    *_, last = kind.write(tmp_path, [[b"a"], [b"b"]])
    whole, torn = last.read_bytes(), kind.encode([b"torn"], 2)[:-1]
    last.write_bytes(whole + torn)
    store = kind.open(tmp_path)
    assert store.append(TOPIC, 0, [b"c"]) == OffsetRange(2, 3)
    assert last.read_bytes() == whole + kind.encode([b"c"], 2)
    (saved,) = (tmp_path / ".cursus-spark" / "broken").iterdir()
    assert saved.read_bytes() == torn
    assert read(store).values == [b"a", b"b", b"c"]


def test_a_torn_tail_is_logged_at_the_next_open_and_when_it_is_cut(
    tmp_path: Path, kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    *_, last = kind.write(tmp_path, [[b"a"], [b"b"]])
    with last.open("ab") as file:
        file.write(kind.encode([b"torn"], 2)[:-1])
    with caplog.at_level("WARNING", logger="storage_core"):
        store = kind.open(tmp_path)
        for _ in range(2):
            assert read(store).values == [b"a", b"b"]
        assert len(caplog.messages) == 1
        assert f"cursus repair {tmp_path}" in caplog.text
        assert str(last.relative_to(tmp_path)) in caplog.text
        store.repair()
        assert "bytes of a torn record" in caplog.messages[1]
        assert read(kind.open(tmp_path)).values == [b"a", b"b"]
    assert len(caplog.messages) == 2


def test_every_write_is_a_run_of_whole_records(
    tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed writer leaves a torn record only if the kill comes inside one system call."""
    written: list[tuple[int, int]] = []
    write = PosixVfs.pwritev

    def record(vfs: PosixVfs, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        count = write(vfs, fd, buffers, position)
        written.append((position, position + count))
        return count

    values = [b"%d" % at * 1000 for at in range(5000)]
    store = make(tmp_path, kind.layout, segment_bytes=1 << 30)
    monkeypatch.setattr(PosixVfs, "pwritev", record)
    store.append(TOPIC, 0, values)
    lengths = [len(kind.encode([value], at)) for at, value in enumerate(values)]
    ends = [0, *np.cumsum(lengths).tolist()]
    log = [write for write in written if write[1] - write[0] > 1 << 20]
    assert len(log) == 3
    assert {position for write in log for position in write} <= set(ends)


@pytest.mark.parametrize("kind", [BROKER, RUSTLOG], ids=lambda kind: str(kind.name))
def test_zeros_are_cut_without_a_copy(tmp_path: Path, kind: Kind) -> None:
    (file,) = kind.write(tmp_path, [[b"a"]])
    whole = file.read_bytes()
    file.write_bytes(whole + bytes(10 * MIB))
    kind.open(tmp_path).append(TOPIC, 0, [b"b"])
    assert file.read_bytes() == kind.encode([b"a", b"b"], 0)
    assert list((tmp_path / ".cursus-spark" / "broken").iterdir()) == []


def test_a_nested_partition_stays_nested(tmp_path: Path) -> None:
    NESTED.write(tmp_path, [[b"a"]])
    store = NESTED.open(tmp_path, config=StoreConfig(segment_bytes=4096))
    store.append(TOPIC, 0, [bytes(4000)] * 3)
    names = sorted(file.name for file in (tmp_path / TOPIC / "partition_0").iterdir())
    assert names == [f"{TOPIC}_partition_0_segment_{number}.log" for number in range(3)]
    assert len(read(store).values) == 4


def test_rustlog_index_has_every_hundredth_record(tmp_path: Path) -> None:
    store = make(tmp_path, "rustlog")
    for _ in range(7):
        store.append(TOPIC, 0, [b"%d" % at * 3 for at in range(45)])
    values = [b"%d" % at * 3 for at in range(45)] * 7
    index = RUSTLOG.file(tmp_path, suffix=".index")
    assert index.read_bytes() == RUSTLOG.index_of(values, 0, 100)
    index.write_bytes(index.read_bytes()[:-1])
    store.append(TOPIC, 0, [b"x"] * 200)
    assert len(index.read_bytes()) == 4 * 16 - 1
    assert read(store).values == values + [b"x"] * 200


def test_the_watermark_is_raised(tmp_path: Path) -> None:
    BROKER.write(tmp_path, [[b"a", b"b"]])
    hwm = tmp_path / TOPIC / "partition_0.hwm"
    hwm.write_bytes(b"2\n")
    store = BROKER.open(tmp_path)
    store.append(TOPIC, 0, [b"c"])
    assert hwm.read_bytes() == b"3\n"
    assert read(store).values == [b"a", b"b", b"c"]
    hwm.unlink()
    store.append(TOPIC, 0, [b"d"])
    assert not hwm.exists()


def test_keys_and_fields_are_mapped_back(tmp_path: Path) -> None:
    store = make(tmp_path, "cursus-broker")
    headers = [{"producer": b"p", "seq": b"7"}, None, {"event_type": b"e", "metadata": b"{}"}]
    store.append(TOPIC, 0, [b"a", b"b", b"c"], keys=[b"k", None, b""], headers=headers)
    data = BROKER.file(tmp_path).read_bytes()
    assert data == (
        message(0, b"a", key=b"k", producer=b"p", seq=7)
        + message(1, b"b")
        + message(2, b"c", event_type=b"e", metadata=b"{}")
    )
    assert details(store) == [
        (0, b"k", b"a", [("producer", b"p"), ("seq", b"7")]),
        (1, None, b"b", None),
        (2, None, b"c", [("event_type", b"e"), ("metadata", b"{}")]),
    ]


def test_nothing_is_appended_to_a_compacted_file(tmp_path: Path) -> None:
    data = message(3, b"d")
    file = BROKER.file(tmp_path, 0)
    file.parent.mkdir(parents=True)
    file.write_bytes(data)
    file.with_name(f"{file.name}.compacted-{len(data)}").write_bytes(b"cursus-compaction-v1\n")
    store = BROKER.open(tmp_path)
    assert store.append(TOPIC, 0, [b"e"]) == OffsetRange(4, 5)
    assert file.read_bytes() == data
    assert read(store).records == [(3, b"d"), (4, b"e")]


def on(vfs: FaultyVfs, layout: str) -> Store:
    return Store(vfs, StoreConfig(), layout)


def test_a_full_disk_leaves_whole_records_and_the_log_goes_on(tmp_path: Path, kind: Kind) -> None:
    kind.write(tmp_path, [[b"a"]])
    vfs = faulty(tmp_path)
    vfs.short_writes = 7
    vfs.fail("pwritev", errno.ENOSPC, nth=5, path=".log")
    store = on(vfs, kind.layout)
    with pytest.raises(WriteFailedError):
        store.append(TOPIC, 0, [b"x" * 40, b"y" * 40])
    vfs.short_writes = None
    before = read(store).values
    assert before in ([b"a"], [b"a", b"x" * 40])
    store.append(TOPIC, 0, [b"z"])
    assert read(kind.open(tmp_path)).values == [*before, b"z"]


def test_a_failed_sync_poisons_the_log(tmp_path: Path, kind: Kind) -> None:
    kind.write(tmp_path, [[b"a"]])
    vfs = faulty(tmp_path)
    vfs.fail("fsync", errno.EIO, path=".log")
    store = on(vfs, kind.layout)
    for _ in range(2):
        with pytest.raises(WriteFailedError):
            store.append(TOPIC, 0, [b"b"])
    kind.open(tmp_path).append(TOPIC, 0, [b"c"])
    assert read(kind.open(tmp_path)).values[-1] == b"c"


def test_repair_cuts_torn_tails(tmp_path: Path, kind: Kind) -> None:
    (file,) = kind.write(tmp_path, [[b"a"]])
    whole = file.read_bytes()
    file.write_bytes(whole + b"\0")
    (report,) = kind.open(tmp_path).repair()
    assert (report.end_offset, report.cut_bytes) == (1, 1)
    assert file.read_bytes() == whole


def test_the_index_of_a_broker_need_not_be_written(tmp_path: Path) -> None:
    (file,) = BROKER.write(tmp_path, [[b"a" * 5000, b"b"]])
    index = struct.pack(">QQ", 1, len(message(0, b"a" * 5000))) + bytes(4096)
    file.with_suffix(".index").write_bytes(index)
    store = BROKER.open(tmp_path)
    store.append(TOPIC, 0, [b"c" * 5000] * 3)
    assert file.with_suffix(".index").read_bytes() == index
    assert len(read(store, start=1).values) == 4


@pytest.mark.parametrize("layout", ["rustlog", "cursus-broker"])
def test_records_that_bring_their_offsets_into_an_empty_log_keep_them(
    tmp_path: Path, layout: str
) -> None:
    store = Store.open(tmp_path, layout=layout, create=True)
    store.create_topic("t")
    columns = replace(columns_of([b"five", b"six"]), offsets=np.array([5, 6]))
    assert store.append_columns("t", 0, columns) == OffsetRange(5, 7)
    assert store.append("t", 0, [b"seven"]) == OffsetRange(7, 8)
    assert store.offsets("t", 0) == OffsetRange(5, 8)


def test_an_append_reads_nothing_that_was_appended(
    tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind.write(tmp_path, [[b"a"], [b"b"]])
    store = kind.open(tmp_path, config=StoreConfig(segment_bytes=4096))
    store.append(TOPIC, 0, [b"c"])
    walked: list[object] = []
    original = RowSegment.walk_to_end

    def walk(segment: RowSegment, start: tuple[int, int] | None) -> object:
        walked.append(start)
        return original(segment, start)

    monkeypatch.setattr(RowSegment, "walk_to_end", walk)
    records = [bytes([i % 251]) * (i % 60) for i in range(700)]
    for first in range(0, 700, 50):
        store.append(TOPIC, 0, records[first : first + 50])
    assert read(store).values == [b"a", b"b", b"c", *records]
    assert walked == []
    assert read(kind.open(tmp_path)) == read(store)
    assert errors(store) == []


def test_files_that_an_append_filled_are_known_as_if_they_had_been_walked(tmp_path: Path) -> None:
    records = [bytes([i % 251]) * (i % 60) for i in range(700)]
    store = make(tmp_path, "cursus", segment_bytes=4096)
    for first in range(0, 700, 50):
        store.append(TOPIC, 0, records[first : first + 50])
    assert read(store).values == records
    index = tmp_path / ".cursus-spark/index" / f"{TOPIC}-0.rows"
    index.unlink(missing_ok=True)
    fresh = Store.open(tmp_path)
    assert read(fresh).values == records
    walked = unpack(index.read_bytes())
    index.unlink()
    writer = store._engine._logs.segments(TOPIC, 0)._summaries  # type: ignore[attr-defined]
    noted = {name: writer.known(name) for name in walked}
    assert pack(noted) == pack(walked)


def test_what_another_program_does_to_files_between_appends_is_seen(tmp_path: Path) -> None:
    store = make(tmp_path, "cursus", segment_bytes=4096)
    store.append(TOPIC, 0, [b"x" * 2000] * 4)
    first = tmp_path / TOPIC / "partition_0_segment_0.log"
    first.write_bytes(first.read_bytes() + b"\0\0\0\1y")
    last = tmp_path / TOPIC / "partition_0_segment_1.log"
    last.write_bytes(last.read_bytes() + b"\0\0\0\1z")
    (tmp_path / TOPIC / "partition_0_segment_2.log").write_bytes(b"")
    assert store.append(TOPIC, 0, [b"end"]) == OffsetRange(6, 7)
    assert read(store).values[-4:] == [b"x" * 2000] * 2 + [b"z", b"end"]
    assert read(Store.open(tmp_path)) == read(store)
