"""A topic that is deleted before any look that a planner takes: a loss, and nothing else.

Every test plans once and counts the calls to the files. Then it plans again as often as there were
calls, and deletes the topic before the n-th of them. ``make quick`` takes some of these moments,
``make test`` all of the common queries and some of the others, ``make torture`` all.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cursus_spark.datasource import CursusDataSource
from cursus_spark.errors import CursusError
from cursus_spark.read import reader as batch_reader
from cursus_spark.stream import planner as stream_planner
from storage_core import Store, StoreConfig
from tests.support.faulty_vfs import faulty
from tests.support.sizes import DELETION_STEP, QUICK_DELETION_STEP
from tests.support.spark.micro_batches import MicroBatches, payloads

GONE, OTHER = "orders", "others"
SUBSCRIPTIONS: dict[str, dict[str, str]] = {
    "subscribe": {"subscribe": f"{GONE},{OTHER}"},
    "pattern": {"subscribePattern": "o.*"},
    "assign": {"assign": '{"orders":[0,1],"others":[0]}'},
}
STARTING = '{"orders":{"0":1,"*":"earliest"},"others":{"*":"earliest"}}'


def make(path: Path, layout: str) -> None:
    """A store whose topic ``orders`` can be deleted, and a topic that stays."""
    with Store.open(path, layout, create=True) as store:
        for topic, partitions in ((GONE, 2), (OTHER, 1)):
            store.create_topic(topic, partitions)
            for number in range(partitions):
                store.append(topic, number, payloads(0, 4, f"{topic}-{number} "))


class Moments:
    """Opens stores over files whose n-th call deletes the topic first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path, layout: str) -> None:
        self._path, self._layout, self._calls, self._at = path, layout, 0, 0
        self.is_armed = False
        for module in (batch_reader, stream_planner):
            monkeypatch.setattr(module, "open_for_read", self._open)

    def _open(self, _options: object) -> Store:
        store = self._unsynced()
        self._vfs.hook = self._before
        return store

    def _unsynced(self) -> Store:
        self._vfs = faulty(self._path)
        self._vfs.real_syncs = False
        return Store(self._vfs, StoreConfig(), self._layout)

    def _before(self, _kind: str, _path: str) -> None:
        if self.is_armed:
            self._calls += 1
            if self._calls == self._at:
                self.is_armed = False
                self._unsynced().delete_topic(GONE)

    def arm(self, at: int) -> None:
        """Delete before the n-th call from here on; 0: only count."""
        self._calls, self._at, self.is_armed = 0, at, True

    def count(self) -> int:
        """The calls since ``arm``, which ends here."""
        self.is_armed = False
        return self._calls


class OldMicroBatches(MicroBatches):
    """A stream under Spark 4.1, which does not say where the stream stands."""

    def plan_next(self, *, everything: bool = False) -> bool:
        """Log the end of the next batch; False if Spark would not run one."""
        assert not everything, "Spark 4.1 has no limits"
        end = json.dumps(self.reader.latestOffset())
        if self.offsets and end == self.offsets[-1]:
            return False
        self.offsets.append(end)
        return True


Run = Callable[[], list[str]]
Prepare = Callable[[Path, dict[str, str]], Run]


def batch(path: Path, options: dict[str, str]) -> Run:
    """A batch query."""

    def run() -> list[str]:
        source = CursusDataSource({"path": str(path), **options})
        reader = source.reader(source.schema())
        tasks = list(reader.partitions())
        rows = [row for task in tasks for each in reader.read(task) for row in each.to_pylist()]
        return [row["value"].decode() for row in rows]

    return run


def first_batch(path: Path, options: dict[str, str], kind: type = MicroBatches) -> Run:
    """The first batch of a stream."""
    stream = kind(path, None, **options)
    return lambda: stream.trigger() or []


def next_batch(path: Path, options: dict[str, str], kind: type = MicroBatches) -> Run:
    """The second batch of a stream, which has records of both topics."""
    stream = kind(path, None, **options)
    stream.trigger()
    with Store.open(path) as store:
        for topic in (GONE, OTHER):
            store.append(topic, 0, payloads(4, 6, f"{topic}-0 "))
    return lambda: stream.trigger() or []


