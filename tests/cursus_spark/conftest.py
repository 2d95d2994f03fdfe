"""One Spark session for all tests that need one: starting it takes seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cursus_spark import register
from tests.support.spark.dataframes import Log

# Workers must run the interpreter of the tests, whatever ``python3`` means on this machine.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two cores, no web page, few shuffle partitions; times are printed in UTC."""
    warehouse = tmp_path_factory.mktemp("warehouse")
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(warehouse))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    yield session
    session.stop()


@pytest.fixture
def log(spark: SparkSession, tmp_path: Path) -> Log:
    """A log directory that does not exist yet, read and written through the session."""
    return Log(spark, tmp_path / "log")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever uses the session is marked, so that ``-m 'not spark'`` needs no Java."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
