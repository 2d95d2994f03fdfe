"""cursus_spark: ``.format("cursus")`` for Spark, over topics in a log directory."""

from .layout_rows import partition_by_key
from .registration import register

__all__ = ["partition_by_key", "register"]
