"""Making ``.format("cursus")`` known to a session that does not find it by itself."""

from __future__ import annotations

from pyspark.sql import SparkSession

from .datasource import CursusDataSource


def register(spark: SparkSession) -> None:
    """Register the data source: for ``--py-files``; an installed package is found without it."""
    spark.dataSource.register(CursusDataSource)
