"""Every byte changed and every cut of a small directory: the same answer, or an error.

What has no checksum is named here: the text files, in which another number is another answer, and
the base offset beside a hole that compaction left.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_core import Store
from storage_core.errors import StorageError
from storage_core.types import IsolationLevel
from tests.support.brokers.kafka_directories import DATA
from tests.support.brokers.kafka_encoder import (
    Batch,
    Record,
    marker,
    time_index,
    write_checkpoint,
    write_partition,
)
from tests.support.brokers.kafka_oracle import compare_with_plain, with_right_checksum
from tests.support.stores import rows

LEVELS: tuple[IsolationLevel, ...] = ("read_committed", "read_uncommitted")
Row = tuple[object, ...]
END = 19


def small(root: Path) -> list[Path]:
    """Three segments with transactions, headers, codecs, and indexes that are used."""

    def data(base: int, producer: int) -> Batch:
        records = [Record(b"p%d" % producer, time=base + at) for at in range(2)]
        return Batch(base, records, producer=producer, transactional=True)

    plain = Batch(0, [Record(b"a", b"k", [("h", b"1"), ("n", None)], time=0), Record(None, time=1)])
    packed = Batch(9, [Record(b"v" * 40, time=9 + at) for at in range(3)], "snappy")
    segments = [
        [plain, data(2, 1), data(4, 2), marker(6, 1, commit=False, time=6)],
        [marker(7, 2, commit=True, time=7), Batch(8, [Record(b"", time=8)]), packed],
        [data(12, 1), Batch(14, [Record(b"x", time=14)], append_time=14)],
    ]
    segments[2] += [marker(15, 1, commit=True, time=15), data(16, 3), marker(18, 3, commit=True)]
    files = write_partition(root, "t", 0, segments)
    for file, batches in zip(files, segments, strict=True):
        second = len(batches[0].encode())
        entry = struct.pack(">Ii", batches[1].last - batches[0].base, second)
        file.with_suffix(".index").write_bytes(entry)
        file.with_suffix(".timeindex").write_bytes(time_index(batches, batches[0].base, 0))
    write_checkpoint(root, {("t", 0): END})
    return sorted((root / "t-0").iterdir())


def answers(root: Path, level: IsolationLevel) -> Iterator[tuple[str, object]]:
    """What a store says; an error ends what is said of one question."""
    with Store.open(root, isolation=level) as store:
        for start in (None, 5, 13):
            found: list[Row] = []
            try:
                for batch in store.read("t", 0, start=start):
                    found += [tuple(map(str, row.values())) for row in batch.to_pylist()]
            except StorageError:
                found.append(("error",))
            yield f"from {start}", found
        for time in (3, 9, 14, 40):
            try:
                yield f"at {time}", store.offset_for_timestamp("t", 0, time * 1000)
            except StorageError:
                yield f"at {time}", "error"


def require_same_or_error(found: dict[str, object], whole: dict[str, object], what: str) -> None:
    for question, answer in found.items():
        expected = whole[question]
        if isinstance(answer, list) and answer[-1:] == [("error",)]:
            assert isinstance(expected, list)
            assert answer[:-1] == expected[: len(answer) - 1], (what, question)
        elif answer != "error":
            assert answer == expected, (what, question)


def changes(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The bytes with one of them changed, in two ways, and cut everywhere."""
    for at in range(len(data)):
        for bit in (1 << at % 8, 0xFF):
            yield f"byte {at} ^ {bit:x}", data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
        yield f"cut at {at}", data[:at]


def check_changes(root: Path, share: float, seed: int) -> int:
    rnd, count = random.Random(seed), 0
    files = small(root)
    whole = {level: dict(answers(root, level)) for level in LEVELS}
    for file in files:
        data = file.read_bytes()
        for what, changed in changes(data):
            if rnd.random() >= share:
                continue
            file.write_bytes(changed)
            for level in LEVELS:
                found = dict(answers(root, level))
                require_same_or_error(found, whole[level], f"{file.name}: {what} at {level}")
            count += 1
        file.write_bytes(data)
    return count


def test_some_changes_of_a_directory_are_noticed(tmp_path: Path) -> None:
    assert check_changes(tmp_path, 0.012, seed=1) > 40


@pytest.mark.long
@pytest.mark.timeout(0)
def test_every_change_of_a_directory_is_noticed(tmp_path: Path) -> None:
    tried = check_changes(tmp_path, 1, seed=1)
    assert tried == 3 * sum(file.stat().st_size for file in (tmp_path / "t-0").iterdir())


@pytest.mark.parametrize("name", ["replication-offset-checkpoint", "log-start-offset-checkpoint"])
def test_a_changed_text_file_never_makes_a_wrong_record(tmp_path: Path, name: str) -> None:
    small(tmp_path)
    with Store.open(tmp_path, isolation="log_end") as store:
        every = {row["offset"]: row["value"] for row in rows(store.read("t", 0))}
    write_checkpoint(tmp_path, {("t", 0): END if "replication" in name else 3}, name)
    data = (tmp_path / name).read_bytes()
    for _, changed in changes(data):
        (tmp_path / name).write_bytes(changed)
        with Store.open(tmp_path, isolation="read_uncommitted") as store:
            try:
                for row in rows(store.read("t", 0)):
                    assert every[row["offset"]] == row["value"]
            except StorageError:
                continue


def golden_logs() -> list[Path]:
    found = [file for file in sorted(DATA.rglob("*.log")) if 0 < file.stat().st_size < 3000]
    return [file for file in found if not file.parent.name.startswith("__")]


def test_a_plain_reader_finds_the_same_in_changed_bytes() -> None:
    rnd, logs = random.Random(7), [file.read_bytes() for file in golden_logs()]
    for data in logs:
        compare_with_plain(data)
    for _ in range(400):
        mutable = bytearray(rnd.choice(logs))
        if rnd.random() < 0.7:  # one batch alone
            mutable = mutable[: struct.unpack_from(">i", mutable, 8)[0] + 12]
        for _ in range(rnd.choice([1, 2, 5])):
            mutable[rnd.randrange(len(mutable))] = rnd.choice([0, 1, 2, 0x7F, 0x80, 0xFF])
        changed = bytes(mutable)
        compare_with_plain(changed)
        if len(changed) > 61:
            compare_with_plain(with_right_checksum(changed))
