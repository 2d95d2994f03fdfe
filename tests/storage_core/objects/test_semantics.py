"""The semantics gate over real connections: servers that break a promise are refused by name."""

from __future__ import annotations

import pytest

from storage_core import Store, StoreConfig
from storage_core.errors import StoreSemanticsError
from storage_core.objects.obstore_backend import ObstoreBackend
from storage_core.objects.semantics import semantics_problems
from storage_core.store import open_directory as promises
from tests.support.objects.object_server import BUCKET
from tests.support.objects.small_s3 import FAULTS, as_google, small_server
from tests.support.stores import errors, values

pytest.importorskip("obstore", reason="the extra [objects] is not installed")
FOUND = {
    "conditions are ignored": "a second create of the same object succeeds",
    "creates are ignored": "a second create of the same object succeeds",
    "tags are ignored": "conditional replacements at once",
    "check, then put": "creates of one object at once",
    "listings are old": "a listing does not show what was written",
    "listings end early": "a listing does not show what was written",
}


def test_a_server_that_keeps_its_promises_gets_a_store() -> None:
    with small_server() as options:
        store = Store.open(f"s3://{BUCKET}/log", create=True, storage=options)
        store.create_topic("t")
        store.append("t", 0, [b"a"])
        assert values(Store.open(store.path, storage=options), topic="t") == [b"a"]
        assert promises.semantics_problems(store.path, StoreConfig(), options, rounds=5) == []


def test_a_store_lives_in_a_bucket_of_google() -> None:
    """Its conditions are about generations, not about tags."""
    with small_server() as options:
        google = as_google(options)
        store = Store.open(f"gs://{BUCKET}/log", create=True, storage=google)
        store.create_topic("t")
        store.append("t", 0, [b"a"])
        store.commit_offsets("g", {"t": {0: 1}})
        store.commit_offsets("g", {"t": {0: 0}})
        again = Store.open(store.path, storage=google)
        assert (values(again, topic="t"), errors(again)) == ([b"a"], [])
        assert again.committed_offsets("g") == {"t": {0: 0}}
        assert promises.semantics_problems(store.path, StoreConfig(), google, rounds=5) == []


def test_a_bucket_of_google_that_ignores_generations_gets_no_store() -> None:
    with small_server("conditions are ignored") as options, pytest.raises(StoreSemanticsError):
        Store.open(f"gs://{BUCKET}/log", create=True, storage=as_google(options))


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.row(48)
def test_a_server_that_breaks_a_promise_gets_no_store(fault: str) -> None:
    with small_server(fault) as options:
        with pytest.raises(StoreSemanticsError, match=FOUND[fault]):
            Store.open(f"s3://{BUCKET}/log", create=True, storage=options)
        backend = ObstoreBackend(f"s3://{BUCKET}/log", options)
        assert list(semantics_problems(backend, 1))
        list(backend.list_after(""))  # the next listing of one that is late is true
        assert list(backend.list_after("")) == []
