"""Who a store is, and what it refuses to write when that is in doubt."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import UUID

import pytest

from storage_core import Store, StoreConfig
from storage_core.errors import DamagedMetadataError, IdentityError, NotWritableError
from storage_core.io import json_files as metafile
from storage_core.metadata import identity
from storage_core.metadata.identity import require_writable
from storage_core.vfs import PosixVfs
from tests.support.faulty_vfs import CrashError, faulty
from tests.support.stores import T0, TOPIC, errors, flips, make_store, refused, reopen, values

BROKER_ID = b"""{
  "crc32c": "dd36c1be",
  "created_at": "2023-11-14T22:13:20.000Z",
  "format": 1,
  "node_name": "node-1",
  "uuid": "01234567-89ab-cdef-0123-456789abcdef"
}
"""
STORE_UUID = UUID("0123456789abcdef0123456789abcdef")


def test_broker_id_has_these_bytes(tmp_path: Path) -> None:
    vfs = faulty(tmp_path)
    vfs.clock_us = T0
    created = identity.create(vfs, StoreConfig(node_name="node-1"), known=STORE_UUID)
    assert (tmp_path / "meta/broker.id").read_bytes() == BROKER_ID
    assert identity.read(vfs) == created


def test_identity_is_made_once(tmp_path: Path) -> None:
    vfs = faulty(tmp_path)
    first = identity.create(vfs, StoreConfig())
    assert identity.create(vfs, StoreConfig(node_name="other"), known=STORE_UUID) == first


def test_every_bit_flip_of_broker_id_refuses_writes(tmp_path: Path) -> None:
    make_store(tmp_path).close()
    file = tmp_path / "meta/broker.id"
    for bit, flipped in flips(file.read_bytes()):
        file.write_bytes(flipped)
        assert refused(DamagedMetadataError, require_writable, faulty(tmp_path), StoreConfig()), bit


@pytest.mark.parametrize("layout", ["native", "objects"])
def test_a_store_says_who_it_is_to_readers_and_writers(tmp_path: Path, layout: str) -> None:
    with Store.open(tmp_path / "a", layout, create=True) as store:
        store.create_topic(TOPIC)
        found = store.store_uuid()
        assert found == store.topic(TOPIC).store_uuid
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    assert Store.open(tmp_path / "copy").store_uuid() == found
    assert Store.open(tmp_path / "b", layout, create=True).store_uuid() not in (None, found)


@pytest.mark.parametrize("layout", ["cursus", "cursus-broker", "rustlog"])
def test_a_brokers_directory_has_no_identity(tmp_path: Path, layout: str) -> None:
    with Store.open(tmp_path, layout, create=True) as store:
        store.create_topic(TOPIC)
        assert store.store_uuid() is None


def test_to_ask_who_a_store_is_gives_no_right_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_store(tmp_path).close()
    store = reopen(tmp_path)
    assert store.store_uuid() is not None
    monkeypatch.setattr(PosixVfs, "writable", lambda _: False)
    with pytest.raises(NotWritableError):
        store.append(TOPIC, 0, [b"a"])


def test_damaged_broker_id_still_lets_readers_read(tmp_path: Path) -> None:
    with make_store(tmp_path) as store:
        store.append(TOPIC, 0, [b"a"])
    (tmp_path / "meta/broker.id").write_bytes(b"rubbish")
    store = reopen(tmp_path)
    assert values(store) == [b"a"]
    assert [problem.code for problem in errors(store)] == ["METADATA_DAMAGED"]
    with pytest.raises(DamagedMetadataError):
        store.append(TOPIC, 0, [b"b"])


def test_identity_of_a_later_format_names_it(tmp_path: Path) -> None:
    make_store(tmp_path).close()
    fields = {"format": 2, "uuid": str(STORE_UUID), "created_at": "", "node_name": ""}
    metafile.replace(faulty(tmp_path), identity.PATH, fields)
    with pytest.raises(IdentityError, match="format 2"):
        reopen(tmp_path).append(TOPIC, 0, [b"a"])


def test_identity_that_is_no_uuid_is_damaged(tmp_path: Path) -> None:
    make_store(tmp_path).close()
    fields = {"format": 1, "uuid": "me", "created_at": "", "node_name": ""}
    metafile.replace(faulty(tmp_path), identity.PATH, fields)
    with pytest.raises(DamagedMetadataError, match="UUID"):
        identity.read(faulty(tmp_path))


def without_identity(path: Path) -> Store:
    with make_store(path) as store:
        store.append(TOPIC, 0, [b"a"])
    (path / "meta/broker.id").unlink()
    return reopen(path)


@pytest.mark.row(22)
def test_missing_broker_id_refuses_every_write_but_reads_work(tmp_path: Path) -> None:
    store = without_identity(tmp_path)
    for write in (
        lambda: store.append(TOPIC, 0, [b"b"]),
        lambda: store.create_topic("u"),
        lambda: store.delete_topic(TOPIC),
        lambda: store.add_partitions(TOPIC, 2),
        lambda: store.alter_topic(TOPIC, segment_ms=1000),
        lambda: store.roll(TOPIC, 0),
        lambda: store.retain(),
        lambda: store.commit_offsets("g", {TOPIC: {0: 1}}),
    ):
        with pytest.raises(IdentityError, match="repair") as caught:
            write()
        assert caught.value.path == "meta/broker.id"
    assert values(store) == [b"a"]
    assert [problem.code for problem in errors(store)] == ["IDENTITY_MISMATCH"]


def test_opening_with_create_does_not_paper_over_a_missing_identity(tmp_path: Path) -> None:
    without_identity(tmp_path)
    store = Store.open(tmp_path, create=True)
    assert not (tmp_path / "meta/broker.id").exists()
    with pytest.raises(IdentityError):
        store.append(TOPIC, 0, [b"b"])


@pytest.mark.row(22)
def test_repair_restores_a_missing_broker_id_from_the_topics(tmp_path: Path) -> None:
    store = without_identity(tmp_path)
    owner = store.topic(TOPIC).store_uuid
    store.repair()
    found = identity.read(faulty(tmp_path))
    assert found is not None
    assert found.uuid == owner
    store.append(TOPIC, 0, [b"b"])
    assert values(store) == [b"a", b"b"]
    assert errors(store) == []


def test_repair_invents_no_identity_while_a_topic_that_may_know_it_is_damaged(
    tmp_path: Path,
) -> None:
    without_identity(tmp_path)
    file = tmp_path / "topics/t/topic.json"
    good = file.read_bytes()
    file.write_text("{}")
    with pytest.raises(DamagedMetadataError, match=r"topic\.json"):
        reopen(tmp_path).repair()
    assert identity.read(faulty(tmp_path)) is None
    file.write_bytes(good)  # restored from a copy
    with reopen(tmp_path) as store:
        store.repair()
        store.append(TOPIC, 0, [b"b"])
        assert values(store) == [b"a", b"b"]


def test_repair_does_not_choose_between_two_owners(tmp_path: Path) -> None:
    store = without_identity(tmp_path / "one")
    make_store(tmp_path / "two").close()
    shutil.copytree(tmp_path / "two/topics/t", tmp_path / "one/topics/u")
    with pytest.raises(IdentityError, match="2 different stores"):
        store.repair()


@pytest.mark.row(22)
def test_topic_copied_in_from_another_store_is_refused(tmp_path: Path) -> None:
    with make_store(tmp_path / "one") as one:
        one.append(TOPIC, 0, [b"a"])
    with make_store(tmp_path / "two") as two:
        two.append(TOPIC, 0, [b"b"])
    shutil.copytree(tmp_path / "one/topics/t", tmp_path / "two/topics/foreign")
    store = reopen(tmp_path / "two")
    for write in (
        lambda: store.append("foreign", 0, [b"c"]),
        lambda: store.roll("foreign", 0),
        lambda: store.retain("foreign"),
    ):
        with pytest.raises(IdentityError) as caught:
            write()
        assert caught.value.topic == "foreign"
    assert values(store, topic="foreign") == [b"a"]
    store.append(TOPIC, 0, [b"still works"])
    assert [problem.code for problem in errors(store)] == ["IDENTITY_MISMATCH"]


@pytest.mark.row(22)
def test_copy_of_a_whole_store_is_a_store(tmp_path: Path) -> None:
    with make_store(tmp_path / "one") as one:
        one.append(TOPIC, 0, [b"a"])
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    with reopen(tmp_path / "two") as two:
        assert two.append(TOPIC, 0, [b"b"]).start == 1
        assert values(two) == [b"a", b"b"]
        assert errors(two) == []
    assert values(reopen(tmp_path / "one")) == [b"a"]


def test_first_boot_that_crashed_half_way_is_finished_by_the_next_create(tmp_path: Path) -> None:
    done = faulty(tmp_path / "whole")
    (tmp_path / "whole").mkdir()
    identity.create(done, StoreConfig())
    for count in range(done.changes):
        path = tmp_path / str(count)
        path.mkdir()
        vfs = faulty(path)
        vfs.crash_after = count
        with pytest.raises(CrashError):
            identity.create(vfs, StoreConfig())
        with Store.open(path, create=True) as store:
            store.create_topic(TOPIC)
            store.append(TOPIC, 0, [b"a"])
            assert errors(store) == []
