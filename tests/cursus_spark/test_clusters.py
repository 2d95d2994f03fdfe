"""A real cluster without a shared directory: machines die, and every record is there once."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from subprocess import Popen
from typing import Any

import pytest

from storage_core import Store
from storage_core.errors import LayoutNotFoundError
from tests.support.objects.hosts import kill_session, namespaces
from tests.support.objects.object_server import BUCKET, running
from tests.support.sizes import SEED
from tests.support.spark import cluster_child
from tests.support.spark.cluster import Cluster, cluster
from tests.support.spark.cluster_child import COPY, PARTITIONS, SOURCE
from tests.support.stores import errors, values

pytest.importorskip("obstore", reason="the extra [objects] is not installed")
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
_PATIENCE_S = 300.0


class Work:
    """A store in a bucket, and the job that fills and copies its topic."""

    def __init__(self, machines: Cluster, url: str, storage: Mapping[str, str]) -> None:
        self.machines = machines
        self.url = url
        self.storage = dict(storage)
        self._started = 0

    def start(self, rows: int, versions: list[int], batch: int) -> Popen[bytes]:
        """The job, with a checkpoint that only drivers see."""
        arguments = {
            "settings": self.machines.settings(),
            "url": self.url,
            "storage": self.storage,
            "rows": rows,
            "versions": versions,
            "checkpoint": str(self.machines.directory / "checkpoint"),
            "batch": batch,
        }
        self._started += 1
        return self.machines.start_driver(cluster_child.__name__, "job", json.dumps(arguments))

    def results(self) -> list[dict[str, int]]:
        """What the last driver said so far."""
        said = self.machines.output(f"driver{self._started - 1}").splitlines()
        lines = [line for line in said if line.startswith("RESULT ")]
        return [json.loads(line.removeprefix("RESULT ")) for line in lines]

    def open(self) -> Store:
        return Store.open(self.url, storage=self.storage)

    def copied(self) -> int:
        try:
            with self.open() as store:
                return sum(store.visible_ends(COPY)) if COPY in store.topics() else 0
        except LayoutNotFoundError:
            return 0

    def wait(self, driver: Popen[bytes], condition: Any) -> None:
        until = time.monotonic() + _PATIENCE_S
        while not condition():
            assert driver.poll() in (None, 0), self.machines.output(f"driver{self._started - 1}")
            assert time.monotonic() < until, self.machines.output(f"driver{self._started - 1}")
            time.sleep(0.1)

    def check(self, rows: int, versions: list[int]) -> None:
        """Every row once, in both topics, and each partition of the copy in the source's order."""
        with self.open() as store:
            found = [values(store, each, topic=SOURCE) for each in range(PARTITIONS)]
            wanted = sorted(b"%d-%d" % (v, row) for v in versions for row in range(rows))
            assert sorted(value for part in found for value in part) == wanted
            assert [values(store, each, topic=COPY) for each in range(PARTITIONS)] == found
            assert errors(store) == []


@pytest.fixture(scope="module")
def storage() -> Iterator[Mapping[str, str]]:
    with running() as options:
        yield options


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


def check_after_kills(work: Work, rows: int) -> None:
    """A worker is killed under a stream, then the driver; the next finishes, each row once."""
    driver = work.start(rows, versions=[1], batch=rows // 10)
    work.wait(driver, lambda: work.copied() >= rows // 10)
    assert work.results() == [{"read": rows}]
    work.machines.kill_worker(0)
    seen = work.copied()
    work.wait(driver, lambda: work.copied() > seen + rows // 10)
    assert work.copied() < rows, "the driver should be killed before it is done"
    kill_session(driver)
    work.machines.start_worker(0)
    driver = work.start(rows, versions=[1, 2], batch=rows // 2)
    work.wait(driver, lambda: len(work.results()) == 2)
    assert work.results() == [{"read": 2 * rows}, {"copied": 2 * rows, "executors": 2}]
    work.check(rows, [1, 2])


@pytest.mark.chaos
@pytest.mark.row(37, 39, 49)
def test_a_killed_worker_and_a_killed_driver_cost_and_double_no_record(
    machines: Cluster, storage: Mapping[str, str]
) -> None:
    check_after_kills(Work(machines, f"s3://{BUCKET}/once", storage), 2000)


@pytest.mark.long
@pytest.mark.chaos
@pytest.mark.row(49)
def test_machines_that_are_killed_again_and_again_cost_and_double_no_record(
    machines: Cluster, storage: Mapping[str, str]
) -> None:
    work, random = Work(machines, f"s3://{BUCKET}/often", storage), Random(SEED)
    rows, kills, versions = 3000, 8, [1]
    for kill in range(kills):
        driver = work.start(rows, versions, batch=100)
        # Anywhere: while it starts, writes, reads, or between any two steps of a micro-batch.
        until = time.monotonic() + random.uniform(4, 20)
        while driver.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        if kill % 2:
            machines.kill_worker(-1)
            machines.start_worker(0)
            time.sleep(random.uniform(0, 3))
        kill_session(driver)
        versions.append(len(versions) + 1)
    driver = work.start(rows, versions, batch=5000)
    work.wait(driver, lambda: len(work.results()) == 2)
    work.check(rows, versions)


@pytest.mark.long
@pytest.mark.chaos
@pytest.mark.row(49)
def test_hosts_with_networks_of_their_own_need_no_shared_directory(tmp_path: Path) -> None:
    with (
        namespaces(4) as (*hosts, server),
        running(server) as storage,
        cluster(tmp_path, hosts) as machines,
    ):
        check_after_kills(Work(machines, f"s3://{BUCKET}/hosts", storage), 2000)
