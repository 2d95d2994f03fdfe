"""``check`` compares the index of aborted transactions with the markers; reads never open it."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from storage_core import Store
from storage_core.types import Problem
from tests.support.brokers.kafka_directories import compare, copied
from tests.support.brokers.kafka_encoder import (
    Batch,
    Record,
    marker,
    write_checkpoint,
    write_partition,
)

ENTRY = struct.Struct(">hqqqq")
FIRST, LAST, STABLE = 10, 18, 26
Entry = tuple[int, int, int]


def entries(*rows: Entry) -> bytes:
    """Producer, first offset, offset of the marker."""
    return b"".join(ENTRY.pack(0, *row, row[2]) for row in rows)


def problems(root: Path) -> list[Problem]:
    with Store.open(root) as store:
        found = store.check()
    assert all((it.severity, it.code) == ("warning", "INDEX_STALE") for it in found)
    return found


@pytest.mark.row(50)
def test_every_field_of_an_index_is_compared_and_none_changes_a_read(tmp_path: Path) -> None:
    copy = copied("transactions", tmp_path)
    file = copy / "payments-0" / "00000000000000000019.txnindex"
    sound = file.read_bytes()
    for at in range(0, len(sound), 3):
        data = bytearray(sound)
        data[at] ^= 1
        file.write_bytes(data)
        found = problems(copy)
        if at >= STABLE:
            assert not found  # the last stable offset at that time, which nobody reads
            continue
        (problem,) = found
        assert (problem.topic, problem.partition) == ("payments", 0)
        assert problem.path == "payments-0/00000000000000000019.txnindex"
        assert problem.path in problem.message
        is_start = FIRST <= at < LAST
        assert ("the log has another first offset" in problem.message) is is_start
        assert ("it lacks offsets 22 to 24 of producer 0" in problem.message) is not is_start
    for size in (0, 1, 33):
        file.write_bytes(sound[:size])
        (problem,) = problems(copy)
        assert "it lacks offsets 22 to 24 of producer 0" in problem.message
    file.write_bytes(sound + sound[:5])
    (problem,) = problems(copy)
    assert "bytes after its last sound entry, number 1" in problem.message
    compare(copy, "read_committed")


def test_what_compaction_removed_is_missed_by_nobody(tmp_path: Path) -> None:
    copy = copied("compaction", tmp_path)
    file = copy / "compacted-transactions-0" / "00000000000000000004.txnindex"
    sound = file.read_bytes()
    file.write_bytes(b"")
    assert problems(copy) == []
    file.write_bytes(sound + entries((7, 5, 8)))
    (problem,) = problems(copy)
    assert "no marker aborts offsets 5 to 8 of producer 7" in problem.message


def test_the_active_index_may_lag_the_log_or_be_ahead_of_it(tmp_path: Path) -> None:
    """It is written after the log, and a power cut may take the end of the log alone."""
    ends = [Batch(0, [Record(b"x")], producer=4, transactional=True), marker(1, 4, commit=False)]
    (log,) = write_partition(tmp_path, "t", 0, [ends])
    write_checkpoint(tmp_path, {("t", 0): 2})
    for rows in ([], [(4, 0, 1)], [(4, 0, 1), (5, 2, 9)]):
        log.with_suffix(".txnindex").write_bytes(entries(*rows))
        assert problems(tmp_path) == []
    log.with_suffix(".txnindex").write_bytes(entries((4, 0, 1), (5, 0, 1)))
    (problem,) = problems(tmp_path)
    assert "no marker aborts offsets 0 to 1 of producer 5" in problem.message


def random_log(seed: int) -> tuple[list[list[Batch]], list[list[Entry]]]:
    """Segments of transactions of a few producers, and what the broker notes beside each."""
    rnd, opened = random.Random(seed), dict[int, int]()
    segments, listed, offset = [], [], 0
    for _ in range(4):
        batches: list[Batch] = []
        rows: list[Entry] = []
        for _ in range(rnd.randint(1, 12)):
            producer = rnd.randrange(3)
            if rnd.random() < 0.4:
                commits = rnd.random() < 0.4
                batches.append(marker(offset, producer, commit=commits))
                first = opened.pop(producer, None)
                if first is not None and not commits:
                    rows.append((producer, first, offset))
            else:
                records = [Record(b"x")] * rnd.randint(1, 3)
                batches.append(Batch(offset, records, producer=producer, transactional=True))
                opened.setdefault(producer, offset)
            offset = batches[-1].last + 1
        segments.append(batches)
        listed.append(rows)
    return segments, listed


@pytest.mark.parametrize("seed", range(12))
def test_what_a_broker_would_write_agrees_and_any_other_start_does_not(
    seed: int, tmp_path: Path
) -> None:
    segments, listed = random_log(seed)
    logs = write_partition(tmp_path, "t", 0, segments)
    write_checkpoint(tmp_path, {("t", 0): segments[-1][-1].last + 1})
    files = [log.with_suffix(".txnindex") for log in logs]
    for file, rows in zip(files, listed, strict=True):
        file.write_bytes(entries(*rows))
    assert problems(tmp_path) == []
    for file, rows in zip(files, listed, strict=True):
        for at, (producer, first, last) in enumerate(rows):
            file.write_bytes(entries(*rows[:at], (producer, first + 1, last), *rows[at + 1 :]))
            (problem,) = problems(tmp_path)
            assert f"offsets {first + 1} to {last} of producer {producer}" in problem.message
            file.write_bytes(entries(*rows[:at], *rows[at + 1 :]))
            due = 0 if file == files[-1] else 1
            assert len(problems(tmp_path)) == due
        file.write_bytes(entries(*rows))
