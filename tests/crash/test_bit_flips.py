"""Every bit of every file of a store, turned over one at a time: found, or without effect."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from storage_core import Store, StoreConfig
from storage_core.errors import DamagedLogError
from storage_core.segments.deletion_markers import pack_marker
from storage_core.vfs import PosixVfs
from tests.crash.breakers.wrong_bytes import slot_bytes, unfinished_bytes, wrong_bytes
from tests.crash.breakers.wrong_columns import HEAD, written_with_wrong_bits, wrong_bits
from tests.crash.explorer.exploration import quickly
from tests.fuzz.checks import read_everything, written
from tests.fuzz.trees import files_of, loaded
from tests.support.faulty_vfs import faulty
from tests.support.sizes import LONG, SEED
from tests.support.stores import (
    T0,
    TOPIC,
    flip,
    flips,
    lock_file,
    make_store,
    offsets,
    on,
    refused,
    reopen,
    segment,
    values,
)

COUNT = 4
Answers = list[list[int] | int | None]


@contextmanager
def restored(file: Path) -> Iterator[bytes]:
    """Let a test overwrite a file, and put its bytes back afterwards."""
    data, mode = file.read_bytes(), file.stat().st_mode
    file.chmod(0o644)
    yield data
    file.write_bytes(data)
    file.chmod(mode)


def two_segments(path: Path) -> None:
    """Offsets 0, 1 in a sealed segment and 2, 3 in the open one, an entry for each frame."""
    with make_store(path, index_interval_bytes=0) as store:
        for number in range(COUNT):
            store.append(TOPIC, 0, [b"%d" % number], timestamps=[T0 + 10 * number])
            if number == 1:
                store.roll(TOPIC, 0)


def answers(path: Path) -> Answers:
    """What a fresh store says to every question about the log."""
    store = Store(PosixVfs(path), StoreConfig())
    read: Answers = [offsets(store, start=start) for start in range(COUNT)]
    return [
        *read,
        *(
            store.offset_for_timestamp(TOPIC, 0, T0 + 10 * number - 5)
            for number in range(COUNT + 1)
        ),
    ]


@pytest.mark.row(16, 17)
@pytest.mark.parametrize(("base", "suffix"), [(0, ".idx"), (0, ".timeidx"), (2, ".idx")])
def test_no_bit_of_an_index_changes_an_answer(tmp_path: Path, base: int, suffix: str) -> None:
    two_segments(tmp_path)
    expected = answers(tmp_path)
    index = segment(tmp_path, base, suffix)
    with restored(index) as data:
        assert len(data) >= 32
        for bit, flipped in flips(data):
            index.write_bytes(flipped)
            assert answers(tmp_path) == expected, bit


def test_no_bit_of_the_last_sealed_index_changes_an_answer(tmp_path: Path) -> None:
    two_segments(tmp_path)
    reopen(tmp_path).roll(TOPIC, 0)
    expected = answers(tmp_path)
    index = segment(tmp_path, 2, ".idx")
    with restored(index) as data:
        for bit, flipped in flips(data):
            index.write_bytes(flipped)
            assert answers(tmp_path) == expected, bit


@pytest.mark.row(16)
@pytest.mark.parametrize("base", [0, 2])
def test_every_bit_of_a_log_is_detected_and_no_wrong_record_is_returned(
    tmp_path: Path, base: int
) -> None:
    """The second frame of two, in a closed and in the open segment."""
    two_segments(tmp_path)
    log = segment(tmp_path, base)
    log.chmod(0o644)
    frame = log.stat().st_size // 2
    before = [b"%d" % number for number in range(base + 1)]
    with log.open("r+b", buffering=0) as file:
        for at in range(frame, 2 * frame):
            byte = os.pread(file.fileno(), 1, at)[0]
            for bit in range(8):
                os.pwrite(file.fileno(), bytes([byte ^ 1 << bit]), at)
                batches = Store(PosixVfs(tmp_path), StoreConfig()).read(TOPIC, 0)
                assert next(batches).column("value").to_pylist() == before, (at, bit)
                assert refused(DamagedLogError, next, batches), (at, bit)
            os.pwrite(file.fileno(), bytes([byte]), at)
    assert len(values(reopen(tmp_path))) == COUNT


@pytest.mark.row(16)
def test_no_byte_of_the_state_word_misplaces_an_append(tmp_path: Path) -> None:
    """That every bit is detected is proven beside the codec; here one of each byte reaches it."""
    two_segments(tmp_path)
    lock, log = lock_file(tmp_path), segment(tmp_path, 2)
    before = log.read_bytes()
    mark = (tmp_path / "topics/t/watermark").read_bytes()
    with restored(lock) as data:
        for bit in range(0, len(data) * 8, 9):
            lock.write_bytes(flip(data, bit % (len(data) * 8)))
            vfs = faulty(tmp_path)
            vfs.real_syncs = False
            assert on(vfs).append(TOPIC, 0, [b"6"]).start == COUNT, bit
            log.write_bytes(before)
            (tmp_path / "topics/t/watermark").write_bytes(mark)


@pytest.mark.row(16)
def test_no_bit_of_the_watermark_shows_readers_a_wrong_end(tmp_path: Path) -> None:
    two_segments(tmp_path)
    file = tmp_path / "topics/t/watermark"
    with restored(file) as data:
        for bit in (8 * at + bit for at in slot_bytes(data) for bit in range(8)):
            file.write_bytes(flip(data, bit))
            assert Store(PosixVfs(tmp_path), StoreConfig()).offsets(TOPIC, 0).end == COUNT, bit


@pytest.mark.row(16, 21)
def test_no_bit_of_a_deletion_marker_brings_its_segment_back(tmp_path: Path) -> None:
    two_segments(tmp_path)
    marker = segment(tmp_path, 0, ".tomb")
    for bit, flipped in flips(pack_marker(2)):
        marker.write_bytes(flipped)
        assert Store(PosixVfs(tmp_path), StoreConfig()).offsets(TOPIC, 0).start == 2, bit


@pytest.mark.row(16)
def test_no_wrong_byte_of_any_file_gives_a_wrong_answer_or_costs_a_durable_byte(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with quickly(SEED):
        count = wrong_bytes(SEED)
    with capsys.disabled():
        print(f"\n[wrong bytes] seed {SEED}, {count} bytes")
    assert count > 4000


@pytest.mark.row(16, 19, 21)
@pytest.mark.parametrize(
    ("kind", "step", "least"),
    [
        (".tomb", 1, {"finished": 160}),
        (".json", 5, {"finished": 100, "refused": 300}),
        (".frames", 11, {"finished": 100, "refused": 100}),
    ],
)
def test_no_wrong_byte_of_what_a_crashed_process_left_shows_a_part_or_a_wrong_record(
    kind: str, step: int, least: dict[str, int]
) -> None:
    """A merge is ended or not, a commit happens whole or its partitions refuse writers."""
    with quickly(SEED):
        outcomes = unfinished_bytes(Random(SEED), (kind,), step)
    assert all(outcomes[how] >= count for how, count in least.items()), outcomes


@pytest.mark.row(16)
@pytest.mark.parametrize(
    ("kind", "step"),
    [(HEAD, 5), (".log", 45), ("watermark", 3), ("published.json", 9)]
    + [(f"schemas/0000000{version}.json", 27) for version in (1, 2, 3)],
)
def test_no_bit_of_a_typed_topic_gives_a_wrong_row_or_column(kind: str, step: int) -> None:
    with quickly(SEED):
        outcomes = wrong_bits(kind, 1 if LONG else step)
    # The copy and the high watermarks can be restored; all else is the only one.
    assert set(outcomes) == {"no effect" if kind in ("watermark", "published.json") else "noticed"}
    assert outcomes.total() > 80


@pytest.mark.row(16)
@pytest.mark.parametrize(
    ("kind", "goes_on"),
    [("00000003.json", False), ("published.json", True), ("watermark", True)],
)
def test_no_bit_of_a_typed_topic_misleads_a_writer_of_columns(kind: str, goes_on: bool) -> None:
    with quickly(SEED):
        outcomes = written_with_wrong_bits(kind, 1 if LONG else 31)
    assert bool(outcomes["written"]) is goes_on


@pytest.mark.row(16, 17)
def test_no_bit_of_the_table_of_a_brokers_rows_changes_an_answer() -> None:
    files = dict(files_of("cursus"))
    (path,) = (path for path in files if path.endswith(".rows"))
    for bit, flipped in flips(files[path]):
        store = Store(loaded(files | {path: flipped}), StoreConfig(), "cursus")
        assert read_everything(store, strict=True) == written("cursus"), bit


def corrupt_zero_pad(data: bytes) -> bytes:
    return data + bytes(32)


def corrupt_all_zero(data: bytes) -> bytes:
    return bytes(len(data))


def corrupt_drop_entries(data: bytes) -> bytes:
    return data[16:]


def corrupt_repeat_entries(data: bytes) -> bytes:
    return data[:16] * 3 + data[16:]


def corrupt_swap_entries(data: bytes) -> bytes:
    return data[16:32] + data[:16] + data[32:]


def corrupt_point_after(data: bytes) -> bytes:
    return data[:8] + (1 << 40).to_bytes(8, "big") + data[16:]


def corrupt_point_between(data: bytes) -> bytes:
    return data[:24] + (8).to_bytes(8, "big") + data[32:]


@pytest.mark.row(17)
@pytest.mark.parametrize(
    "corrupt",
    [
        corrupt_zero_pad,
        corrupt_all_zero,
        corrupt_drop_entries,
        corrupt_repeat_entries,
        corrupt_swap_entries,
        corrupt_point_after,
        corrupt_point_between,
    ],
)
@pytest.mark.parametrize(("base", "suffix"), [(0, ".idx"), (0, ".timeidx"), (2, ".idx")])
def test_index_corrupted_in_larger_ways_changes_no_answer_and_appends_go_on(
    tmp_path: Path, base: int, suffix: str, corrupt: Callable[[bytes], bytes]
) -> None:
    two_segments(tmp_path)
    expected = answers(tmp_path)
    index = segment(tmp_path, base, suffix)
    index.write_bytes(corrupt(index.read_bytes()))
    assert answers(tmp_path) == expected
    with reopen(tmp_path) as store:
        store.append(TOPIC, 0, [b"4"], timestamps=[T0 + 40])
        store.roll(TOPIC, 0)
        store.append(TOPIC, 0, [b"5"], timestamps=[T0 + 50])
    store = reopen(tmp_path)
    assert values(store) == [b"%d" % number for number in range(6)]
    for number in range(6):
        assert store.offset_for_timestamp(TOPIC, 0, T0 + 10 * number) == number
        assert values(store, start=number, max_records=1) == [b"%d" % number]
