"""What a layout cannot store is refused while it is staged: a decided commit must not meet it."""

from __future__ import annotations

import errno
import shutil
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from storage_core import StorageError, Store, StoreConfig
from storage_core.errors import CommitUnknownError
from tests.support.faulty_vfs import CrashError, faulty
from tests.support.stores import TOPIC, columns_of, values


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


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["cursus", "cursus-broker", "rustlog"])
def test_finishing_an_interrupted_commit_may_crash_before_any_change(
    tmp_path: Path, layout: str
) -> None:
    """Its files are cut by a copy: before, between and after its steps nothing is lost."""
    config, original = StoreConfig(segment_bytes=4096), tmp_path / "original"
    with Store.open(original, layout=layout, create=True, config=config) as store:
        store.create_topic(TOPIC)
        store.append(TOPIC, 0, [b"before"])
    vfs = faulty(original)
    dying = Store(vfs, config, layout)
    stage = dying.stage("job")
    new = [b"%d" % number * 500 for number in range(20)]
    stage.write(TOPIC, 0, columns_of(new))
    vfs.fail("pwritev", errno.EIO, path=".log", nth=3)
    with pytest.raises(CommitUnknownError):
        dying.commit("job", stage.finish())
    for changes in count():
        path = tmp_path / str(changes)
        shutil.copytree(original, path)
        vfs = faulty(path)
        vfs.crash_after, vfs.real_syncs = changes, False
        try:
            Store(vfs, config, layout).repair()
            break
        except CrashError:
            pass
        with Store.open(path, layout=layout, config=config) as after:
            assert values(after, topic=TOPIC) in ([b"before"], [b"before", *new])
            after.repair()
            assert values(after, topic=TOPIC) == [b"before", *new]
        assert not list(path.rglob("*.log.tmp"))
        shutil.rmtree(path)
    assert changes > 10
