"""The stream writer called as Spark calls it: by another object for each step, and in any order."""

from __future__ import annotations

import os
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructType

from cursus_spark.datasource import CursusDataSource
from cursus_spark.errors import CursusError
from cursus_spark.stream import writer as stream_writer
from cursus_spark.write.task_commit import TaskCommit
from storage_core import Store
from storage_core.commit.ledger import Ledger
from storage_core.vfs import PosixVfs

SCHEMA = StructType().add("value", BinaryType())


class Query:
    """One streaming query, in a new run for each restart."""

    def __init__(self, path: Path, name: str = "query", **options: Any) -> None:
        self._path = path
        self._name = name
        self._options = {"topic": "out", **options}
        self.run = 0

    def writer(self) -> stream_writer.CursusStreamWriter:
        source = CursusDataSource({"path": str(self._path), **self._options})
        return source.streamWriter(SCHEMA, overwrite=False)

    def task(self, batch: int, *values: bytes) -> TaskCommit:
        """Run one task in a worker of its own; the message comes back pickled."""
        properties = {
            "sql.streaming.queryId": self._name,
            "streaming.sql.batchId": str(batch),
            "spark.jobGroup.id": f"run-{self.run}",
        }
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stream_writer, "_property", properties.__getitem__)
            rows = pa.RecordBatch.from_pydict({"value": list(values)})
            writer = pickle.loads(pickle.dumps(self.writer()))
            found: TaskCommit = pickle.loads(pickle.dumps(writer.write(iter([rows]))))
            return found

    def values(self, topic: str = "out") -> list[bytes]:
        with Store.open(self._path) as store:
            return [value for batch in store.read(topic, 0) for value in batch["value"].to_pylist()]

    def staged(self) -> list[str]:
        return [path.name for path in (self._path / "staging").glob("*/*")]


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return Query(tmp_path / "log")


@pytest.mark.parametrize("layout", ["native", "cursus", "cursus-broker", "rustlog"])
def test_every_layout_takes_a_batch_once(tmp_path: Path, layout: str) -> None:
    query = Query(tmp_path / "log", layout=layout)
    for batch in (0, 1, 1, 0):
        query.run += 1
        query.writer().commit([query.task(batch, b"%d" % batch), query.task(batch, b"more")], batch)
    assert query.values() == [b"0", b"more", b"1", b"more"]


@pytest.mark.row(42)
def test_a_repeated_commit_adds_nothing_and_says_so(
    query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    query.writer().commit([query.task(0, b"a", b"b"), query.task(0, b"c")], 0)
    query.run += 1
    query.writer().commit([query.task(0, b"a", b"b", b"c")], 0)
    assert query.values() == [b"a", b"b", b"c"]
    assert "batch 0 of query query was committed before: nothing was added" in caplog.text
    assert query.staged() == []


def test_a_batch_without_its_staged_files_asks_whether_all_nodes_see_the_directory(
    query: Query, tmp_path: Path
) -> None:
    staged = query.task(0, b"a")
    shutil.rmtree(tmp_path / "log" / "staging")
    with pytest.raises(CursusError) as caught:
        query.writer().commit([replace(staged, host="worker-7")], 0)
    assert str(caught.value).startswith(
        f"[CURSUS_COMMIT_INVALID] Does every node see the directory {tmp_path / 'log'}? A task on "
        f"host 'worker-7' wrote {staged.parts[0].path}, but the driver on host "
        f"'{os.uname().nodename}' does not find it. See docs/operations.md, 'File systems'."
    )
    query.run += 1
    query.writer().commit([query.task(0, b"a")], 0)
    assert query.values() == [b"a"]


def test_tasks_follow_each_other_in_the_order_of_their_messages(query: Query) -> None:
    late, early = query.task(0, b"second"), query.task(0, b"first")
    query.writer().commit([early, late], 0)
    assert query.values() == [b"first", b"second"]


@pytest.mark.row(37, 38)
def test_a_failed_attempt_and_a_zombie_leave_nothing_in_the_topic(query: Query) -> None:
    first, again = query.task(0, b"a"), query.task(0, b"a")
    query.writer().commit([again], 0)
    zombie = query.task(0, b"a")
    assert query.values() == [b"a"]
    query.writer().commit([query.task(1, b"b")], 1)
    assert query.values() == [b"a", b"b"]
    assert {first.job, again.job, zombie.job} == {first.job}


@pytest.mark.row(38)
def test_a_zombie_that_writes_while_staging_is_dropped_does_not_fail_the_commit(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file appears between the listing and the removal of the directory."""
    message = query.task(0, b"a")
    original, zombies = PosixVfs.rmdir, [b"zombie"]

    def rmdir(self: PosixVfs, path: str) -> None:
        if zombies:
            query.task(0, zombies.pop())
        original(self, path)

    monkeypatch.setattr(PosixVfs, "rmdir", rmdir)
    query.writer().commit([message], 0)
    assert query.values() == [b"a"]


@pytest.mark.row(43)
def test_abort_accepts_holes_and_drops_what_was_staged(query: Query) -> None:
    query.writer().abort([None, None], 0)
    message = query.task(0, b"a")
    assert query.staged()
    query.writer().abort([None, message], 0)
    assert query.staged() == []
    assert query.values() == []


@pytest.mark.row(40)
def test_abort_after_a_decided_commit_finishes_it(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [query.task(0, b"a")]

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "record", full)
        with pytest.raises(CursusError, match="COMMIT_UNKNOWN"):
            query.writer().commit(list(messages), 0)
    query.writer().abort(list(messages), 0)
    assert query.values() == [b"a"]
    query.run += 1
    query.writer().commit([query.task(0, b"a")], 0)
    assert query.values() == [b"a"]


@pytest.mark.row(43)
def test_an_empty_batch_is_recorded_and_no_task_at_all_is_fine(query: Query) -> None:
    query.writer().commit([query.task(0)], 0)
    query.writer().commit([], 1)
    query.run += 1
    query.writer().commit([query.task(0, b"would be new")], 0)
    assert query.values() == []


def test_queries_count_their_batches_apart_and_an_application_id_joins_them(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log"
    for name in ("one", "two"):
        query = Query(path, name)
        query.writer().commit([query.task(0, name.encode())], 0)
    assert query.values() == [b"one", b"two"]
    for name in ("three", "four"):
        query = Query(path, name, txnAppId="app")
        query.writer().commit([query.task(0, name.encode())], 0)
    assert query.values() == [b"one", b"two", b"three"]


@pytest.mark.row(30, 43)
def test_messages_that_do_not_fit_together_are_refused(query: Query) -> None:
    message = query.task(0, b"a")
    for wrong in ([None, message], [message, replace(message, batch_id=1)]):
        with pytest.raises(CursusError, match="COMMIT_INVALID"):
            query.writer().commit(list(wrong), 0)
    with pytest.raises(CursusError, match=r"the tasks wrote batch 0, but Spark commits batch 7"):
        query.writer().commit([message], 7)
    assert query.values() == []


def test_a_schema_that_cannot_be_written_is_refused_before_any_task(tmp_path: Path) -> None:
    with Store.open(tmp_path / "log", create=True) as store:
        store.create_topic("out")
    source = CursusDataSource({"path": str(tmp_path / "log"), "topic": "out"})
    with pytest.raises(CursusError, match="VALUE_MISSING"):
        source.streamWriter(StructType().add("text", StringType()), overwrite=False)
    with pytest.raises(CursusError, match="APPEND_ONLY"):
        source.streamWriter(SCHEMA, overwrite=True)
