"""Running the command, in this process or in its own, and stores for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from storage_core import Store
from storage_core.cli.app import cli
from tests.support.paths import ROOT
from tests.support.stores import T0

TOPIC = "orders"
LAYOUTS = ("native", "cursus", "cursus-broker", "rustlog")

COMMAND = [sys.executable, "-m", "storage_core"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}


class Answer(NamedTuple):
    """What a run gave."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def objects(self) -> list[Any]:
        """One for each line."""
        return [json.loads(line) for line in self.lines]


def run(*words: object, given: str | bytes | None = None) -> Answer:
    """Run the command in this process; any exception but an exit fails the test."""
    result = CliRunner().invoke(cli, [str(word) for word in words], input=given)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Answer(result.exit_code, result.stdout, result.stderr)


def done(*words: object, given: str | bytes | None = None) -> Answer:
    """Run the command and require that it is content."""
    answer = run(*words, given=given)
    assert answer.code == 0, answer
    return answer


# A shell starts what runs in the background with SIGINT ignored, and every child inherits that.
_WITH_SIGINT = (
    "import os, signal, sys;"
    "signal.signal(signal.SIGINT, signal.SIG_DFL);"
    "os.execv(sys.argv[1], sys.argv[1:])"
)


def spawn(*words: object, **settings: Any) -> subprocess.Popen[bytes]:
    """Run the command in a process of its own, which SIGINT interrupts however we were started."""
    return subprocess.Popen(
        [sys.executable, "-ISc", _WITH_SIGINT, *COMMAND, *(str(word) for word in words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        **settings,
    )


def made(path: Path, layout: str = "native", values: int = 5, partitions: int = 1) -> Path:
    """A store of some layout with numbered records in each partition."""
    done("create", path, TOPIC, "-p", partitions, "--layout", layout)
    for partition in range(partitions):
        lines = "".join(f"value-{number}\n" for number in range(values))
        done("append", path, TOPIC, "-p", partition, given=lines)
    return path


def timed(path: Path, partitions: int = 1, **settings: Any) -> Path:
    """A native store with keys, headers, and a record for each second from ``T0`` on."""
    with Store.open(path, create=True) as store:
        store.create_topic(TOPIC, partitions, **settings)
        for partition in range(partitions):
            store.append(
                TOPIC,
                partition,
                [f"value-{number}".encode() for number in range(10)],
                keys=[b"k", None] * 5,
                timestamps=[T0 + number * 1_000_000 for number in range(10)],
                headers=[{"h": b"x"}, None] * 5,
            )
    return path


def values_of(path: Path, *words: object) -> list[str]:
    """The values that ``cat`` prints."""
    return done("cat", path, TOPIC, "--raw", *words).lines


EVENTS_DDL = "id BIGINT NOT NULL, user STRING, ts TIMESTAMP, tags ARRAY<STRING>"
EVENTS = (
    '{"id": 1, "user": "ada", "ts": "2026-11-01T09:00:00.000000Z", "tags": ["a", null]}\n'
    '{"id": 2, "user": "bob", "ts": "2026-11-01T10:00:00.000000Z", "tags": null}\n'
    '{"id": 3, "user": null, "ts": "2026-11-01T11:00:00.000000Z", "tags": []}\n'
)


def made_typed(path: Path, *words: object, rows: str = EVENTS) -> Path:
    """A native store with a typed topic, and rows in it."""
    done("create", path, TOPIC, "--schema", EVENTS_DDL, "--timestamp-column", "ts", *words)
    done("append", path, TOPIC, "--json", given=rows)
    return path
