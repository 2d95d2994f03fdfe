"""A topic that is deleted before any look that a planner takes: a loss, and nothing else.

Every test plans once and counts the calls to the files. Then it plans again as often as there were
calls, and deletes the topic before the n-th of them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cursus_spark.datasource import CursusDataSource
from cursus_spark.errors import CursusError
from cursus_spark.read import reader as batch_reader
from cursus_spark.stream import planner as stream_planner
from storage_core import Store, StoreConfig
from tests.support.faulty_vfs import FaultyVfs, faulty
from tests.support.spark.micro_batches import MicroBatches, payloads

GONE, OTHER = "orders", "others"
SUBSCRIPTIONS: dict[str, dict[str, str]] = {
    "subscribe": {"subscribe": f"{GONE},{OTHER}"},
    "pattern": {"subscribePattern": "o.*"},
    "assign": {"assign": '{"orders":[0,1],"others":[0]}'},
}
STARTING = '{"orders":{"0":1,"*":"earliest"},"others":{"*":"earliest"}}'


def make(path: Path) -> None:
    """A store whose topic ``orders`` can be deleted, and a topic that stays."""
    with Store.open(path, create=True) as store:
        for topic, partitions in ((GONE, 2), (OTHER, 1)):
            store.create_topic(topic, partitions)
            for number in range(partitions):
                store.append(topic, number, payloads(0, 4, f"{topic}-{number} "))


class Moments:
    """Opens stores over files whose n-th call deletes the topic first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
        self._path, self._calls, self._at = path, 0, 0
        self.is_armed = False
        for module in (batch_reader, stream_planner):
            monkeypatch.setattr(module, "open_for_read", self._open)

    def _open(self, _options: object) -> Store:
        vfs: FaultyVfs = faulty(self._path)
        vfs.hook = self._before
        return Store(vfs, StoreConfig())

    def _before(self, _kind: str, _path: str) -> None:
        if self.is_armed:
            self._calls += 1
            if self._calls == self._at:
                self.is_armed = False
                Store.open(self._path).delete_topic(GONE)

    def arm(self, at: int) -> None:
        """Delete before the n-th call from here on; 0: only count."""
        self._calls, self._at, self.is_armed = 0, at, True

    def count(self) -> int:
        """The calls since ``arm``, which ends here."""
        self.is_armed = False
        return self._calls


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


def first_batch(path: Path, options: dict[str, str]) -> Run:
    """The first batch of a stream."""
    stream = MicroBatches(path, None, **options)
    return lambda: stream.trigger() or []


def next_batch(path: Path, options: dict[str, str]) -> Run:
    """The second batch of a stream, which has records of both topics."""
    stream = MicroBatches(path, None, **options)
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


@pytest.mark.parametrize("lenient", [False, True], ids=["strict", "lenient"])
@pytest.mark.parametrize("subscription", SUBSCRIPTIONS)
@pytest.mark.parametrize(
    ("prepare", "more"),
    [
        (batch, {}),
        (batch, {"startingOffsets": STARTING}),
        (batch, {"startingTimestamp": "1", "endingTimestamp": "2100-01-01"}),
        (first_batch, {}),
        (first_batch, {"startingOffsets": STARTING, "maxBytesPerTrigger": "100000"}),
        (first_batch, {"startingTimestamp": "1", "consumerGroup": "g"}),
        (next_batch, {}),
        (next_batch, {"maxOffsetsPerTrigger": "50", "consumerGroup": "g"}),
        (logged_batch, {}),
    ],
    ids=lambda value: value.__name__ if callable(value) else "-".join(value),
)
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
    made = tmp_path / "made"
    make(made)
    calls, at, conditions = 1, 0, []
    while at <= calls:
        path = tmp_path / str(at)
        shutil.copytree(made, path)
        with monkeypatch.context() as patch:
            moments = Moments(patch, path)
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
        at += 1
    # Before its first look the query does not know the topic: then the name is wrong.
    while conditions and conditions[0] in ("TOPIC_NOT_FOUND", "OFFSETS_INVALID"):
        conditions.pop(0)
    assert len(conditions) > 10
    # In the end everything is planned, or the task finds out.
    assert set(conditions) <= ({""} if lenient else {"", "DATA_LOSS"}), conditions
    assert lenient or conditions.count("DATA_LOSS") > len(conditions) // 2, conditions
