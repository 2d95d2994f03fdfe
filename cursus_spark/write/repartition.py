"""Repartitions rows so that one task writes each partition of a topic."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import arrow_udf

from storage_core import partition_for_keys

from ..errors import cursus_error


def partition_by_key(df: DataFrame, partitions: int, key: str = "key") -> DataFrame:
    """Shuffle rows by key, so that one task owns all rows of each topic-partition.

    A Python sink cannot ask Spark for this. The write then stages few, large parts instead of one
    for each task and partition. Rows without a key are distributed evenly.

    Args:
        df: Rows with a key column.
        partitions: Number of partitions of the topic.
        key: Name of the key column.
    """
    if not isinstance(partitions, int) or isinstance(partitions, bool) or partitions < 1:
        raise cursus_error(
            "OPTION_INVALID", f"partitions must be a positive integer, got {partitions!r}."
        )
    evenly = sf.pmod(sf.monotonically_increasing_id(), sf.lit(partitions)).cast("int")
    target = sf.coalesce(_kafka_partition(sf.col(key).cast("binary"), partitions), evenly)
    return df.withColumn("partition", target).repartitionById(partitions, "partition")


def _kafka_partition(keys: Column, partitions: int) -> Column:
    """The partition of each key; null for a null key."""

    def target(keys: pa.Array) -> pa.Array:
        found = pa.array(partition_for_keys(keys, partitions))
        return pc.if_else(keys.is_valid(), found, pa.scalar(None, pa.int32()))

    make_udf: Any = arrow_udf  # its overloads know pyarrow's stubs only
    found: Column = make_udf(target, "int")(keys)
    return found
