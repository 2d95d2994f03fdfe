"""Names that PySpark has since 4.2, and substitutes for PySpark 4.1."""

from __future__ import annotations

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


__all__ = [
    "READ_LIMITS_REACH_SOURCES",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
]
