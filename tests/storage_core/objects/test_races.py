"""Processes race for one log in a real server: dense offsets, nothing lost, nothing twice.

And the same over a connection that loses, delays, repeats and cuts requests and replies.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage_core import Store, StoreConfig
from storage_core.errors import StorageError
from storage_core.objects import obstore_backend
from tests.support.objects.object_proxy import TROUBLE, proxied
from tests.support.objects.object_races import TOPIC, Options, Race
from tests.support.objects.object_server import BUCKET, running
from tests.support.sizes import LONG, SEED
from tests.support.stores import values

pytest.importorskip("obstore", reason="the extra [objects] is not installed")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[Options]:
    with running() as options:
        yield options


@pytest.mark.row(41)
def test_processes_race_for_one_log(server: Options, tmp_path: Path) -> None:
    race = Race(server, server, tmp_path)
    race.run(4, 30, 120)
    assert race.check(4, 30) == 0


@pytest.mark.long
@pytest.mark.row(41)
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("processes", [4, 8])
def test_processes_race_for_five_hundred_commits(
    server: Options, tmp_path: Path, processes: int
) -> None:
    race = Race(server, server, tmp_path)
    race.run(processes, 500, 1500)
    assert race.check(processes, 500) == 0


@pytest.mark.timeout(1800)
@pytest.mark.row(44)
def test_a_connection_that_loses_repeats_and_cuts_costs_and_invents_nothing(
    server: Options, tmp_path: Path
) -> None:
    processes, commits = (4, 300) if LONG else (3, 24)
    with proxied(server, TROUBLE, SEED) as (proxy, options):
        race = Race(server, options, tmp_path)
        race.run(processes, commits, 1500 if LONG else 120)
    race.check(processes, commits)
    assert sum(proxy.met[what] for what in TROUBLE) > processes * commits // 4
    if LONG:
        assert not [what for what in TROUBLE if not proxy.met[what]]


@pytest.mark.row(44)
def test_a_read_over_a_bad_connection_is_whole_or_an_error(server: Options, tmp_path: Path) -> None:
    url = f"s3://{BUCKET}/{tmp_path.name}-read"
    store = Store.open(url, create=True, storage=server)
    store.create_topic(TOPIC, 1)
    wanted = [b"%06d" % each + b"x" * 2000 for each in range(3000)]
    store.append(TOPIC, 0, wanted)
    cuts = {"reply cut off": 0.3, "500": 0.1, "reply lost": 0.1, "503": 0.1}
    with proxied(server, cuts, SEED) as (proxy, options):
        for _ in range(3):
            assert values(Store.open(url, storage=options), topic=TOPIC) == wanted
        assert proxy.met["reply cut off"] > 0


@pytest.mark.row(44, 47)
def test_a_server_that_does_not_answer_is_given_up_in_time(
    server: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(obstore_backend, "_TIMEOUT", "1s")
    url = f"s3://{BUCKET}/{tmp_path.name}-gone"
    store: Any = Store.open(url, create=True, storage=server)
    store.create_topic(TOPIC, 1)
    with proxied(server, {"request lost": 1.0}, SEED) as (_, options):
        config = StoreConfig(lock_timeout_ms=1500)
        since = time.monotonic()
        with pytest.raises(StorageError, match="s3://"):
            Store.open(url, config=config, storage=options).append(TOPIC, 0, [b"x"])
        assert time.monotonic() - since < 20
    assert values(store, topic=TOPIC) == []
