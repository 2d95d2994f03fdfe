"""Stores in an object store: a real server with S3's interface, reached by the library."""

from __future__ import annotations

import itertools
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

from storage_core import DiskHandler, DiskManager, OffsetRange, Store, StoreConfig
from storage_core.arguments import store_url
from storage_core.errors import (
    ConfigError,
    LayoutMismatchError,
    LayoutNotFoundError,
    StorageError,
    TopicNotFoundError,
)
from storage_core.objects.backend import read_object
from storage_core.objects.obstore_backend import ObstoreBackend
from storage_core.objects.reads.kept_logs import forget_all
from storage_core.objects.semantics import require_semantics
from tests.support.objects.object_proxy import proxied
from tests.support.objects.object_server import BUCKET, KEY, SECRET, running
from tests.support.stores import T0, columns_of, errors, offsets, values

pytest.importorskip("obstore", reason="the extra [objects] is not installed")
_numbers = itertools.count()
Options = Mapping[str, str]


@pytest.fixture(scope="module")
def server() -> Iterator[Options]:
    with running() as options:
        yield options


def make(server: Options, partitions: int = 1) -> Store:
    url = f"s3://{BUCKET}/logs/{next(_numbers)}"
    store = Store.open(url, create=True, storage=server)
    store.create_topic("t", partitions)
    return store


def again(store: Store, server: Options) -> Store:
    return Store.open(store.path, storage=server)


def test_the_library_keeps_every_promise_of_a_backend(server: Options) -> None:
    backend = ObstoreBackend(f"s3://{BUCKET}/gate", server)
    require_semantics(backend, rounds=5)
    large = bytes(range(256)) * 60_000
    backend.put("data/large", [large[:5], large[5:]])
    assert read_object(backend, "data/large") == large
    pieces = backend.get_ranges("data/large", [(5, 3), (7_000_000, 10), (0, 0)]).pieces
    assert [bytes(each) for each in pieces] == [large[5:8], large[7_000_000:7_000_010], b""]
    backend.delete(["data/large", "data/none"])
    assert list(backend.list_after("data/")) == []


def test_a_store_lives_in_a_bucket(server: Options) -> None:
    store = make(server, 2)
    assert store.append("t", 0, [b"a", b"b"], timestamps=[T0, T0 + 5]).end == 2
    stage = store.stage("job")
    for partition in (0, 1):
        stage.write("t", partition, columns_of([b"c"] * 3, now_us=T0 + 9))
    parts = stage.finish()
    other = pickle.loads(pickle.dumps(again(store, server)))
    assert other.visible_ends("t") == (2, 0)
    assert not store.commit("job", parts, app="app", version=1).skipped
    assert other.commit("job", parts, app="app", version=1).skipped
    assert values(other, topic="t") == [b"a", b"b", b"c", b"c", b"c"]
    assert other.offset_for_timestamp("t", 0, T0 + 5) == 1
    other.commit_offsets("g", {"t": {0: 4}})
    other.commit_offsets("g", {"t": {1: 1}})
    assert store.committed_offsets("g") == {"t": {0: 4, 1: 1}}
    store.delete_records("t", {0: 2})
    assert offsets(other, topic="t") == [2, 3, 4]
    store.create_topic("rows", schema=pa.schema([("id", pa.int64())]))
    store.append_table("rows", pa.table({"id": [1, 2, 3]}))
    assert other.scan("rows", where="id >= 2").to_table().num_rows == 2
    assert (other.topics(), errors(other)) == (["rows", "t"], [])
    other.delete_topic("rows")
    assert store.topics() == ["t"]


_FORKING = """
import json, os, signal, sys
from storage_core import Store
from storage_core.errors import ConfigError
url, options = sys.argv[1], json.loads(sys.argv[2])
store = Store.open(url, storage=options)
assert store.topics() == ["t"]
if os.fork():
    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
signal.alarm(20)
for use in (store.topics, lambda: Store.open(url, storage=options)):
    try:
        use()
    except ConfigError as error:
        print(error)
"""


