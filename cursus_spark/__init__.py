"""cursus_spark: ``.format("cursus")`` for Spark, over topics in a log directory."""

from typing import TYPE_CHECKING

from storage_core.lazy import lazy_names

if TYPE_CHECKING:
    from .datasource import register
    from .stream.lag_listener import LagListener, QueryLag
    from .write.repartition import partition_by_key
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "datasource": "register",
            "stream.lag_listener": "LagListener QueryLag",
            "write.repartition": "partition_by_key",
        },
    )

__all__ = ["LagListener", "QueryLag", "partition_by_key", "register"]
