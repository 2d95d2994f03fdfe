"""Processes race for one log in a real server: dense offsets, nothing lost, nothing twice.

And the same over a connection that loses, delays, repeats and cuts requests and replies.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from storage_core import Store, StoreConfig
from storage_core.errors import StorageError
from storage_core.objects import obstore_backend
from tests.support.object_proxy import TROUBLE, proxied
from tests.support.object_server import BUCKET, running
from tests.support.sizes import LONG, SEED
from tests.support.stores import columns_of, errors, offsets, values

pytest.importorskip("obstore", reason="the extra [objects] is not installed")
pytestmark = pytest.mark.slow
Options = Mapping[str, str]
TOPIC = "t"


@pytest.fixture(scope="module")
def server() -> Iterator[Options]:
    with running() as options:
        yield options


def write(url: str, options: Options, name: int, commits: int, acks: str) -> None:
    """Appends and commits of one process; what was acknowledged, and what nobody knows."""
    obstore_backend._TIMEOUT = "3s"
    store, random = Store.open(url, storage=options), Random(name)
    with Path(acks).open("w") as file:
        for number in range(commits):
            value = f"{name}-{number}"
            versioned = number % 3 == 0
            while True:
                try:
                    found = _write_one(store, value, number if versioned else None, f"app{name}")
                    json.dump(["sure", value, found], file)
                    break
                except StorageError as error:
                    # Only a version may be repeated: the log knows whether it happened.
                    if not versioned:
                        json.dump(["unknown", value, error.code], file)
                        break
                    time.sleep(random.uniform(0, 0.1))
                finally:
                    file.write("\n")
                    file.flush()


def _write_one(store: Store, value: str, version: int | None, app: str) -> int | None:
    if version is None:
        return store.append(TOPIC, 0, [value.encode()]).start
    job = f"{app}-{version}"
    stage = store.stage(job)
    for partition in (0, 1):
        stage.write(TOPIC, partition, columns_of([value.encode()]))
    store.commit(job, stage.finish(), app=app, version=version)
    return None


class Race:
    """Processes that write to one store, and what they know."""

    def __init__(self, direct: Options, used: Options, directory: Path) -> None:
        self._direct, self._used, self._directory = direct, used, directory
        self.url = f"s3://{BUCKET}/{directory.name}-{time.monotonic_ns()}"
        store = Store.open(self.url, create=True, storage=direct)
        store.create_topic(TOPIC, 2)

    def run(self, processes: int, commits: int, seconds: float) -> None:
        context = multiprocessing.get_context("spawn")
        started = [
            context.Process(
                target=write,
                args=(self.url, dict(self._used), name, commits, str(self._acks(name))),
            )
            for name in range(processes)
        ]
        for process in started:
            process.start()
        until = time.monotonic() + seconds
        for process in started:
            process.join(max(1.0, until - time.monotonic()))
        alive = [process for process in started if process.is_alive()]
        for process in alive:
            process.kill()
        assert not alive, "a writer did not end in time"
        assert [process.exitcode for process in started] == [0] * processes

    def _acks(self, name: int) -> Path:
        return self._directory / f"{name}.jsonl"

    def check(self, processes: int, commits: int) -> int:
        """Compare the log with what the writers know; return how many outcomes are unknown."""
        with Store.open(self.url, storage=self._direct) as store:
            found = [[value.decode() for value in values(store, p, topic=TOPIC)] for p in (0, 1)]
            for partition in (0, 1):
                assert offsets(store, partition, topic=TOPIC) == list(range(len(found[partition])))
            assert errors(store) == []
        assert len(set(found[0])) == len(found[0]), "a record is there twice"
        places, unknown = {value: at for at, value in enumerate(found[0])}, 0
        wanted, versions = set[str](), set[str]()
        for name in range(processes):
            lines = [json.loads(line) for line in self._acks(name).read_text().split("\n") if line]
            told = {value: (kind, offset) for kind, value, offset in lines}
            assert len(told) == commits
            for number, (value, (kind, offset)) in enumerate(told.items()):
                unknown += kind == "unknown"
                if kind == "sure":
                    wanted.add(value)
                    assert value in places, "an acknowledged record is lost"
                    assert offset in (None, places[value]), "a record has another offset"
                if number % 3 == 0:
                    versions.add(value)
            own = [places[value] for value in told if value in places]
            assert own == sorted(own), "records of one writer are in another order"
        assert set(found[0]) - wanted <= {
            f"{n}-{c}" for n in range(processes) for c in range(commits)
        }
        assert len(set(found[0]) - wanted) <= unknown, "a record was invented"
        assert sorted(found[1]) == sorted(versions), "a version is half there, or twice"
        return unknown


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
