"""A hundred writers killed in the middle of their work, one after the other, on one store."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.support.processes import Processes
from tests.support.sizes import KILLS, SEED
from tests.support.stores import TOPIC, errors, make_store, reopen, rows

BATCH = 3


@pytest.mark.row(3)
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("fsync", "kills"), [("batch", KILLS), ("none", 20)], ids=["synced", "page cache only"]
)
def test_no_acknowledged_record_is_lost_and_none_is_invented(
    tmp_path: Path, fsync: str, kills: int
) -> None:
    chance = random.Random(f"{SEED} {fsync}")
    make_store(tmp_path, fsync=fsync, segment_bytes=4096, frame_records=2).close()
    acked: dict[int, bytes] = {}
    with Processes() as processes:
        for run in range(kills):
            child = processes.start("append_forever", tmp_path, name=f"run{run}", batch=BATCH)
            said = [child.line()]
            time.sleep(chance.random() * 0.03)
            said += child.kill()
            assert said[0], "the writer ended by itself"
            for line in said:
                start, end, number = (int(word) for word in line.split())
                assert end - start == BATCH
                acked |= dict.fromkeys(range(start, end), b"run%d-%d" % (run, number))
    store = reopen(tmp_path)
    store.append(TOPIC, 0, [b"last"])
    *read, last = [row["value"] for row in rows(store.read(TOPIC, 0))]
    assert last == b"last"
    for offset, value in acked.items():
        assert read[offset] == value, offset
    assert_dense(store.offsets(TOPIC, 0).end, len(read) + 1)
    assert_nothing_invented(read, acked)
    assert errors(store) == []
    assert len(acked) >= kills * BATCH


def assert_dense(end: int, count: int) -> None:
    assert end == count


def assert_nothing_invented(read: list[bytes], acked: dict[int, bytes]) -> None:
    """What was not acknowledged is at most the first records of the append a kill interrupted."""
    extra = [value for offset, value in enumerate(read) if offset not in acked]
    runs = [value.partition(b"-")[0] for value in extra]
    for run in set(runs):
        assert runs.count(run) <= BATCH
        assert len({value for value in extra if value.startswith(run + b"-")}) == 1
    last = {value.partition(b"-")[0]: int(value.partition(b"-")[2]) for value in acked.values()}
    for value in set(extra):
        run, _, number = value.partition(b"-")
        assert int(number) == last[run] + 1
