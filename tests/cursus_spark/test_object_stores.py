"""Spark on stores of objects: in a directory without locks, and in a bucket with S3's interface."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cursus_spark.options.parse import parse_read_options
from storage_core import Store
from tests.support.objects.object_server import BUCKET, KEY, SECRET, running
from tests.support.paths import ROOT

TOKEN = "a-token-nobody-may-see"
# By itself Spark hides names and values with secret, token and the like. This has none of them, and
# nor has account_key of Azure.
AGENT = "an-agent-nobody-may-see"
pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def server() -> Iterator[Mapping[str, str]]:
    pytest.importorskip("obstore", reason="the extra [objects] is not installed")
    with running() as options:
        yield options


class Place:
    """Where a store is, and the options that reach it."""

    def __init__(self, path: str, storage: Mapping[str, str]) -> None:
        self.path = path
        self.storage = storage
        self.options = {f"storage.{name}": value for name, value in storage.items()}

    def open(self) -> Store:
        return Store.open(self.path, storage=self.storage or None)


@pytest.fixture(params=["directory", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "directory":
        path = str(tmp_path / "log")
        Store.open(path, layout="objects", create=True).close()
        return Place(path, {})
    storage = request.getfixturevalue("server")
    return Place(f"s3://{BUCKET}/{tmp_path.name}", storage)


def read(spark: SparkSession, place: Place, **options: Any) -> DataFrame:
    return (
        spark.read.format("cursus").options(subscribe="t", **place.options, **options)
        .load(place.path)
    )  # fmt: skip


def texts(frame: DataFrame) -> list[str]:
    return sorted(row.v for row in frame.selectExpr("cast(value as string) as v").collect())


def test_batches_and_streams_are_exact(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    rows = spark.range(1000).selectExpr("cast(id as string) as key", "cast(id as string) as value")
    writing = rows.repartition(3).write.format("cursus").mode("append")
    writing.options(topic="t", numPartitions=4, **place.options).save(place.path)
    assert texts(read(spark, place)) == sorted(map(str, range(1000)))
    assert read(spark, place, where="_partition = 1").count() < 1000
    with place.open() as store:
        assert sum(store.visible_ends("t")) == 1000
        assert len({s.path.partition("@")[0] for s in store.segments("t", 0)}) <= 3

    def copy() -> None:
        source = (
            spark.readStream.format("cursus").options(subscribe="t", startingOffsets="earliest")
            .options(**place.options).load(place.path)
        )  # fmt: skip
        query = (
            source.select("key", "value").writeStream.format("cursus").options(topic="u")
            .options(**place.options).option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True).start(place.path)
        )  # fmt: skip
        query.awaitTermination()

    copy()
    writing.options(topic="t", txnAppId="app", txnVersion=1, **place.options).save(place.path)
    writing.options(topic="t", txnAppId="app", txnVersion=1, **place.options).save(place.path)
    copy()
    with place.open() as store:
        assert sum(store.visible_ends("t")) == 2000
        assert sum(store.visible_ends("u")) == 2000


def test_typed_rows_are_written_and_read(spark: SparkSession, place: Place) -> None:
    frame = spark.range(100).selectExpr("id", "id * 2 as twice", "cast(id as string) as name")
    options = {"topic": "rows", **place.options}
    frame.write.format("cursus").mode("append").options(**options).save(place.path)
    found = spark.read.format("cursus").options(subscribe="rows", **place.options).load(place.path)
    assert found.where("twice >= 100").count() == 50
    assert sorted(found.columns) == ["id", "name", "twice"]


def test_options_of_a_store_are_not_shown() -> None:
    raw = {
        "path": "s3://bucket/log",
        "subscribe": "t",
        "storage.access_key_id": KEY,
        "storage.secret_access_key": SECRET,
    }
    options = parse_read_options(raw)
    assert dict(options.storage)["secret_access_key"] == SECRET
    assert SECRET not in repr(options)
    assert KEY not in repr(options)


def test_keys_are_shown_nowhere(server: Mapping[str, str], tmp_path: Path) -> None:
    """Plans, texts of objects and errors, logs, progress, checkpoint, event log, Spark's pages."""
    (tmp_path / "events").mkdir()
    storage = {**server, "token": TOKEN, "user_agent": AGENT}
    url = f"s3://{BUCKET}/keys"
    given = {"url": url, "storage": storage, "place": str(tmp_path)}
    child = subprocess.run(
        [sys.executable, "-m", "tests.support.spark.secrets_child"],
        input=json.dumps(given), capture_output=True, text=True, timeout=300, cwd=ROOT,
        env={**os.environ, "CURSUS_LOCK_TIMEOUT_MS": "500"},
    )  # fmt: skip
    assert child.returncode == 0, child.stderr[-3000:]
    assert "done" in child.stdout.splitlines()
    assert sum(line.startswith("failed:") for line in child.stdout.splitlines()) == 5
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    events = [path.read_text() for path in files if "events" in path.parts]
    assert any("BatchScan cursus" in text for text in events), "a compressed file would hide keys"
    pages = [path.read_text() for path in files if "pages" in path.parts]
    assert any("BatchScan cursus" in page for page in pages)
    shown = {"standard output": child.stdout, "standard error": child.stderr}
    shown |= {str(path): path.read_bytes().decode(errors="replace") for path in files}
    with Store.open(url, storage=storage) as store:
        shown["pickle"] = repr(store) + repr(pickle.loads(pickle.dumps(store)))
    hidden = (KEY, SECRET, TOKEN, AGENT)
    found = [name for name, text in shown.items() for key in hidden if key in text]
    assert found == []
