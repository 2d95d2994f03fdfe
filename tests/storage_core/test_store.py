"""The store as its users see it: opening, appending, syncing, closing."""

from __future__ import annotations

import datetime
import errno
import gc
import os
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from storage_core import OffsetRange, Store, StoreConfig
from storage_core.errors import (
    InvalidRecordError,
    LayoutMismatchError,
    LayoutNotFoundError,
    NotWritableError,
    StorageError,
    StoreClosedError,
    UnsafeFileError,
    UnsafeFilesystemError,
)
from tests.faults import faulty
from tests.processes import wait_until
from tests.stores import (
    T0,
    TOPIC,
    errors,
    lock_file,
    make_store,
    offsets,
    on,
    reopen,
    rows,
    segment,
    values,
)


def test_missing_and_empty_directories_need_create(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(LayoutNotFoundError, match="create=True"):
            Store.open(path)
    assert not (tmp_path / "missing").exists()
    assert Store.open(tmp_path / "a/b/c", create=True).topics() == []
    assert Store.open(tmp_path / "a/b/c").layout == "native"


def test_directory_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.odt").touch()
    with pytest.raises(LayoutNotFoundError, match=r"thesis\.odt"):
        Store.open(tmp_path, create=True)
    assert os.listdir(tmp_path) == ["thesis.odt"]


def test_unknown_layout_is_refused(tmp_path: Path) -> None:
    with pytest.raises((LayoutNotFoundError, LayoutMismatchError), match="parquet"):
        Store.open(tmp_path, layout="parquet", create=True)


def test_opening_again_with_create_keeps_the_store(tmp_path: Path) -> None:
    with make_store(tmp_path) as store:
        store.append(TOPIC, 0, [b"a"])
    identity = (tmp_path / "meta/broker.id").read_bytes()
    assert values(Store.open(tmp_path, create=True)) == [b"a"]
    assert (tmp_path / "meta/broker.id").read_bytes() == identity


def test_reading_changes_no_file(tmp_path: Path) -> None:
    with make_store(tmp_path) as store:
        store.append(TOPIC, 0, [b"a", b"b"])
        store.roll(TOPIC, 0)
        store.append(TOPIC, 0, [b"c"])
    vfs = faulty(tmp_path)
    store = on(vfs)
    assert values(store) == [b"a", b"b", b"c"]
    store.offset_for_timestamp(TOPIC, 0, 0)
    store.check()
    store.topics()
    store.segments(TOPIC, 0)
    store.close()
    assert vfs.changes == 0


def test_append_returns_the_range_and_is_visible_everywhere(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    other = reopen(tmp_path)
    assert store.append(TOPIC, 0, [b"a", b"b"]) == OffsetRange(0, 2)
    assert other.append(TOPIC, 0, [b"c"]) == OffsetRange(2, 3)
    assert store.append(TOPIC, 0, [b"d"]) == OffsetRange(3, 4)
    for each in (store, other):
        assert each.offsets(TOPIC, 0) == OffsetRange(0, 4)
        assert values(each) == [b"a", b"b", b"c", b"d"]
    assert errors(store) == []


def test_append_of_no_records_returns_an_empty_range(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    empties: list[Any] = [
        [],
        pa.array([], pa.binary()),
        pa.chunked_array([], type=pa.binary()),
        (),
    ]
    for empty in empties:
        assert store.append(TOPIC, 0, empty) == OffsetRange(0, 0)
    none = pa.chunked_array([], type=pa.timestamp("ms"))
    assert store.append(TOPIC, 0, [], keys=[], timestamps=none, headers=[]) == OffsetRange(0, 0)
    assert not segment(tmp_path).exists()
    store.append(TOPIC, 0, [b"a"])
    assert store.append(TOPIC, 0, []) == OffsetRange(1, 1)
    assert values(store) == [b"a"]


def test_all_columns_come_back(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.append(
        TOPIC,
        0,
        [b"v", None, b""],
        keys=[None, b"k", b""],
        timestamps=[T0, T0 + 1, T0 - 1],
        headers=[None, {"h": b"1", "i": None}, [("h", b"1"), ("h", b"2")]],
    )
    moment = datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=datetime.UTC)
    us = datetime.timedelta(microseconds=1)
    assert rows(store.read(TOPIC, 0)) == [
        {"offset": 0, "timestamp": moment, "key": None, "value": b"v", "headers": None},
        {
            "offset": 1,
            "timestamp": moment + us,
            "key": b"k",
            "value": None,
            "headers": [{"key": "h", "value": b"1"}, {"key": "i", "value": None}],
        },
        {
            "offset": 2,
            "timestamp": moment - us,
            "key": b"",
            "value": b"",
            "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": b"2"}],
        },
    ]


WIDE = ["", "a", "ü", "漢字", "👩‍👩‍👧‍👦", "\0", "\ud7ff", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢" * 50]


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_wide_text_comes_back_as_its_bytes(tmp_path: Path, compression: str) -> None:
    store = make_store(tmp_path, compression=compression)
    store.append(TOPIC, 0, WIDE, keys=WIDE, headers=[{text: text.encode()} for text in WIDE])
    expected = [text.encode() for text in WIDE]
    read = rows(store.read(TOPIC, 0))
    assert [row["value"] for row in read] == expected
    assert [row["key"] for row in read] == expected
    assert [row["headers"][0]["key"] for row in read] == WIDE


BYTES = [b"a", None, b"", b"ccc" * 50]
KINDS: list[pa.DataType] = [
    pa.binary(),
    pa.string(),
    pa.large_binary(),
    pa.large_string(),
    pa.binary_view(),
    pa.string_view(),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("shape", ["array", "chunked", "sliced", "one chunk", "dictionary"])
def test_every_arrow_input_is_accepted(tmp_path: Path, kind: pa.DataType, shape: str) -> None:
    array = pa.array(BYTES, pa.binary()).cast(kind)
    given: Any = array
    if shape == "chunked":
        given = pa.chunked_array([array.slice(0, 1), array.slice(1, 0), array.slice(1)])
    elif shape == "one chunk":
        given = pa.chunked_array([array])
    elif shape == "sliced":
        given = pa.concat_arrays([array, array, array]).slice(4, 4)
    elif shape == "dictionary":
        if kind in (pa.binary_view(), pa.string_view()):
            pytest.skip("Arrow has no dictionary of views")
        given = array.dictionary_encode()
    store = make_store(tmp_path)
    store.append(TOPIC, 0, given, keys=given)
    read = rows(store.read(TOPIC, 0))
    assert [row["value"] for row in read] == BYTES
    assert [row["key"] for row in read] == BYTES


def test_sliced_headers_and_timestamps_are_accepted(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[("a", b"1")], None, [], [("b", b"2"), ("c", None)]], kind)
    stamps = pa.array([T0, T0 + 1, T0 + 2, T0 + 3], pa.int64())
    for low in range(4):
        store.append(
            TOPIC, 0, [b"x"] * (4 - low), timestamps=stamps.slice(low), headers=headers.slice(low)
        )
    expected = [row for low in range(4) for row in headers.slice(low).to_pylist()]
    read = rows(store.read(TOPIC, 0))
    assert [row["headers"] for row in read] == expected
    assert [int(row["timestamp"].timestamp() * 1e6) for row in read] == [
        T0 + number for low in range(4) for number in range(low, 4)
    ]


def test_fixed_size_and_null_arrays_are_accepted(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.append(TOPIC, 0, pa.array([b"ab", b"cd"], pa.binary(2)), keys=pa.nulls(2))
    assert values(store) == [b"ab", b"cd"]


NAIVE = datetime.datetime(2023, 11, 14, 22, 13, 20, 5)
AWARE = NAIVE.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=2)))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([T0], T0),
        ([-5], -5),
        ([NAIVE], T0 + 5),
        ([AWARE], T0 + 5 - 7_200_000_000),
        (pa.array([T0]), T0),
        (pa.array([T0], pa.uint64()), T0),
        (pa.array([NAIVE], pa.timestamp("us")), T0 + 5),
        (pa.array([T0 + 5], pa.timestamp("us", tz="Europe/Berlin")), T0 + 5),
        (pa.array([T0 * 1000 + 5999], pa.timestamp("ns", tz="UTC")), T0 + 5),
        (pa.array([T0 // 1000], pa.timestamp("ms")), T0),
        (pa.array([T0 // 10**6], pa.timestamp("s")), T0),
        (pa.chunked_array([[T0]], pa.timestamp("us")), T0),
    ],
)
def test_every_timestamp_input_means_the_same_moment(
    tmp_path: Path, given: Any, expected: int
) -> None:
    store = make_store(tmp_path)
    store.append(TOPIC, 0, [b"a"], timestamps=given)
    (batch,) = store.read(TOPIC, 0, columns=("timestamp", "timestamp_type"))
    assert batch.column(0).cast(pa.int64()).to_pylist() == [expected]
    assert batch.column(1).to_pylist() == [0]
    assert store.offset_for_timestamp(TOPIC, 0, expected) == 0
    assert store.offset_for_timestamp(TOPIC, 0, expected + 1) is None


def test_records_without_a_timestamp_get_the_append_time(tmp_path: Path) -> None:
    make_store(tmp_path).close()
    vfs = faulty(tmp_path)
    vfs.clock_us = T0
    store = on(vfs)
    store.append(TOPIC, 0, [b"a"])
    store.append(TOPIC, 0, [b"b", b"c"], timestamps=[None, T0 - 5])
    (batch,) = store.read(TOPIC, 0, columns=("timestamp", "timestamp_type"))
    assert batch.column(0).cast(pa.int64()).to_pylist() == [T0, T0, T0 - 5]
    assert batch.column(1).to_pylist() == [1, 0, 0]


@pytest.mark.row(34)
def test_append_time_never_goes_back_although_the_clock_does(tmp_path: Path) -> None:
    make_store(tmp_path).close()

    def append_at(clock: int, boot: bytes | None = None) -> None:
        vfs = faulty(tmp_path)
        vfs.clock_us, vfs.boot = clock, boot
        with on(vfs) as store:
            store.append(TOPIC, 0, [b"a"])

    append_at(T0)
    append_at(T0 - 10**9)
    append_at(0)
    append_at(T0 - 1, boot=b"another boot id.")
    append_at(T0 + 1)
    stamps = [
        int(row["timestamp"].timestamp() * 1e6) for row in rows(reopen(tmp_path).read(TOPIC, 0))
    ]
    assert stamps == [T0, T0, T0, T0, T0 + 1]
    assert offsets(reopen(tmp_path)) == [0, 1, 2, 3, 4]


BAD: list[dict[str, Any]] = [
    {"values": b"one"},
    {"values": "one"},
    {"values": 5},
    {"values": None},
    {"values": [5]},
    {"values": [b"a", object()]},
    {"values": pa.array([1, 2])},
    {"values": pa.array([[b"a"]])},
    {"values": [b"a"], "keys": [b"a", b"b"]},
    {"values": [b"a"], "keys": []},
    {"values": [b"a"], "keys": b"k"},
    {"values": [b"a"], "timestamps": [T0, T0]},
    {"values": [b"a"], "timestamps": ["2023"]},
    {"values": [b"a"], "timestamps": [1.5]},
    {"values": [b"a"], "timestamps": [True]},
    {"values": [b"a"], "timestamps": [2**70]},
    {"values": [b"a"], "timestamps": [2**62]},
    {"values": [b"a"], "timestamps": [-(2**62)]},
    {"values": [b"a"], "timestamps": T0},
    {"values": [b"a"], "timestamps": "now"},
    {"values": [b"a"], "timestamps": pa.array([1.5])},
    {"values": [b"a"], "timestamps": pa.array([2**63], pa.uint64())},
    {"values": [b"a"], "timestamps": pa.array([2**45], pa.timestamp("s"))},
    {"values": [b"a"], "timestamps": pa.array([2**60], pa.timestamp("ms"))},
    {"values": [b"a"], "timestamps": pa.array(["2023"])},
    {"values": [b"a"], "headers": [None, None]},
    {"values": [b"a"], "headers": [{None: b"x"}]},
    {"values": [b"a"], "headers": [[None]]},
    {"values": [b"a"], "headers": [{"h": 5}]},
    {"values": [b"a"], "headers": [5]},
    {"values": [b"a"], "headers": 5},
    {"values": [b"a"], "headers": ["h"]},
    {"values": [b"a"], "headers": pa.array([1])},
]


@pytest.mark.parametrize("arguments", BAD, ids=range(len(BAD)))
def test_bad_records_are_refused_and_nothing_is_written(
    tmp_path: Path, arguments: dict[str, Any]
) -> None:
    store = make_store(tmp_path)
    with pytest.raises(InvalidRecordError):
        store.append(TOPIC, 0, **arguments)
    assert store.offsets(TOPIC, 0) == OffsetRange(0, 0)


def test_batch_policy_syncs_before_it_returns(tmp_path: Path) -> None:
    make_store(tmp_path).close()
    vfs = faulty(tmp_path)
    store = on(vfs)
    store.append(TOPIC, 0, [b"a"])
    steps = [
        call.kind
        for call in vfs.calls
        if call.kind in ("fsync", "rename", "pwritev") and "lock" not in call.path
    ]
    assert steps[-4:] == ["pwritev", "fsync", "pwritev", "rename"]


def test_none_policy_never_syncs_a_log(tmp_path: Path) -> None:
    make_store(tmp_path, fsync="none", segment_bytes=4096).close()
    vfs = faulty(tmp_path)
    with on(vfs) as store:
        for _ in range(5):
            store.append(TOPIC, 0, [b"a" * 2000])
        assert len(values(store)) == 5
    assert not [call for call in vfs.calls if call.kind == "fsync" and call.path.endswith(".log")]
    assert errors(reopen(tmp_path)) == []


def test_interval_policy_shows_records_only_after_the_sync(tmp_path: Path) -> None:
    store = make_store(tmp_path, fsync="interval", fsync_interval_ms=3_600_000)
    assert store.append(TOPIC, 0, [b"a"]) == OffsetRange(0, 1)
    assert store.append(TOPIC, 0, [b"b"]) == OffsetRange(1, 2)
    other = reopen(tmp_path)
    assert values(other) == [b"a"]
    store.flush()
    assert values(other) == [b"a", b"b"]
    store.append(TOPIC, 0, [b"c"])
    assert values(other) == [b"a", b"b"]
    store.close()
    assert values(other) == [b"a", b"b", b"c"]


def test_interval_policy_shows_the_first_records_on_a_machine_that_has_just_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_store(tmp_path, fsync="interval", fsync_interval_ms=3_600_000).close()
    vfs = faulty(tmp_path)
    monkeypatch.setattr(vfs, "monotonic", lambda: 1.0)
    on(vfs).append(TOPIC, 0, [b"a"])
    assert values(reopen(tmp_path)) == [b"a"]


def test_interval_policy_syncs_by_itself(tmp_path: Path) -> None:
    make_store(tmp_path, fsync="interval", fsync_interval_ms=20).close()
    before = threading.active_count()
    with reopen(tmp_path) as store:
        for number in range(3):
            store.append(TOPIC, 0, [b"%d" % number])
        wait_until(lambda: len(values(store)) == 3)
    assert threading.active_count() == before


def test_interval_policy_hands_unsynced_records_to_the_next_writer(tmp_path: Path) -> None:
    store = make_store(tmp_path, fsync="interval", fsync_interval_ms=3_600_000)
    store.append(TOPIC, 0, [b"a"])
    store.append(TOPIC, 0, [b"b"])
    other = reopen(tmp_path)
    assert other.append(TOPIC, 0, [b"c"]).start == 2
    assert values(other) == [b"a", b"b", b"c"]
    store.close()
    assert values(other) == [b"a", b"b", b"c"]


def test_interval_policy_rolls_with_everything_synced(tmp_path: Path) -> None:
    store = make_store(tmp_path, fsync="interval", fsync_interval_ms=3_600_000)
    store.append(TOPIC, 0, [b"a"])
    store.append(TOPIC, 0, [b"b"])
    store.roll(TOPIC, 0)
    assert values(store) == [b"a", b"b"]


def test_failed_background_sync_of_one_partition_does_not_stop_the_others(tmp_path: Path) -> None:
    make_store(tmp_path, 2, fsync="interval", fsync_interval_ms=3_600_000).close()
    vfs = faulty(tmp_path)
    store = on(vfs)
    for partition in (0, 1):
        store.append(TOPIC, partition, [b"a"])
        store.append(TOPIC, partition, [b"b"])
    vfs.fail("fsync", errno.EIO, path="t/0/segments")
    with pytest.raises(StorageError, match="t-0"):
        store.flush()
    assert values(store, 0) == [b"a"]
    assert values(store, 1) == [b"a", b"b"]


def test_close_lets_go_of_everything_although_a_flush_fails(tmp_path: Path) -> None:
    make_store(tmp_path, fsync="interval", fsync_interval_ms=3_600_000).close()
    vfs = faulty(tmp_path)
    # Maps of earlier tests' stores hold descriptors until they are collected.
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    store = on(vfs)
    store.append(TOPIC, 0, [b"a"])
    store.append(TOPIC, 0, [b"b"])
    vfs.fail("fsync", errno.EIO, path=".log")
    with pytest.raises(StorageError):
        store.close()
    store.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert values(reopen(tmp_path)) == [b"a"]


def test_closed_store_still_reads_but_refuses_to_write(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.append(TOPIC, 0, [b"a"])
    store.close()
    store.close()
    assert values(store) == [b"a"]
    calls: list[Callable[[], object]] = [
        lambda: store.append(TOPIC, 0, [b"b"]),
        lambda: store.create_topic("u"),
        lambda: store.roll(TOPIC, 0),
        lambda: store.retain(),
    ]
    for call in calls:
        with pytest.raises(StoreClosedError):
            call()


def test_pickled_store_carries_where_and_how_but_no_handles(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.append(TOPIC, 0, [b"a"])
    copy = pickle.loads(pickle.dumps(store))
    assert copy.config == store.config
    assert copy.append(TOPIC, 0, [b"b"]).start == 1
    assert values(store) == [b"a", b"b"]


@pytest.mark.row(28)
def test_store_that_we_may_not_write_reads_and_says_so(tmp_path: Path) -> None:
    make_store(tmp_path).append(TOPIC, 0, [b"a"])
    vfs = faulty(tmp_path)
    vfs.may_write = False
    store = on(vfs)
    assert values(store) == [b"a"]
    with pytest.raises(NotWritableError):
        store.append(TOPIC, 0, [b"b"])
    with pytest.raises(NotWritableError):
        store.create_topic("u")
    assert vfs.changes == 0


@pytest.mark.row(33)
@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "fuse"])
def test_file_systems_whose_locks_may_not_hold_are_refused_for_writing(
    tmp_path: Path, kind: str
) -> None:
    make_store(tmp_path).append(TOPIC, 0, [b"a"])
    vfs = faulty(tmp_path)
    vfs.kind_of_filesystem = kind
    store = on(vfs)
    assert values(store) == [b"a"]
    with pytest.raises(UnsafeFilesystemError, match="allow_unsafe_fs"):
        store.append(TOPIC, 0, [b"b"])
    allowed = Store(vfs, StoreConfig(allow_unsafe_fs=True))
    assert allowed.append(TOPIC, 0, [b"b"]).start == 1


@pytest.mark.row(33)
@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "overlay", "tmpfs", ""])
def test_local_file_systems_are_fine(tmp_path: Path, kind: str) -> None:
    make_store(tmp_path).close()
    vfs = faulty(tmp_path)
    vfs.kind_of_filesystem = kind
    assert on(vfs).append(TOPIC, 0, [b"a"]).start == 0


@pytest.mark.row(27)
@pytest.mark.parametrize("what", ["link", "fifo", "directory"])
@pytest.mark.parametrize(
    "where",
    [
        "topics/t/0/segments/00000000000000000000.log",
        "topics/t/0/lock",
        "topics/t/watermark",
        "topics/t/topic.json",
        "meta/broker.id",
    ],
)
def test_planted_files_are_refused_without_hanging(tmp_path: Path, where: str, what: str) -> None:
    root, outside = tmp_path / "store", tmp_path / "outside"
    make_store(root).append(TOPIC, 0, [b"a"])
    file = root / where
    if what == "link":
        file.rename(outside)
        file.symlink_to(outside)
    else:
        file.unlink()
        os.mkfifo(file) if what == "fifo" else file.mkdir()
    before = outside.read_bytes() if what == "link" else b""
    store = reopen(root)
    with pytest.raises(UnsafeFileError):
        store.append(TOPIC, 0, [b"b"])
    if what == "link":
        assert outside.read_bytes() == before


@pytest.mark.row(27)
def test_link_in_the_place_of_a_partition_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_store(root).append(TOPIC, 0, [b"a"])
    (root / "topics/t/0").rename(tmp_path / "moved")
    (root / "topics/t/0").symlink_to(tmp_path / "moved")
    store = reopen(root)
    calls: list[Callable[[], object]] = [
        lambda: store.append(TOPIC, 0, [b"b"]),
        lambda: values(store),
    ]
    for call in calls:
        with pytest.raises(UnsafeFileError):
            call()


def test_missing_lock_file_is_a_typed_error(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    lock_file(tmp_path).unlink()
    with pytest.raises(StorageError, match="lock"):
        store.append(TOPIC, 0, [b"a"])


def test_check_of_a_sound_store_finds_nothing(tmp_path: Path) -> None:
    store = make_store(tmp_path, 2)
    assert store.check() == []
    for partition in (0, 1):
        store.append(TOPIC, partition, [b"a"])
        store.roll(TOPIC, partition)
        store.append(TOPIC, partition, [b"b"])
    assert store.check() == []
