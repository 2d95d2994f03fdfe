"""A process is killed while its handlers write: whatever it was promised is durable."""

from __future__ import annotations

import itertools
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_core import Store
from tests.support.processes import Processes
from tests.support.sizes import HANDLER_KILLS, SEED
from tests.support.stores import errors, make_store, values

THREADS = 3


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes() as started:
        yield started


@pytest.mark.timeout(0)
def test_no_resolved_future_is_lost(processes: Processes, tmp_path: Path) -> None:
    make_store(tmp_path, segment_bytes=65_536).close()
    chance = random.Random(SEED)
    acknowledged: dict[int, str] = {}
    ends = [0]
    for _ in range(HANDLER_KILLS):
        child = processes.start(
            "handle_forever", tmp_path, threads=THREADS, disk_flush_batch_size=50, linger_ms=2
        )
        said = [child.line() for _ in range(chance.randrange(1, 300))]
        time.sleep(chance.random() / 50)
        said += child.kill()
        for line in said:
            offset, name = line.split()
            assert int(offset) not in acknowledged
            acknowledged[int(offset)] = name
        with Store.open(tmp_path) as store:
            store.repair()
            found = [value.decode() for value in values(store)]
            assert errors(store) == []
        ends.append(len(found))
        assert {offset: found[offset] for offset in acknowledged} == acknowledged
    assert len(acknowledged) > HANDLER_KILLS
    for first, last in itertools.pairwise(ends):
        _check_order(found[first:last])


def _check_order(names: list[str]) -> None:
    """Each thread's records stand in its order, without a gap or a duplicate."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for name in names:
        thread, _, number = name.partition("-")
        numbers[thread].append(int(number))
    for sequence in numbers.values():
        assert sequence == list(range(len(sequence)))