def test_a_process_that_was_forked_after_a_use_gets_an_error_and_does_not_hang(
    server: Options,
) -> None:
    store = make(server)
    child = subprocess.run(
        [sys.executable, "-c", _FORKING, store.path, json.dumps(dict(server))],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (child.returncode, child.stdout.count("Start processes by spawn")) == (0, 2), child


def test_a_large_append_is_read_in_ranges(server: Options) -> None:
    store = make(server)
    found = [b"%07d" % each + b"x" * 3000 for each in range(8000)]
    store.append("t", 0, found)
    assert values(again(store, server), topic="t") == found
    assert values(again(store, server), topic="t", start=7990) == found[7990:]


def test_what_is_missing_or_wrong_is_named(server: Options) -> None:
    with pytest.raises(LayoutNotFoundError, match=r"no store\.json"):
        Store.open(f"s3://{BUCKET}/none", storage=server)
    with pytest.raises(LayoutNotFoundError, match="perhaps no such bucket"):
        Store.open("s3://missing-bucket/log", storage=server)
    with pytest.raises(LayoutNotFoundError, match="does not exist"):
        Store.open("s3://missing-bucket/log", create=True, storage=server)
    with pytest.raises(LayoutMismatchError, match="holds layout objects"):
        Store.open(f"s3://{BUCKET}/x", layout="native", create=True, storage=server)
    with pytest.raises(ConfigError, match="no files"):
        make(server).vfs.listdir("")
    with pytest.raises(ConfigError, match="cannot be opened"):
        Store.open("s3://b/x", storage={"no_such_option": "1"})


def test_credentials_are_never_shown(server: Options, caplog: pytest.LogCaptureFixture) -> None:
    store = make(server)
    wrong = {**server, "endpoint": "http://127.0.0.1:9"}
    shown = [repr(store), repr(store.vfs), str(store.path), repr(store._engine)]
    in_url = {**server, "endpoint": "http://user:in-the-url@127.0.0.1:9"}
    for options in (wrong, in_url, {**server, "no_such_option": SECRET}):
        backend = ObstoreBackend("s3://bucket/x", options)
        with pytest.raises((OSError, StorageError)) as caught:
            backend.create("x", [b""])
        shown += [str(caught.value), repr(caught.value.__cause__)]
    with pytest.raises(LayoutNotFoundError) as refused:
        Store.open(f"s3://{KEY}:{SECRET}@bucket/x")
    shown += [str(refused.value), caplog.text]
    found = [text for text in shown for key in (KEY, SECRET, "in-the-url") if key in text]
    assert not found


_NOBODY = "http://127.0.0.1:9"
_ACCOUNT = {"private_key": SECRET, "client_email": "e", "private_key_id": "i"}


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("gs://b/x", {"service_account_key": json.dumps(_ACCOUNT)}),
        ("gs://b/x", {"service_account_key": json.dumps(_ACCOUNT)[:-9]}),
        ("gs://b/x", {"service_account": SECRET}),
        ("az://b/x", {"account_name": "a", "account_key": SECRET}),
        ("az://b/x", {"account_name": "a", "sas_token": f"sv=1&sig={SECRET}"}),
        ("az://b/x", {"account_name": "a", "bearer_token": SECRET}),
        ("az://b/x", {"account_name": "a", "tenant_id": "t", "client_id": "c",
                      "client_secret": SECRET, "authority_host": _NOBODY}),
        ("s3://b/x", {"web_identity_token_file": SECRET, "role_arn": "arn", "region": "r"}),
    ],
)  # fmt: skip
def test_credentials_of_every_cloud_are_never_shown(url: str, options: dict[str, str]) -> None:
    if not url.startswith("gs://"):
        options = {**options, "endpoint": _NOBODY}
    with pytest.raises((OSError, StorageError)) as caught:
        ObstoreBackend(url, options).create("x", [b""])
    assert SECRET not in str(caught.value) + repr(caught.value) + repr(caught.value.__cause__)


