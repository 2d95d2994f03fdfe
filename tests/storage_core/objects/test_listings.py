"""Listings and deletions of many objects over a real connection, with no request too many."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path

import pytest

from storage_core import Store, StoreConfig
from storage_core.errors import DamagedLogError, StorageError
from storage_core.objects.collector import Collector
from storage_core.objects.commit_log import CommitLog
from storage_core.objects.obstore_backend import ObstoreBackend
from storage_core.objects.patience import Patience, PatientBackend
from storage_core.objects.vfs_backend import VfsBackend
from storage_core.vfs import PosixVfs
from tests.support.objects import small_s3
from tests.support.objects.object_proxy import proxied
from tests.support.objects.object_server import BUCKET
from tests.support.objects.small_s3 import small_server
from tests.support.stores import columns_of

pytest.importorskip("obstore", reason="the extra [objects] is not installed")


def test_the_first_objects_of_a_long_listing_take_one_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_s3, "PAGE", 100)
    requests: Counter[str] = Counter()
    with small_server(requests=requests) as options:
        backend = ObstoreBackend(f"s3://{BUCKET}/x", options)
        names = [f"data/{number:05d}" for number in range(250)]
        for name in names:
            backend.put(name, [b""])
        patient = PatientBackend(backend, Patience(PosixVfs(tmp_path), 1))
        requests.clear()
        assert [info.key for info in patient.list_some("data/", "data/00009", 5)] == names[10:15]
        assert requests["LIST"] == 1
        requests.clear()
        assert [info.key for info in patient.list_after("data/")] == names
        assert requests["LIST"] == 3


def test_a_sweep_of_a_large_store_lists_a_bounded_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many commits the logs have, and however much data there is."""
    requests: Counter[str] = Counter()
    monkeypatch.setattr("storage_core.objects.collector._SWEPT", 50)
    monkeypatch.setattr(small_s3, "PAGE", 50)
    with small_server(requests=requests) as options:
        url = f"s3://{BUCKET}/log"
        store = Store.open(url, create=True, storage=options, config=StoreConfig())
        store.create_topic("t")
        store.append("t", 0, [b"x"])
        log: CommitLog = store._engine._catalog.log("t")  # type: ignore[attr-defined]
        log.checkpoint(log.state())
        stage = store.stage("crashed")
        stage.write("t", 0, columns_of([b"never"]))
        (orphan,) = stage.finish()
        backend = ObstoreBackend(url, options)
        old = "data/2020010100/crashed/x.frames"
        backend.put(old, [b"never"])
        for number in range(500):
            backend.put(f"data/2999010100/job/{number:05d}.frames", [b""])
            backend.put(f"{log.prefix}{0:020d}.old{number}", [b""])
        sweeper: Collector = store._engine._collector  # type: ignore[attr-defined]
        requests.clear()
        assert sweeper.sweep_if_due().keys == (old,)
        # A page of data, the topics, the log twice, that there is no other; to open it.
        assert requests["LIST"] <= 6, requests
        left = {info.key for info in backend.list_after("data/")}
        assert orphan.path in left
        assert old not in left


def test_a_directory_lists_the_first_objects_of_each_log(tmp_path: Path) -> None:
    backend = VfsBackend(PosixVfs(tmp_path))
    for log in ("00", "01", "0a"):
        for number in range(4):
            backend.put(f"logs/{log}/{number:020d}.commit", [b"x"])
    found, after = [], "logs/"
    while listed := [info.key for info in backend.list_after("logs/", after, 1)]:
        found += listed
        after = f"logs/{listed[0].split('/')[1]}0"
    assert found == [f"logs/{log}/{0:020d}.commit" for log in ("00", "01", "0a")]


def test_ranges_after_the_end_of_an_object_are_empty() -> None:
    """So an object that another program has cut is damage, not a connection that fails."""
    with small_server() as options:
        backend = ObstoreBackend(f"s3://{BUCKET}/x", options)
        backend.put("data/a", [b"0123456789"])
        for ranges, wanted in (
            ([(8, 5)], [b"89"]),
            ([(20, 5)], [b""]),
            ([(0, 3), (20, 5)], [b"012", b""]),
            ([(0, 0), (2, 2), (9, 5), (10, 1)], [b"", b"23", b"9", b""]),
        ):
            found = [bytes(piece) for piece in backend.get_ranges("data/a", ranges).pieces]
            assert found == wanted, ranges
        url = f"s3://{BUCKET}/log"
        store = Store.open(url, create=True, storage=options)
        store.create_topic("t", 2)
        stage = store.stage("job")
        for partition in (0, 1):
            stage.write("t", partition, columns_of([b"x" * 1000] * 400))
        (part, _) = stage.finish()
        store.commit("job", [part, _])
        place = ObstoreBackend(url, options)
        whole = bytes(place.get_ranges(part.path).whole)
        for left in (len(whole) // 4, 0):
            place.put(part.path, [whole[:left]])
            for partition in (0, 1):
                with pytest.raises(DamagedLogError, match=r"data/.* is damaged"):
                    list(Store.open(url, storage=options).read("t", partition))
            assert [problem.code for problem in store.check()] == ["LOG_DAMAGED"] * 2


def test_objects_that_are_gone_keep_no_other_from_being_deleted(tmp_path: Path) -> None:
    """Azure, GCS and this store of the library say that an object is not there; S3 does not."""
    backend = ObstoreBackend("s3://bucket/x", {})
    local = importlib.import_module("obstore.store").LocalStore(tmp_path)
    vars(backend)["_store"] = local
    names = [f"data/{number}" for number in range(50)]
    for name in names:
        backend.put(name, [b""])
    backend.delete(["data/gone", *names, "data/gone too"])
    assert list(backend.list_after("data/")) == []
    backend.delete(["data/gone"])


def test_a_check_of_a_store_that_cannot_be_reached_names_it() -> None:
    with small_server() as options, proxied(options, likely={}) as (proxy, through):
        config = StoreConfig(lock_timeout_ms=100)
        store = Store.open(f"s3://{BUCKET}/log", create=True, storage=through, config=config)
        assert store.check() == []
        proxy.likely = {"503": 1.0}
        with pytest.raises(StorageError, match="reading the metadata of the store"):
            store.check()