def logged_batch(path: Path, options: dict[str, str]) -> Run:
    """A batch that was logged before a restart."""
    stream = MicroBatches(path, None, **options)
    stream.plan_next()
    return lambda: stream.restart().trigger() or []


def first_batch_of_4_1(path: Path, options: dict[str, str]) -> Run:
    """The first batch of a stream under Spark 4.1."""
    return first_batch(path, options, OldMicroBatches)


def next_batch_of_4_1(path: Path, options: dict[str, str]) -> Run:
    """The second batch of a stream under Spark 4.1."""
    return next_batch(path, options, OldMicroBatches)


def outcome(
    run: Run, moments: Moments, at: int, caplog: pytest.LogCaptureFixture
) -> tuple[list[str], str, list[str]]:
    """The values read, the condition of the error, and the lines logged about the deletion."""
    caplog.clear()
    moments.arm(at)
    try:
        found, condition = run(), ""
    except CursusError as error:
        found, condition = [], error.condition
    lines = [line for line in caplog.messages if "was deleted" in line]
    return found, condition, lines


QUICK: list[tuple[Prepare, dict[str, str]]] = [(batch, {}), (first_batch, {}), (next_batch, {})]
SLOW: list[tuple[Prepare, dict[str, str]]] = [
    (batch, {"startingOffsets": STARTING}),
    (batch, {"startingTimestamp": "1", "endingTimestamp": "2100-01-01"}),
    (first_batch, {"startingOffsets": STARTING, "maxBytesPerTrigger": "100000"}),
    (first_batch, {"startingTimestamp": "1", "consumerGroup": "g"}),
    (next_batch, {"maxOffsetsPerTrigger": "50", "consumerGroup": "g"}),
    (logged_batch, {}),
    (first_batch_of_4_1, {}),
    (next_batch_of_4_1, {}),
    (batch, {"layout": "rustlog"}),
    (first_batch, {"layout": "cursus"}),
    (next_batch, {"layout": "cursus-broker"}),
]


CASES = [
    pytest.param(prepare, more, chosen, marks=marks, id="-".join([prepare.__name__, *more, chosen]))
    for cases, subscriptions, marks in (
        (QUICK, ("subscribe",), ()),
        (QUICK, ("pattern", "assign"), pytest.mark.slow),
        (SLOW, ("subscribe", "pattern"), pytest.mark.slow),
    )
    for prepare, more in cases
    for chosen in subscriptions
]


@pytest.mark.parametrize("lenient", [False, True], ids=["strict", "lenient"])
@pytest.mark.parametrize(("prepare", "more", "subscription"), CASES)
def test_every_moment(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    prepare: Prepare,
    more: dict[str, str],
    subscription: str,
    lenient: bool,
) -> None:
    options = {**SUBSCRIPTIONS[subscription], **more, "failOnDataLoss": str(not lenient)}
    made, layout = tmp_path / "made", more.get("layout", "native")
    make(made, layout)
    # Where not all moments are taken, strict and lenient take others.
    step = QUICK_DELETION_STEP if (prepare, more) in QUICK else DELETION_STEP
    first = 1 if step == 1 else 1 + lenient
    calls, at, conditions = 1, 0, []
    while at <= calls:
        path = tmp_path / str(at)
        shutil.copytree(made, path)
        with monkeypatch.context() as patch:
            moments = Moments(patch, path, layout)
            found, condition, lines = outcome(prepare(path, options), moments, at, caplog)
            seen = moments.count()
        if at == 0:
            assert condition == ""
            assert {value.split("-")[0] for value in found} == {GONE, OTHER}
            calls = seen
        else:
            conditions.append(condition)
            assert condition or any(OTHER in value for value in found), at
            assert len(set(lines)) <= 1, (at, lines)
        at += step if at else first
    # Before its first look the query does not know the topic: then the name is wrong.
    while conditions and conditions[0] in ("TOPIC_NOT_FOUND", "OFFSETS_INVALID"):
        conditions.pop(0)
    assert len(conditions) > 10
    # In the end everything is planned, or the task finds out.
    assert set(conditions) <= ({""} if lenient else {"", "DATA_LOSS"}), conditions
    # Not most of them: a broker's reader has its files open early, and reads them to the end.
    assert lenient or conditions.count("DATA_LOSS") > len(conditions) // 3, conditions
