"""What a write may make."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from cursus_spark.datasource import CursusDataSource
from cursus_spark.errors import CursusError
from cursus_spark.write.writer import CursusWriter
from storage_core import Store

ROWS = StructType().add("value", "string")
MISSING = (
    r"LAYOUT_NOT_FOUND\] .*/log does not exist.* With createTopic=false a missing store is an error"
)


def source(path: Path, **options: str) -> CursusDataSource:
    return CursusDataSource({"path": str(path), "createTopic": "false", **options})


@pytest.mark.parametrize("layout", ["auto", "rustlog"])
def test_a_write_that_makes_no_topic_makes_no_store_either(tmp_path: Path, layout: str) -> None:
    path = tmp_path / "log"
    for make in ("writer", "streamWriter"):
        with pytest.raises(CursusError, match=MISSING):
            getattr(source(path, topic="orders", layout=layout), make)(ROWS, False)
    assert not path.exists()


@pytest.mark.parametrize("layout", ["auto", "rustlog"])
def test_neither_does_one_whose_rows_name_their_topics(tmp_path: Path, layout: str) -> None:
    path = tmp_path / "log"
    rows = StructType().add("value", "string").add("topic", "string")
    for make in ("writer", "streamWriter"):
        with pytest.raises(CursusError, match=MISSING):
            getattr(source(path, layout=layout), make)(rows, False)
    assert not path.exists()


def test_a_commit_without_the_staged_files_asks_whether_all_nodes_see_the_directory(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log"
    writer = source(path, topic="orders", createTopic="true").writer(ROWS, False)
    staged = writer.write(iter([pa.record_batch({"value": ["a"]})]))
    (part,) = staged.parts
    assert staged.host == os.uname().nodename
    shutil.rmtree(path / "staging")
    with pytest.raises(CursusError, match="COMMIT_INVALID") as caught:
        writer.commit([replace(staged, host="worker-7")])
    assert str(caught.value).startswith(
        f"[CURSUS_COMMIT_INVALID] Does every node see the directory {path}? A task on host "
        f"'worker-7' wrote {part.path}, but the driver on host '{os.uname().nodename}' does not "
        "find it. See docs/operations.md, 'File systems'."
    )


def test_in_a_store_that_is_there_the_topic_is_missed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with Store.open(path, create=True) as store:
        store.create_topic("orders")
    assert isinstance(source(path, topic="orders").writer(ROWS, False), CursusWriter)
    with pytest.raises(CursusError, match=r"TOPIC_NOT_FOUND.*set createTopic to true"):
        source(path, topic="ordres").writer(ROWS, False)
