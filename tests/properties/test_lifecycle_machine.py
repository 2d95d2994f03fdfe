"""A log that is maintained by chance beside a plain dict that does the same."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Literal

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from storage_core import Store, StoreConfig
from tests.support.faulty_vfs import faulty
from tests.support.sizes import MAINTENANCE_EXAMPLES, SEED
from tests.support.store_lives import contents
from tests.support.stores import T0, TOPIC, errors, segments

KEYS = st.none() | st.sampled_from([b"", b"a", b"b", b"c"])
VALUES = st.none() | st.binary(max_size=30)
RECORDS = st.lists(st.tuples(st.integers(T0 - 50, T0 + 50), KEYS, VALUES), min_size=1, max_size=6)
CODECS = st.sampled_from(["none", "lz4", "zstd"])


@seed(SEED)
class LifecycleMachine(RuleBasedStateMachine):
    """``model`` has the records that must be there, by offset, as a reader gives them."""

    @initialize(codec=CODECS, frame_records=st.integers(1, 4))
    def create(self, codec: str, frame_records: int) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="cursus-life-"))
        self.boot, self.start, self.end = bytes(16), 0, 0
        self.model: dict[int, dict[str, Any]] = {}
        Store.open(self.path, create=True).create_topic(
            TOPIC,
            compression=codec,
            frame_records=frame_records,
            index_interval_bytes=200,
            segment_bytes=4096,
            cleanup_policy="delete,compact",
            delete_retention_ms=1 << 50,
        )
        self.store = self.opened()

    def opened(self) -> Store:
        vfs = faulty(self.path)
        vfs.real_syncs, vfs.boot = False, self.boot
        return Store(vfs, StoreConfig(index_cache_segments=2, map_cache_segments=2))

    def teardown(self) -> None:
        if hasattr(self, "path"):
            assert errors(self.store) == []
            self.store.close()
            shutil.rmtree(self.path)

    @rule(records=RECORDS, padding=st.sampled_from([0, 0, 900]), roll=st.booleans())
    def append(self, records: list[Any], padding: int, roll: bool) -> None:
        written = self.store.append(
            TOPIC,
            0,
            [value if value is None else value + bytes(padding) for _, _, value in records],
            keys=[key for _, key, _ in records],
            timestamps=[stamp for stamp, _, _ in records],
        )
        assert (written.start, written.end) == (self.end, self.end + len(records))
        self.model |= {row["offset"]: row for row in contents(self.store, start=written.start)}
        self.end = written.end
        if roll:
            self.store.roll(TOPIC, 0)

    @rule()
    def merge(self) -> None:
        for report in self.store.merge(TOPIC):
            assert report.done
            assert report.segments_after < report.segments_before

    @rule(codec=CODECS)
    def recompress(self, codec: Literal["none", "lz4", "zstd"]) -> None:
        self.store.recompress(TOPIC, compression=codec, level=1)

    @rule()
    def compact(self) -> None:
        upto = self.start
        if self.end > self.start:
            segment = self.store.segments(TOPIC, 0)[-1]
            upto = segment.end if segment.sealed else segment.base
        last = {row["key"]: at for at, row in self.model.items() if at < upto}
        gone = [
            at
            for at, row in self.model.items()
            if row["key"] is not None and at < upto and last[row["key"]] != at
        ]
        reports = self.store.compact(TOPIC, min_dirty_ratio=0)
        assert sum(report.records_removed for report in reports) == len(gone)
        for at in gone:
            del self.model[at]

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        offset = self.start + int((self.end - self.start) * part)
        (report,) = self.store.delete_records(TOPIC, {0: offset})
        assert report.start_offset == offset
        self.start = offset
        self.model = {at: row for at, row in self.model.items() if at >= offset}

    @rule(limit=st.integers(0, 20_000))
    def retain(self, limit: int) -> None:
        self.store.alter_topic(TOPIC, retention_bytes=limit)
        self.store.retain()
        self.start = self.store.offsets(TOPIC, 0).start
        self.model = {at: row for at, row in self.model.items() if at >= self.start}

    @rule(choice=st.randoms(use_true_random=False))
    def lose_an_index(self, choice: Any) -> None:
        files = sorted(file for file in segments(self.path).iterdir() if "idx" in file.suffix)
        if files:
            choice.choice(files).unlink()
            self.store = self.opened()

    @rule(how=st.sampled_from(["close", "forget", "reboot", "repair"]))
    def reopen(self, how: str) -> None:
        if how == "close":
            self.store.close()
        if how == "reboot":
            self.boot = os.urandom(16)
        self.store = self.opened()
        if how == "repair":
            self.store.repair()

    @rule(stamp=st.integers(T0 - 60, T0 + 60))
    def find_by_time(self, stamp: int) -> None:
        times = ((at, row["timestamp"].timestamp() * 1e6) for at, row in self.model.items())
        expected = next((at for at, time in times if round(time) >= stamp), None)
        assert self.store.offset_for_timestamp(TOPIC, 0, stamp) == expected

    @rule(data=st.data())
    def read_a_range(self, data: st.DataObject) -> None:
        start = data.draw(st.integers(self.start, self.end))
        stop = data.draw(st.integers(start, self.end))
        expected = [row for at, row in self.model.items() if start <= at < stop]
        assert contents(self.store, start=start, end=stop) == expected

    @invariant()
    def contents_agree(self) -> None:
        if hasattr(self, "path"):
            found = self.store.offsets(TOPIC, 0)
            assert (found.start, found.end) == (self.start, self.end)
            assert contents(self.store) == list(self.model.values())


pytestmark = [pytest.mark.slow, pytest.mark.timeout(0)]
TestLifecycleMachine = LifecycleMachine.TestCase
TestLifecycleMachine.settings = settings(
    max_examples=MAINTENANCE_EXAMPLES,
    stateful_step_count=25,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
