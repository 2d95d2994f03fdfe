"""Sources that are ``cursus`` but for one fault: what happens to writers in real clusters.

The fault sits in a subclass of the tests, under a format name of its own. Workers import it from
here, so it strikes inside the real processes of a real job.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from cursus_spark.datasource import CursusDataSource
from cursus_spark.options.parse import parse_write_options
from cursus_spark.write.task_commit import TaskCommit
from cursus_spark.write.writer import CursusWriter
from storage_core.commit.intents import Intent, Intents
from storage_core.vfs.posix import PosixVfs

DRIVER_GROUP = "CURSUS_TEST_DRIVER_GROUP"
"""Process group of the driver, which its workers are no part of."""


def kill_driver() -> None:
    """End the driver, its JVM and this worker at this very instruction."""
    os.killpg(int(os.environ[DRIVER_GROUP]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def kill_worker() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_executor() -> None:
    """End the JVM that this worker's daemon belongs to, if it is an executor and not the driver."""
    daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
    executor = int(daemon.rpartition(")")[2].split()[1])
    command = Path(f"/proc/{executor}/cmdline").read_bytes()
    assert b"CoarseGrainedExecutorBackend" in command, command[:200]
    os.kill(executor, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    raise RuntimeError("this attempt was made to fail")


class FaultyTask(CursusWriter):
    """Strikes in the first attempts of task 1, when some of its rows are staged."""

    fault: Callable[[], None]
    attempts: int

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        context = TaskContext.get()
        assert context is not None
        strikes = context.partitionId() == 1 and context.attemptNumber() < self.attempts
        return super().write(self._until(iterator) if strikes else iterator)

    def _until(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield next(batches)
        type(self).fault()


class FailsTwice(FaultyTask):
    fault = staticmethod(fail)
    attempts = 2


class WorkerKilled(FaultyTask):
    fault = staticmethod(kill_worker)
    attempts = 1


class ExecutorKilled(FaultyTask):
    fault = staticmethod(kill_executor)
    attempts = 1


class DriverKilledBeforeIntent(CursusWriter):
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        def die(*_: object) -> None:
            kill_driver()

        with patch.object(Intents, "write", die):
            super().commit(messages)


class DriverKilledAfterIntent(CursusWriter):
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        write = Intents.write

        def write_and_die(intents: Intents, intent: Intent) -> None:
            write(intents, intent)
            kill_driver()

        with patch.object(Intents, "write", write_and_die):
            super().commit(messages)


class KilledWhileApplied(CursusWriter):
    """Dies inside the second write to a log, of which half is there; nobody aborts."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        pwritev, written = PosixVfs.pwritev, 0

        def die(vfs: PosixVfs, fd: int, buffers: Sequence[bytes], position: int) -> int:
            nonlocal written
            if not os.readlink(f"/proc/self/fd/{fd}").endswith(".log"):
                return pwritev(vfs, fd, buffers, position)
            written += 1
            if written == 2:
                data = b"".join(buffers)
                os.pwrite(fd, data[: len(data) // 2], position)
                kill_worker()
            return pwritev(vfs, fd, buffers, position)

        with patch.object(PosixVfs, "pwritev", die):
            super().commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        kill_worker()


class _Faulty(CursusDataSource):
    made: type[CursusWriter]

    def writer(self, schema: StructType, overwrite: bool) -> CursusWriter:
        assert not overwrite
        return self.made(parse_write_options(self.options), schema)


class FailsTwiceSource(_Faulty):
    made = FailsTwice

    @classmethod
    def name(cls) -> str:
        return "fails_twice"


class WorkerKilledSource(_Faulty):
    made = WorkerKilled

    @classmethod
    def name(cls) -> str:
        return "worker_killed"


class ExecutorKilledSource(_Faulty):
    made = ExecutorKilled

    @classmethod
    def name(cls) -> str:
        return "executor_killed"


class DriverKilledBeforeIntentSource(_Faulty):
    made = DriverKilledBeforeIntent

    @classmethod
    def name(cls) -> str:
        return "driver_killed_before_intent"


class DriverKilledAfterIntentSource(_Faulty):
    made = DriverKilledAfterIntent

    @classmethod
    def name(cls) -> str:
        return "driver_killed_after_intent"


class KilledWhileAppliedSource(_Faulty):
    made = KilledWhileApplied

    @classmethod
    def name(cls) -> str:
        return "killed_while_applied"


SOURCES = (
    FailsTwiceSource,
    WorkerKilledSource,
    ExecutorKilledSource,
    DriverKilledBeforeIntentSource,
    DriverKilledAfterIntentSource,
    KilledWhileAppliedSource,
)
