"""The README's programs run in their order, as they stand, with the session of the tests."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from storage_core import Store
from tests.support.page_programs import Kitchen
from tests.support.paths import ROOT

README = "README.md"


def test_the_readmes_programs_run_as_they_stand(spark: SparkSession, tmp_path: Path) -> None:
    names = {"path": str(tmp_path / "log"), "checkpoint": str(tmp_path / "checkpoint")}
    text = (ROOT / README).read_text().replace("/tmp/log", "/data/log")
    # It would print new records until Ctrl-C.
    assert "cursus tail /data/log orders -f\n" in text
    text = text.replace("orders -f\n", "orders\n")
    kitchen = Kitchen(README, spark, tmp_path, names)
    assert kitchen.run_all(text) == 6
    printed = kitchen.printed["Quickstart"]
    assert printed.count('"customer": "customer-') == 3
    with Store.open(tmp_path / "log") as store:
        kinds = {topic: store.topic(topic).is_typed for topic in store.topics()}
        assert kinds == {"clicks": False, "copy": True, "orders": True, "taps": False}
        assert store.check() == []
