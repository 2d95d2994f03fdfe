"""The benchmarks of stores of objects run, on sizes too small to mean anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks import data, object_costs, objects

pytest.importorskip("obstore", reason="the extra [objects] is not installed")
pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_objects_are_measured_and_their_requests_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert spark.version
    rows = list(objects.measure(data.TINY, tmp_path))
    found = {row.what: row for row in rows}
    counted = [row for what, row in found.items() if what.startswith(("requests", "…"))]
    assert [row.what for row in counted if row.verdict == "MISSED"] == []
    assert len(counted) == 6
    for what in ("Spark read of", "Spark write of", "commits, 2 writers", "rebases a commit"):
        assert any(name.startswith(what) for name in found), what
    both = [row.what[:10] for row in rows if row.baseline.endswith("at once")]
    assert both == ["Spark read", "Spark writ"]
    for what in ("Spark's read", "Spark's write"):
        assert f"processor time of {what}: the server" in found
        assert f"processors busy during {what}" in found


def test_costs_are_those_of_the_model(spark: SparkSession, tmp_path: Path) -> None:
    assert spark.version
    found = list(object_costs.measure(data.TINY, tmp_path))
    # A flush of the handler may begin before a second has passed, and a batch take two triggers.
    assert [row.what for row in found[1:3] if row.ratio > 1.01] == []
    assert all(0.2 < row.ratio < 5 for row in found)
