"""cursus_spark: ``.format("cursus")`` for Spark, over topics in a log directory."""

from .registration import register
from .write.layout_rows import partition_by_key

__all__ = ["partition_by_key", "register"]
