"""Makes the cases with a real broker; run as a program, it writes ``tests/data/kafka`` again."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.baselines import broker
from tests.kafka.cases import CASES, Case, World
from tests.kafka.client import java_client, write_expected
from tests.support.brokers.kafka_directories import DATA, EXPECTED
from tests.support.paths import ROOT

CACHE = ROOT / "build" / "kafka"
_SETTINGS = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "log.index.size.max.bytes": 4096,
    "replica.high.watermark.checkpoint.interval.ms": 300,
    "log.flush.start.offset.checkpoint.interval.ms": 300,
    "log.initial.task.delay.ms": 300,  # else nothing is flushed for 30 seconds
    "metadata.max.idle.interval.ms": 0,
    "transaction.max.timeout.ms": 3_600_000,
    "num.network.threads": 1,
    "num.io.threads": 2,
    "background.threads": 2,
}
_QUICK_JAVA = ("-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_CHECKPOINTS_S = 1.0
"""Some intervals of both checkpoints above."""
_KEPT_ZEROS = 4096


def jars() -> list[Path]:
    """The broker's, fetched once."""
    return broker.fetch(CACHE, broker.BROKER)


@contextmanager
def world_of(directory: Path, case: Case) -> Iterator[World]:
    """A broker for a case; whatever was started has ended afterwards."""
    more = "".join(f"{key}={value}\n" for key, value in {**_SETTINGS, **case.settings}.items())
    with ExitStack() as clients, ExitStack() as running:

        def start() -> tuple[str, int]:
            return running.enter_context(broker.running(directory, jars(), more, _QUICK_JAVA))

        world = World(start, running.close, directory / "data")
        if case.needs_java:
            world.java = clients.enter_context(java_client(jars()))
        yield world


def make(case: Case, directory: Path) -> Path:
    """The log directory of a case, and in ``expected.json`` what consumers got of it."""
    work, made = directory / "work", directory / case.name
    work.mkdir(parents=True)
    with world_of(work, case) as world:
        case.make(world)
        time.sleep(_CHECKPOINTS_S)
        if case.taken == "killed":
            world.kill()
            shutil.copytree(world.data, made)
            world.start()
        seen = world.client.observe()
        if case.taken == "running":
            shutil.copytree(world.data, made)
        if case.taken == "stopped":
            world.stop()
            shutil.copytree(world.data, made)
    shutil.rmtree(work)
    write_expected(made / EXPECTED, {"what": case.what, "taken": case.taken}, seen)
    return made


def trim(directory: Path) -> None:
    """Cut the zeros that the broker added to indexes and logs, of which a log keeps some."""
    entries = {".index": 8, ".timeindex": 12, ".log": 1}
    for file in directory.rglob("*"):
        if file.suffix in entries:
            data = file.read_bytes()
            entry = entries[file.suffix]
            kept = -(-len(data.rstrip(b"\0")) // entry) * entry
            kept += _KEPT_ZEROS if file.suffix == ".log" else 0
            if kept < len(data):
                with file.open("r+b") as it:
                    it.truncate(kept)


def main(names: Iterable[str]) -> None:
    """Write the folders of the named cases, or of all."""
    chosen = set(names)
    for case in CASES:
        if not chosen or case.name in chosen:
            begun = time.monotonic()
            with tempfile.TemporaryDirectory() as work:
                made = make(case, Path(work))
                trim(made)
                shutil.rmtree(DATA / case.name, ignore_errors=True)
                shutil.copytree(made, DATA / case.name)
            files = [it for it in (DATA / case.name).rglob("*") if it.is_file()]
            size = sum(it.stat().st_size for it in files)
            print(f"{case.name}: {size:,} bytes, {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
