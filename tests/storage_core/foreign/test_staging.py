"""What a layout cannot store is refused while it is staged: a decided commit must not meet it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from storage_core import StorageError, Store
from tests.stores import columns_of, values


@pytest.mark.parametrize("layout", ["cursus", "cursus-broker", "rustlog"])
def test_a_null_value_is_refused_before_the_commit_and_blocks_nobody(
    tmp_path: Path, layout: str
) -> None:
    with Store.open(tmp_path, layout=layout, create=True) as store:
        store.create_topic("t")
        stage = store.stage("job")
        stage.write("t", 0, columns_of([b"sound"]))
        with pytest.raises(StorageError, match="null"):
            stage.write("t", 0, columns_of([b"a", None]))
        store.abort("job")
        after = store.stage("after")
        after.write("t", 0, columns_of([b"next"]))
        store.commit("after", after.finish())
        assert values(store) == [b"next"]


@pytest.mark.parametrize("layout", ["cursus", "rustlog"])
@pytest.mark.parametrize("column", ["keys", "headers", "timestamps"])
def test_a_column_without_a_place_is_refused_while_staging(
    tmp_path: Path, layout: str, column: str
) -> None:
    given: Any = {"keys": [b"k"], "headers": [{"h": b"1"}], "timestamps": [1]}[column]
    with Store.open(tmp_path, layout=layout, create=True) as store:
        store.create_topic("t")
        with pytest.raises(StorageError, match="cannot store the column"):
            store.stage("job").write("t", 0, columns_of([b"a"], **{column: given}))


def test_a_record_larger_than_a_rustlog_row_may_be_is_refused_while_staging(
    tmp_path: Path,
) -> None:
    with Store.open(tmp_path, layout="rustlog", create=True) as store:
        store.create_topic("t")
        with pytest.raises(StorageError):
            store.stage("job").write("t", 0, columns_of([bytes((10 << 20) + 1)]))
