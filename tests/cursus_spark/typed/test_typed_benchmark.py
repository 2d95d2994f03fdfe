"""The benchmark of typed topics runs, on sizes too small to mean anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks import data, typed
from benchmarks.measure import table


@pytest.mark.slow
@pytest.mark.spark
def test_every_row_is_measured_and_nothing_is_left_behind(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert SparkSession.getActiveSession() is spark
    rows = list(typed.measure(data.TINY, tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert all(row.ratio > 0 for row in rows)
    shown = table(rows)
    for what in ("ready-made", "from_json", "to_json", "two of six", "Parquet zstd", "where"):
        assert what in shown
