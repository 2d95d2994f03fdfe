"""``.format("cursus-killing")``: the real source and sink, in workers that die at named steps.

Nothing of this is in the product: the steps are patched from outside, in the worker that is about
to take them. A test arms steps by files, and each file kills once.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition, WriterCommitMessage
from pyspark.sql.types import StructType

from cursus_spark.compat import ReadLimit
from cursus_spark.datasource import CursusDataSource
from cursus_spark.options.parse import parse_stream_read_options, parse_stream_write_options
from cursus_spark.stream.reader import CursusStreamReader
from cursus_spark.stream.writer import CursusStreamWriter
from cursus_spark.write.task_commit import TaskCommit
from storage_core.commit.append_staged import append_staged
from storage_core.commit.intents import Intents
from storage_core.commit.ledger import Ledger
from storage_core.log.open_logs import OpenLogs
from tests.support.patching import replaced

SOURCE_STEPS = (
    "before latest offset",
    "after latest offset",
    "after inline read",
    "after plan",
    "in hand-over",
    "in read",
)
SINK_STEPS = (
    "before stage",
    "after stage",
    "before intent",
    "after intent",
    "after apply",
    "after ledger",
    "after publish",
    "after removal",
    "before commit log",
)
_AFTER: tuple[tuple[Any, str, str], ...] = (
    (Intents, "write", "after intent"),
    (Ledger, "record", "after ledger"),
    (OpenLogs, "publish_ends", "after publish"),
    (Intents, "remove", "after removal"),
)


@dataclass(frozen=True)
class Deaths:
    """The steps that are armed, as files of one directory."""

    directory: str

    def arm(self, step: str, *, nth: int = 1, group: int = 0) -> None:
        """Kill who takes the step the ``nth`` time, or with ``group`` a whole process group."""
        assert step in SOURCE_STEPS + SINK_STEPS
        Path(self.directory).mkdir(parents=True, exist_ok=True)
        self._flag(step).write_text(f"{nth} {group}")

    def never_abort(self) -> None:
        """Kill who aborts, always: as if the driver was killed, nobody tidies up."""
        Path(self.directory).mkdir(parents=True, exist_ok=True)
        self._flag("abort.always").touch()

    def aborting(self) -> None:
        """Die here, if nobody may abort."""
        if self._flag("abort.always").exists():
            os.kill(os.getpid(), signal.SIGKILL)

    def armed(self) -> list[str]:
        """Steps that nobody was killed at yet."""
        return sorted(path.name for path in Path(self.directory).glob("*") if not path.suffix)

    def reached(self, step: str) -> None:
        """Die here, if the step is armed."""
        flag = self._flag(step)
        try:
            nth, group = map(int, flag.read_text().split())
        except FileNotFoundError:
            return
        if nth > 1:
            flag.write_text(f"{nth - 1} {group}")
            return
        try:
            flag.rename(flag.with_suffix(".done"))
        except FileNotFoundError:
            return  # another task of the same step was faster
        if group:
            os.killpg(group, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def _flag(self, step: str) -> Path:
        return Path(self.directory) / step

    @contextmanager
    def in_commits(self) -> Iterator[None]:
        """Make the steps of the commit protocol deadly."""
        with pytest.MonkeyPatch.context() as patch:
            replaced(append_staged, self._then(append_staged, "after apply"))(patch)
            for owner, method, step in _AFTER:
                patch.setattr(owner, method, self._then(getattr(owner, method), step))
            yield

    def _then(self, original: Any, step: str) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            if step == "after intent":
                self.reached("before intent")
            result = original(*arguments, **named)
            self.reached(step)
            return result

        return call


class KillingStreamReader(CursusStreamReader):
    """The source, dying."""

    def __init__(self, options: Any, schema: StructType, deaths: Deaths) -> None:
        super().__init__(options, schema)
        self._deaths = deaths

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "deaths": self._deaths}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._deaths = state.pop("deaths")
        super().__setstate__(state)

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        self._deaths.reached("before latest offset")
        found = super().latestOffset(start, limit)
        self._deaths.reached("after latest offset")
        return found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        found = super().partitions(start, end)
        self._deaths.reached("after plan")
        return found

    def hold(self, batches: Sequence[pa.RecordBatch] | None) -> None:
        super().hold(batches)
        if batches is not None:
            self._deaths.reached("after inline read")

    def getCache(  # noqa: N802
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Iterator[pa.RecordBatch] | None:
        found = super().getCache(start, end)
        if found is not None:
            self._deaths.reached("in hand-over")
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in super().read(partition):
            yield batch
            self._deaths.reached("in read")


class KillingStreamWriter(CursusStreamWriter):
    """The sink, dying."""

    def __init__(self, options: Any, schema: StructType, deaths: Deaths) -> None:
        super().__init__(options, schema)
        self._deaths = deaths

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        self._deaths.reached("before stage")
        staged = super().write(iterator)
        self._deaths.reached("after stage")
        return staged

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        with self._deaths.in_commits():
            super().commit(messages, batchId)
        self._deaths.reached("before commit log")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._deaths.aborting()
        super().abort(messages, batchId)


class KillingDataSource(CursusDataSource):
    """The data source; option ``deaths`` is the directory of armed steps."""

    def __init__(self, options: Any) -> None:
        given = dict(options)
        self._deaths = Deaths(given.pop("deaths"))
        super().__init__(given)

    @classmethod
    def name(cls) -> str:
        return "cursus-killing"

    def streamReader(self, schema: StructType) -> KillingStreamReader:  # noqa: N802
        return KillingStreamReader(parse_stream_read_options(self.options), schema, self._deaths)

    def streamWriter(self, schema: StructType, overwrite: bool) -> KillingStreamWriter:  # noqa: N802
        assert not overwrite
        return KillingStreamWriter(parse_stream_write_options(self.options), schema, self._deaths)
