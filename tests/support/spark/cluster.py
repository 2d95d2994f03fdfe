"""A Spark standalone cluster for tests: a master and workers, each a process in its own directory.

With namespaces as hosts they have networks of their own, too. The first host is that of the master
and of the drivers.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

import pyspark

from tests.support.objects.hosts import LOOPBACK, Host, free_port, kill_session
from tests.support.paths import ROOT

_SPARK = Path(pyspark.__file__).parent
_SPARK_CLASS = _SPARK / "bin" / "spark-class"
_DAEMON = "org.apache.spark.deploy.{0}.{1}"
# Short lives: compile lightly, collect plainly.
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_PATIENCE_S = 120.0


class Cluster:
    """A master and its workers. Every worker has one core and one executor of a driver."""

    def __init__(self, directory: Path, hosts: Sequence[Host]) -> None:
        self.directory = directory
        self.host, *self._hosts = hosts
        port = free_port()
        self.master = f"spark://{self.host.address}:{port}"
        place = ["--host", self.host.address, "--port", str(port), "--webui-port", "0"]
        self._workers: list[Popen[bytes]] = []
        self._drivers: list[Popen[bytes]] = []
        self._master = self._daemon(self.host, "master", "Master", place)
        self._await("master", self._master, "I have been elected leader")

    def start_worker(self, at: int) -> None:
        """Start a worker on the host of this number, from 0, and wait until the master knows it."""
        host, name = self._hosts[at], f"worker{len(self._workers)}"
        own = ["--host", host.address, "--webui-port", "0", "--cores", "1", "--memory", "1g"]
        work = ["--work-dir", str(self.directory / name / "work"), self.master]
        worker = self._daemon(host, name, "Worker", [*own, *work])
        self._workers.append(worker)
        self._await(name, worker, "Successfully registered with master")

    def kill_worker(self, number: int) -> None:
        """Kill a worker with its executors, in the order of ``start_worker``."""
        kill_session(self._workers[number])

    def start_driver(self, module: str, *arguments: str) -> Popen[bytes]:
        """Start a program of the tests on the master's host: ``python -m module arguments``."""
        command = [sys.executable, "-m", module, *arguments]
        name = f"driver{len(self._drivers)}"
        driver = self.host.start(command, self.directory / name, self.environment(name))
        self._drivers.append(driver)
        return driver

    def output(self, name: str) -> str:
        """What a process has printed: ``master``, ``worker0``, ``driver0``, …"""
        path = self.directory / name / "output.txt"
        return path.read_text(errors="replace") if path.exists() else ""

    def environment(self, name: str) -> dict[str, str]:
        """Variables of every process: its address, and temporary files of its own."""
        own = self.directory / name / "tmp"
        own.mkdir(parents=True, exist_ok=True)
        return {
            "SPARK_HOME": str(_SPARK),
            "SPARK_LOCAL_DIRS": str(own),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _JVM,
            "TMPDIR": str(own),
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "OPENBLAS_NUM_THREADS": "1",
        }

    def settings(self) -> dict[str, str]:
        """Settings of a driver's session: small executors, and its own address."""
        return {
            "spark.master": self.master,
            "spark.ui.enabled": "false",
            "spark.driver.host": self.host.address,
            "spark.driver.bindAddress": self.host.address,
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": _JVM,
            "spark.executorEnv.PYTHONPATH": str(ROOT),
            "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",
            "spark.sql.shuffle.partitions": "2",
        }

    def stop(self) -> None:
        for process in (*self._drivers, *self._workers, self._master):
            kill_session(process)

    def _daemon(self, host: Host, name: str, kind: str, arguments: list[str]) -> Popen[bytes]:
        command = [str(_SPARK_CLASS), _DAEMON.format(kind.lower(), kind), *arguments]
        return host.start(command, self.directory / name, self.environment(name))

    def _await(self, name: str, process: Popen[bytes], line: str) -> None:
        until = time.monotonic() + _PATIENCE_S
        while line not in self.output(name):
            assert process.poll() is None, self.output(name)
            assert time.monotonic() < until, self.output(name)
            time.sleep(0.1)


@contextmanager
def cluster(directory: Path, hosts: Sequence[Host] = (LOOPBACK,) * 3) -> Iterator[Cluster]:
    """A cluster with a worker on every host after the first."""
    running = Cluster(directory, hosts)
    try:
        for at in range(len(hosts) - 1):
            running.start_worker(at)
        yield running
    finally:
        running.stop()
