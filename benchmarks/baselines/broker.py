"""A real Kafka broker on this machine, downloaded and run for a benchmark or a test."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

BROKER = "org.apache.kafka:kafka_2.13:4.1.1"
_CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"
_TOKENS = "org.apache.spark:spark-token-provider-kafka-0-10_2.13"
# The connector for this version of Spark may not be published; an older one does the same work.
_VERSIONS = (pyspark.__version__, "4.2.0", "4.1.1", "4.1.0-preview1", "4.0.0")
_SPARK_JARS = Path(pyspark.__file__).parent / "jars"
_FETCH_S, _START_S, _STOP_S = 300, 60, 30
_SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={directory}/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


class UnavailableError(Exception):
    """The broker or Spark's Kafka connector is not available; the text says why."""


def connector_jars(cache: Path) -> list[Path]:
    """Spark's Kafka connector and its dependencies, newest version first.

    The two artifacts are fetched separately: not every mirror has the same versions of both.
    """
    found = _first(cache, _CONNECTOR, exclude=_TOKENS)
    tokens = [jar for jar in _first(cache, _TOKENS) if "token-provider" in jar.name]
    wanted = ("kafka", "commons-pool2")
    return [jar for jar in found if any(word in jar.name for word in wanted)] + tokens


def _first(cache: Path, artifact: str, exclude: str = "") -> list[Path]:
    for version in _VERSIONS:
        try:
            return fetch(cache, f"{artifact}:{version}", exclude)
        except UnavailableError as error:
            problem = error
    raise problem


def fetch(cache: Path, coordinates: str, exclude: str = "") -> list[Path]:
    """The jars of an artifact and its dependencies, resolved by Spark's Ivy."""
    home = cache / coordinates.replace(":", "_")
    done = home / "complete"
    if not done.exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        (home / "nothing.py").write_text("")
        print(f"· fetching {coordinates}", file=sys.stderr)
        command = [str(_SPARK_JARS.parent / "bin" / "spark-submit"), "--packages", coordinates]
        command += ["--exclude-packages", exclude] if exclude else []
        command += ["--conf", f"spark.jars.ivy={home}", str(home / "nothing.py")]
        try:
            here = {**os.environ, "PYSPARK_PYTHON": sys.executable}
            subprocess.run(command, check=True, capture_output=True, timeout=_FETCH_S, env=here)
        except (subprocess.SubprocessError, OSError) as error:
            raise UnavailableError(f"{coordinates} cannot be fetched") from error
        done.touch()
    return sorted((home / "jars").glob("*.jar"))


@contextmanager
def running(
    directory: Path, jars: Sequence[Path], more: str = "", options: Sequence[str] = ("-Xmx1g",)
) -> Iterator[tuple[str, int]]:
    """A running broker with its data in ``directory``: its address and process id.

    A broker that ran there before goes on with its data. ``more`` are settings of the broker,
    ``options`` are Java's. A caller may kill the process.
    """
    port, controller = _free_port(), _free_port()
    settings = directory / "server.properties"
    text = _SETTINGS.format(port=port, controller=controller, directory=directory)
    settings.write_text(text + more)
    java = [java_command(), *options, "-cp", class_path(jars)]
    if not (directory / "data" / "meta.properties").exists():
        _format(java, settings)
    with (directory / "broker.log").open("ab") as log:
        broker = subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=log, stderr=log)
    try:
        _wait_for(port, broker)
        yield f"127.0.0.1:{port}", broker.pid
    finally:
        broker.terminate()
        try:
            broker.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            broker.kill()
            broker.wait()


def java_command() -> str:
    """Java as the environment names it."""
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else "java"


def class_path(jars: Sequence[Path]) -> str:
    """The jars, and what they take from Spark's."""
    scala = sorted([*_SPARK_JARS.glob("scala-library-*"), *_SPARK_JARS.glob("slf4j-api-*")])
    return os.pathsep.join(map(str, [*jars, *scala]))


def _format(java: list[str], settings: Path) -> None:
    name = "Y3Vyc3VzLWJlbmNobWFyaw"  # any 16 bytes in base64
    command = [*java, "kafka.tools.StorageTool", "format", "-t", name, "-c", str(settings)]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=_START_S)
    except (subprocess.SubprocessError, OSError) as error:
        raise UnavailableError(f"the broker's directory cannot be prepared: {error}") from error


def _wait_for(port: int, broker: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and broker.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise UnavailableError(f"the Kafka broker did not start within {_START_S} s")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
