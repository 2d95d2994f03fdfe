"""A store driven by chance beside a plain list that does the same; they must always agree."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from storage_core import Store, StoreConfig
from storage_core.format.columns import READ_SCHEMA
from tests.support.faulty_vfs import faulty
from tests.support.sizes import SEED, STORE_EXAMPLES
from tests.support.stores import T0, TOPIC, errors, segments

Record = tuple[int, bytes | None, bytes | None, Any]
SMALL = st.binary(max_size=40)
STAMPS = st.integers(T0 - 50, T0 + 50)
HEADERS = st.none() | st.lists(
    st.tuples(st.text(st.characters(codec="utf-8"), max_size=3), st.none() | SMALL), max_size=2
)
RECORDS = st.lists(st.tuples(STAMPS, st.none() | SMALL, st.none() | SMALL, HEADERS), max_size=7)


@seed(SEED)
class StoreMachine(RuleBasedStateMachine):
    """``model[i]`` is the record of offset ``start + i``."""

    @initialize(
        compression=st.sampled_from(["none", "lz4", "zstd"]),
        frame_records=st.integers(1, 4),
        interval=st.sampled_from([0, 300, 4096]),
    )
    def create(self, compression: str, frame_records: int, interval: int) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="cursus-machine-"))
        self.boot = bytes(16)
        self.start = 0
        self.model: list[Record] = []
        store = Store.open(self.path, create=True)
        store.create_topic(
            TOPIC,
            compression=compression,
            frame_records=frame_records,
            index_interval_bytes=interval,
            segment_bytes=4096,
        )
        self.store = self.opened()

    def opened(self) -> Store:
        vfs = faulty(self.path)
        vfs.real_syncs, vfs.boot = False, self.boot
        return Store(vfs, StoreConfig(index_cache_segments=2, map_cache_segments=2))

    def teardown(self) -> None:
        if hasattr(self, "path"):
            assert errors(self.store) == []
            assert self.read() == self.model
            self.store.close()
            shutil.rmtree(self.path)

    @property
    def end(self) -> int:
        return self.start + len(self.model)

    def read(self, **bounds: Any) -> list[Record]:
        batches = list(self.store.read(TOPIC, 0, **bounds))
        table = pa.Table.from_batches(batches, READ_SCHEMA)
        first = bounds.get("start") or self.start
        assert table.column("offset").to_pylist() == list(range(first, first + len(table)))
        stamps = table.column("timestamp").cast(pa.int64()).to_pylist()
        headers = [
            None if row is None else [(item["key"], item["value"]) for item in row]
            for row in table.column("headers").to_pylist()
        ]
        keys, values = table.column("key").to_pylist(), table.column("value").to_pylist()
        return list(zip(stamps, keys, values, headers, strict=True))

    @rule(records=RECORDS, padding=st.sampled_from([0, 0, 700, 5000]))
    def append(self, records: list[Record], padding: int) -> None:
        records = [
            (stamp, key, value if value is None else value + bytes(padding), headers)
            for stamp, key, value, headers in records
        ]
        written = self.store.append(
            TOPIC,
            0,
            [record[2] for record in records],
            keys=[record[1] for record in records],
            timestamps=[record[0] for record in records],
            headers=[record[3] for record in records],
        )
        assert (written.start, written.end) == (self.end, self.end + len(records))
        self.model += records

    @rule()
    def roll(self) -> None:
        self.store.roll(TOPIC, 0)

    @rule(limit=st.integers(0, 20_000))
    def retain(self, limit: int) -> None:
        self.store.alter_topic(TOPIC, retention_bytes=limit)
        self.store.retain()
        start = self.store.offsets(TOPIC, 0).start
        assert self.start <= start <= self.end
        self.model = self.model[start - self.start :]
        self.start = start

    @rule(
        choice=st.randoms(use_true_random=False),
        how=st.sampled_from(["delete", "flip", "pad", "cut"]),
    )
    def corrupt_an_index(self, choice: Any, how: str) -> None:
        files = [file for file in segments(self.path).iterdir() if "idx" in file.suffix]
        if not files:
            return
        file = choice.choice(sorted(files))
        data = bytearray(file.read_bytes())
        if how == "delete" or not data:
            file.unlink()
        elif how == "flip":
            data[choice.randrange(len(data))] ^= 1 << choice.randrange(8)
            file.write_bytes(data)
        elif how == "pad":
            file.write_bytes(data + bytes(16))
        else:
            file.write_bytes(data[: choice.randrange(len(data))])
        self.store = self.opened()

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        if clean:
            self.store.close()
        self.store = self.opened()

    @rule(tail=st.binary(max_size=200), zeros=st.integers(0, 100))
    def crash_with_a_torn_tail(self, tail: bytes, zeros: int) -> None:
        logs = sorted(segments(self.path).glob("*.log"))
        if logs:
            logs[-1].chmod(0o644)
            with logs[-1].open("ab") as file:
                file.write(bytes(zeros) + tail)
        self.boot = os.urandom(16)
        self.store = self.opened()

    @rule()
    def repair(self) -> None:
        self.store.repair()

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def read_a_range(self, data: st.DataObject) -> None:
        start = data.draw(st.integers(self.start, self.end))
        stop = data.draw(st.integers(start, self.end + 2))
        limit = data.draw(st.none() | st.integers(0, 5))
        expected = self.model[start - self.start : stop - self.start][:limit]
        assert self.read(start=start, end=stop, max_records=limit) == expected

    @rule(stamp=STAMPS)
    def find_by_time(self, stamp: int) -> None:
        expected = next(
            (self.start + at for at, record in enumerate(self.model) if record[0] >= stamp), None
        )
        assert self.store.offset_for_timestamp(TOPIC, 0, stamp) == expected

    @invariant()
    def bounds_agree(self) -> None:
        if hasattr(self, "path"):
            found = self.store.offsets(TOPIC, 0)
            assert (found.start, found.end) == (self.start, self.end)


pytestmark = [pytest.mark.slow, pytest.mark.timeout(0)]
TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(
    max_examples=STORE_EXAMPLES,
    stateful_step_count=30,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
