"""The programs of ``docs/typed-topics.md`` run in their order, on one log, as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from storage_core import Store
from tests.support.page_programs import Kitchen
from tests.support.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PAGE = "docs/typed-topics.md"


def test_every_program_of_the_page_runs_as_it_stands(spark: SparkSession, tmp_path: Path) -> None:
    kitchen = Kitchen(PAGE, spark, tmp_path)
    kitchen.run_all((ROOT / PAGE).read_text())
    described = kitchen.printed["Evolution: let columns change"]
    assert "device" in described
    assert "region" in described
    assert '"door"' in kitchen.printed["Without Spark"]
    with Store.open(tmp_path / "log") as store:
        assert store.check() == []
