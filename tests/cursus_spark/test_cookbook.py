"""The programs of ``docs/cookbook.md`` run in their order, on one log, as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from storage_core import Store
from tests.support.brokers.kafka_directories import copied
from tests.support.page_programs import Kitchen
from tests.support.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


TEXT = (ROOT / "docs" / "cookbook.md").read_text()
RECIPES = [
    "Backfill a topic",
    "Ingest files in the order of time",
    "Tail a broker's directory",
    "Exactly once, from topic to topic",
    "Time travel",
    "Join two topics",
    "Replay from a timestamp",
    "Migrate a cursus or RustLog directory",
    "From Kafka, without Kafka",
    "Take typed rows to a broker",
    "Monitor lag",
    "Recover a damaged store",
]


def test_the_cookbook_holds_the_promised_recipes() -> None:
    assert re.findall(r"^## (.+)$", TEXT, re.M) == RECIPES
    assert re.findall(r"^\* \[(.+?)\]", TEXT, re.M) == RECIPES


def test_every_program_runs_as_it_stands(spark: SparkSession, tmp_path: Path) -> None:
    copied("segments", tmp_path).rename(tmp_path / "kafka")
    kitchen = Kitchen("docs/cookbook.md", spark, tmp_path)
    kitchen.run_all(TEXT)
    assert kitchen.printed["Monitor lag"].splitlines()[-1] == "0"
    practice = kitchen.printed["Recover a damaged store"]
    assert "damage found" in practice
    assert "not repaired by itself" in practice
    for name in ("practice", "native", "log", "from-kafka"):
        with Store.open(tmp_path / name) as store:
            assert store.check() == []
