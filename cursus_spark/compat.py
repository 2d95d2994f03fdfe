"""What differs between releases of PySpark: names since 4.2, and a private class of 4.1 to 4.3."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import pyspark

if TYPE_CHECKING:
    import pyarrow as pa

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    READ_LIMITS_REACH_SOURCES = True
except ImportError:  # PySpark 4.1: no limits and no AvailableNow for Python sources.

    class ReadLimit:  # type: ignore[no-redef]
        """How much a micro-batch may read."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """Everything that is available."""

    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """At most a number of rows."""

        def __init__(self, max_rows: int) -> None:
            self.max_rows = max_rows

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """PySpark 4.1 never asks for it."""

    READ_LIMITS_REACH_SOURCES = False


# The releases whose planning process was read and is tested (make test-matrix).
_KNOWN_RELEASES = ("4.1", "4.2", "4.3")
_PLANNER = "pyspark.sql.streaming.python_streaming_source_runner"


@cache
def prefetching_class() -> type | None:
    """PySpark's private class of readers that hand Spark batches with a plan; None if unknown."""
    if ".".join(pyspark.__version__.split(".")[:2]) not in _KNOWN_RELEASES:
        return None
    try:
        from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper as found

        arguments = list(inspect.signature(found.getCache).parameters)
    except (ImportError, AttributeError):
        return None
    return found if arguments == ["self", "start", "end"] else None


def spark_takes_batches() -> bool:
    """Whether this is PySpark's planning process, of a release that takes batches with a plan."""
    program = getattr(sys.modules.get("__main__"), "__spec__", None)
    return program is not None and program.name == _PLANNER and prefetching_class() is not None


class HandsOverBatches:
    """A stream reader that can hand Spark the batches of a plan together with the plan.

    PySpark's planning process asks ``isinstance(reader, _SimpleStreamReaderWrapper)`` right after
    ``partitions``, and of such a reader it takes the batches from ``getCache``. So a reader says
    that it is one as long as it holds batches, and at no other time: everywhere else PySpark
    treats such a reader as one without limits and without ``reportLatestOffset``.
    """

    _held: Sequence[pa.RecordBatch] | None = None

    def hold(self, batches: Sequence[pa.RecordBatch] | None) -> None:
        """Keep all batches of the plan that ``partitions`` is about to return; None has none."""
        self._held = batches

    def getCache(  # noqa: N802
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Iterator[pa.RecordBatch] | None:
        """The batches that are held, once; called after ``partitions``, with its arguments."""
        del start, end
        held, self._held = self._held, None
        return None if held is None else iter(held)

    def _class_for_spark(self) -> type:
        return (None if self._held is None else prefetching_class()) or type(self)

    __class__ = property(_class_for_spark)


__all__ = [
    "READ_LIMITS_REACH_SOURCES",
    "HandsOverBatches",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "prefetching_class",
    "spark_takes_batches",
]
