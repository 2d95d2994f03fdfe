"""Processes that race for one log in an object store, and the comparison with what they know."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random

from storage_core import Store
from storage_core.errors import StorageError
from storage_core.objects import obstore_backend
from tests.support.objects.object_server import BUCKET
from tests.support.stores import columns_of, errors, offsets, values

Options = Mapping[str, str]
TOPIC = "t"


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

    def __init__(
        self, direct: Options, used: Options, directory: Path, root: str = f"s3://{BUCKET}"
    ) -> None:
        self._direct, self._used, self._directory = direct, used, directory
        self.url = f"{root}/{directory.name}-{time.monotonic_ns()}"
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
            outcome = {value: (kind, offset) for kind, value, offset in lines}
            assert len(outcome) == commits
            for number, (value, (kind, offset)) in enumerate(outcome.items()):
                unknown += kind == "unknown"
                if kind == "sure":
                    wanted.add(value)
                    assert value in places, "an acknowledged record is lost"
                    assert offset in (None, places[value]), "a record has another offset"
                if number % 3 == 0:
                    versions.add(value)
            own = [places[value] for value in outcome if value in places]
            assert own == sorted(own), "records of one writer are in another order"
        assert set(found[0]) - wanted <= {
            f"{n}-{c}" for n in range(processes) for c in range(commits)
        }
        assert len(set(found[0]) - wanted) <= unknown, "a record was invented"
        assert sorted(found[1]) == sorted(versions), "a version is half there, or twice"
        return unknown
