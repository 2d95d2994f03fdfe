"""Installed as ``pyspark_cursus``, where Spark finds ``.format("cursus")`` without registration.

If one package named ``pyspark_…`` fails on import, Spark finds none of them and gives no reason. So
this package imports neither our code nor Arrow before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """Passes every call to ``cursus_spark.datasource.CursusDataSource``."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        # This one imports neither Arrow nor anything else that may be missing.
        from cursus_spark.errors import one_line_errors

        with one_line_errors():
            from cursus_spark.datasource import CursusDataSource

        self._source = CursusDataSource(options)

    @classmethod
    def name(cls) -> str:
        """The name for ``.format(...)``."""
        return "cursus"

    def schema(self) -> StructType:
        """See ``CursusDataSource``, also for the other methods."""
        return self._source.schema()

    def reader(self, schema: StructType) -> Any:
        """A batch query."""
        return self._source.reader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """A batch write."""
        return self._source.writer(schema, overwrite)

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802
        """A streaming query's source."""
        return self._source.streamReader(schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
        """A streaming query's sink."""
        return self._source.streamWriter(schema, overwrite)
