"""Names that PySpark has only since 4.2, with stand-ins that keep 4.1 working without them."""

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
        """How much a batch may read."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """Everything."""

    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """So many rows."""

        def __init__(self, max_rows: int) -> None:
            self.max_rows = max_rows

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Never asked for."""

    READ_LIMITS_REACH_SOURCES = False


__all__ = [
    "READ_LIMITS_REACH_SOURCES",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
]
