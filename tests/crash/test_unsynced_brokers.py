"""Brokers' directories without syncs: a later sync or commit makes earlier records durable."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_core import Store, StoreConfig
from tests.crash.explorer.broker_stories import CONFIG, LAYOUTS
from tests.crash.explorer.disk import kept, lost
from tests.crash.explorer.recording import MemoryVfs
from tests.support.faulty_vfs import faulty
from tests.support.stores import columns_of, errors, values

UNSYNCED = CONFIG.override({"fsync": "none"})
RECORDS = [b"%d".ljust(900, b".") % number for number in range(20)]


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def unsynced(layout: str) -> tuple[MemoryVfs, Store]:
    """Several files of records that a power cut may take."""
    vfs = MemoryVfs()
    store = Store(vfs, UNSYNCED, layout)
    store.create_topic("t")
    for record in RECORDS:
        store.append("t", 0, [record])
    return vfs, store


def left(vfs: MemoryVfs, layout: str) -> list[bytes]:
    """The records after a power cut that took all that was not synced."""
    return values(Store(vfs.power_cut(lost, b"a second boot..."), CONFIG, layout), topic="t")


def test_an_append_syncs_nothing_and_is_visible(tmp_path: Path, layout: str) -> None:
    config = StoreConfig(fsync="none", segment_bytes=4096)
    Store.open(tmp_path, create=True, layout=layout).create_topic("t")
    vfs = faulty(tmp_path)
    store = Store(vfs, config, layout)
    for record in RECORDS:
        store.append("t", 0, [record])
    vfs.calls.clear()  # the lock of the remembered index was made
    for record in RECORDS:
        store.append("t", 0, [record])
    assert {call.kind for call in vfs.calls} & {"fsync", "fsync_dir"} == set()
    assert values(store, topic="t") == RECORDS * 2
    again = Store.open(tmp_path, config=config)
    assert values(again, topic="t") == RECORDS * 2
    assert errors(again) == []


def test_a_power_cut_may_take_them(layout: str) -> None:
    vfs, _ = unsynced(layout)
    assert left(vfs, layout) == []
    assert (
        values(Store(vfs.power_cut(kept, b"a second boot..."), CONFIG, layout), topic="t")
        == RECORDS
    )


def test_the_next_writer_that_syncs_makes_earlier_records_durable_first(layout: str) -> None:
    vfs, _ = unsynced(layout)
    written = Store(vfs, CONFIG, layout).append("t", 0, [b"synced"])
    assert (written.start, written.end) == (20, 21)
    assert left(vfs, layout) == [*RECORDS, b"synced"]


def test_an_unsynced_writer_after_that_is_noticed_again(layout: str) -> None:
    vfs, lazy = unsynced(layout)
    eager = Store(vfs, CONFIG, layout)
    eager.append("t", 0, [b"synced"])
    for record in RECORDS:
        lazy.append("t", 0, [record])
    eager.append("t", 0, [b"again"])
    assert left(vfs, layout) == [*RECORDS, b"synced", *RECORDS, b"again"]


def test_a_commit_makes_itself_and_all_before_it_durable(layout: str) -> None:
    vfs, store = unsynced(layout)
    stage = store.stage("job")
    stage.write("t", 0, columns_of([b"committed"]))
    store.commit("job", stage.finish())
    assert left(vfs, layout) == [*RECORDS, b"committed"]
