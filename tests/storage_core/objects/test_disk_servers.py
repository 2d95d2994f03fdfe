"""Stores on servers with their data on disk: killed, started again, and some that are wrong."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

import pytest

from storage_core import Store
from storage_core.errors import StoreSemanticsError
from storage_core.objects.obstore_backend import ObstoreBackend
from storage_core.objects.semantics import semantics_problems
from tests.support.objects.disk_servers import SOUND, UNSOUND, DiskServer, disk_server
from tests.support.objects.object_races import Race
from tests.support.objects.object_server import BUCKET
from tests.support.sizes import SEED
from tests.support.stores import columns_of, errors, values

pytest.importorskip("obstore", reason="the extra [objects] is not installed")
pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.timeout(1800)]
_numbers = itertools.count()


@pytest.fixture(scope="module", params=SOUND)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DiskServer]:
    with disk_server(SOUND[request.param], tmp_path_factory.mktemp(request.param)) as found:
        yield found


@pytest.mark.row(41)
def test_processes_race(server: DiskServer, tmp_path: Path) -> None:
    race = Race(server.options, server.options, tmp_path, server.url)
    race.run(4, 60, 600)
    assert race.check(4, 60) == 0


def test_the_gate_finds_nothing_at_length(server: DiskServer) -> None:
    backend = ObstoreBackend(f"{server.url}/gate-{next(_numbers)}", server.options)
    assert list(semantics_problems(backend, 30)) == []


def test_a_store_is_written_read_and_collected(server: DiskServer) -> None:
    url = f"{server.url}/store-{next(_numbers)}"
    store = Store.open(url, create=True, storage=server.options)
    store.create_topic("t", 2)
    found = [b"%05d" % each + b"x" * 2000 for each in range(4000)]
    store.append("t", 0, found)
    for version in range(210):
        stage = store.stage(f"job-{version}")
        for partition in (0, 1):
            stage.write("t", partition, columns_of([b"%d" % version]))
        store.commit(f"job-{version}", stage.finish(), app="app", version=version)
    store.commit_offsets("g", {"t": {0: 5}})
    store.delete_records("t", {1: 100})
    store.collect_garbage()
    again = Store.open(url, storage=server.options)
    numbers = [b"%d" % version for version in range(210)]
    assert values(again, topic="t") == found + numbers
    assert values(again, 1, topic="t") == numbers[100:]
    assert again.committed_offsets("g") == {"t": {0: 5}}
    assert errors(again) == []


def killed_meanwhile(server: DiskServer, random: Random, work: Callable[[], None]) -> int:
    """Kill and start a server again and again until some work is done; return how often."""
    done, kills = threading.Event(), 0

    def kill() -> None:
        nonlocal kills
        while not done.wait(random.uniform(1, 5)):
            server.kill()
            time.sleep(random.uniform(0, 1))
            server.start()
            kills += 1

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        work()
    finally:
        done.set()
        killer.join(120)
    return kills


@pytest.mark.row(47)
def test_a_server_that_is_killed_under_writers_costs_and_doubles_nothing(
    server: DiskServer, tmp_path: Path
) -> None:
    if not server.kind.durable:
        pytest.skip("this server loses what it has acknowledged when it is killed")
    random, kills, commits = Random(SEED), 0, 500
    while kills < 3:  # some servers take long to start again
        race = Race(server.options, server.options, tmp_path, server.url)
        kills += killed_meanwhile(server, random, partial(race.run, 4, commits, 1500))
        race.check(4, commits)


def test_a_container_has_more_than_one_name(tmp_path: Path) -> None:
    with disk_server(SOUND["azurite"], tmp_path) as server:
        account = f"{server.options['account_name']}.dfs.core.windows.net"
        for number, root in enumerate((f"abfss://{BUCKET}@{account}", f"abfss://{BUCKET}")):
            with Store.open(f"{root}/{number}", create=True, storage=server.options) as store:
                store.create_topic("t")
                store.append("t", 0, [b"a"])
            with Store.open(f"{server.url}/{number}", storage=server.options) as store:
                assert values(store, topic="t") == [b"a"]


@pytest.mark.parametrize("name", UNSOUND)
@pytest.mark.row(48)
def test_a_server_that_ignores_conditions_gets_no_store(name: str, tmp_path: Path) -> None:
    with (
        disk_server(UNSOUND[name], tmp_path) as server,
        pytest.raises(StoreSemanticsError, match="succeed"),
    ):
        Store.open(f"{server.url}/log", create=True, storage=server.options)