def test_a_store_that_is_opened_again_goes_on_from_what_the_process_knows(server: Options) -> None:
    with proxied(server, likely={}) as (proxy, options):
        url = f"s3://{BUCKET}/logs/{next(_numbers)}"
        with Store.open(url, create=True, storage=options) as store:
            store.create_topic("t")
            for number in range(20):
                store.append("t", 0, [b"%d" % number])
        with Store.open(url, storage=server) as elsewhere:  # another connection
            elsewhere.append("t", 0, [b"other"])
        proxy.requests.clear()
        with Store.open(url, storage=options) as store:
            assert store.start_offset("t", 0) == 0
            # store.json; whether the last commit is there; the new one, and none after it.
            assert proxy.requests == {"GET": 4}
            assert len(values(store, topic="t")) == 21
        proxy.requests.clear()
        with Store.open(url, storage=options) as store:
            store.append("t", 0, [b"last"])
        # store.json, the last commit, a poll; the commit, and the boundary.
        assert proxy.requests == {"GET": 4, "PUT": 1}
        forget_all()
        proxy.requests.clear()
        with Store.open(url, storage=options) as store:
            assert store.visible_ends("t") == (22,)
        assert proxy.requests["GET"] > 20


def test_what_a_process_knows_is_not_believed_where_the_bucket_has_changed(
    server: Options,
) -> None:
    store = make(server)
    store.append("t", 0, [b"a"])
    backend = ObstoreBackend(store.path, server)
    saved = {info.key: read_object(backend, info.key) or b"" for info in backend.list_after("")}
    store.append("t", 0, [b"lost"])
    store.close()

    def put_back(objects: Mapping[str, bytes]) -> None:
        backend.delete([info.key for info in backend.list_after("")])
        for key, data in objects.items():
            backend.put(key, [data])

    put_back(saved)  # a backup
    with again(store, server) as restored:
        assert values(restored, topic="t") == [b"a"]
        assert restored.append("t", 0, [b"b"]) == OffsetRange(1, 2)
        assert errors(restored) == []
    put_back({})
    with pytest.raises(LayoutNotFoundError):
        again(store, server)
    with Store.open(store.path, create=True, storage=server) as new:
        assert new.topics() == []
        with pytest.raises(TopicNotFoundError):
            new.append("t", 0, [b"c"])
        new.create_topic("t", 3)
        assert new.visible_ends("t") == (0, 0, 0)
    with again(store, server) as other:
        other.delete_topic("t")
        other.create_topic("t", 2)
        assert again(store, server).visible_ends("t") == (0, 0)


def test_a_manager_writes_to_a_bucket_and_a_flush_is_one_object(
    server: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"endpoint": "ENDPOINT_URL", "region": "DEFAULT_REGION"}
    for name, value in server.items():  # as a cloud's own tools have them
        monkeypatch.setenv(f"AWS_{names.get(name, name.upper())}", value)
    url = f"s3://{BUCKET}/logs/{next(_numbers)}"
    with DiskManager(StoreConfig(log_dir=url, linger_ms=60_000)) as manager:
        manager.store.create_topic("t")
        handler = manager.get_handler("t", 0)
        futures = [handler.append(b"%d" % number) for number in range(50)]
        assert futures[-1].result(30) == 49
    written = {info.key for info in ObstoreBackend(url, {}).list_after("")}
    kinds = sorted(key.rpartition(".")[2] for key in written)
    # store.json, the name of the topic; the commits of its creation and of the records.
    assert kinds == ["commit", "commit", "json", "json"]
    with Store.open(url) as store:
        assert values(store, topic="t") == [b"%d" % number for number in range(50)]
        with pytest.raises(ConfigError, match="has no current segment"):
            DiskHandler(store, "t", 0).send_current_segment(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("s3://b/log/", "s3://b/log"),
        ("s3a://b/log", "s3://b/log"),
        ("gs://b", "gs://b"),
        ("abfss://container@account/log", "abfss://container@account/log"),
        ("/data/log", None),
        ("file:///data/log", None),
        ("hdfs://name/log", None),
    ],
)
def test_urls_of_object_stores(path: str, url: str | None) -> None:
    assert store_url(path) == url


@pytest.mark.parametrize("path", ["gs:///log", "s3://", "s3://key:secret@b/x", "s3://b/x?token=1"])
def test_urls_without_a_bucket_or_with_credentials_are_refused(path: str) -> None:
    with pytest.raises(LayoutNotFoundError) as caught:
        store_url(path)
    assert "secret" not in str(caught.value)
    assert "token" not in str(caught.value)


def test_storage_options_need_a_url(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="object stores"):
        Store.open(tmp_path, create=True, storage={"region": "x"})
