"""``.format("cursus")``: the methods that Spark calls, and what serves each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from storage_core.lazy import LazyModule

from .errors import CursusError, one_line_errors
from .options.parse import (
    catalog_options,
    check_at_load,
    parse_read_options,
    parse_stream_read_options,
    parse_stream_write_options,
    parse_write_options,
)
from .read.reader import CursusReader
from .read.typed_topics import Schemas, check_columns, columns_of_query
from .schema import origin, read_schema, refuse_complete_mode, refuse_overwrite, with_origin
from .stream.reader import CursusStreamReader, RefusedStreamReader
from .stream.writer import CursusStreamWriter
from .worker import got_work
from .write.writer import CursusWriter

if TYPE_CHECKING:
    from . import session
else:  # tasks register nothing
    session = LazyModule("cursus_spark.session")


class CursusDataSource(DataSource):
    """Topics of a cursus store, or of a broker's log directory, as DataFrames and streams."""

    _loaded: Schemas | None = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        got_work()

    @classmethod
    def name(cls) -> str:
        """The name for ``.format(...)``."""
        return "cursus"

    def schema(self) -> StructType:
        """The columns of typed topics, or of the Kafka source.

        A catalog table keeps its options in the metadata of the columns.
        """
        with one_line_errors():
            options = check_at_load(self.options)
            kept = catalog_options(self.options)
            lower = {key.lower(): text for key, text in self.options.items()}
            # A table, and a view with the option of writes, may be written before they are read.
            written = kept is not None or "topic" in lower
            typed = None if options is None else columns_of_query(options, written=written)
            if typed is None:
                wanted = lower.get("includeheaders", "false").strip().lower() == "true"
                found = read_schema(include_headers=wanted)
            else:
                # Spark pickles this object after this call: a stream that begins with all columns
                # can tell which ones are new.
                found, self._loaded = typed
            return found if kept is None else with_origin(found, kept)

    def reader(self, schema: StructType) -> CursusReader:
        """A batch query; ``schema`` is the user's projection."""
        with one_line_errors():
            options = parse_read_options(self.options, origin(schema))
            typed, where = check_columns(options, schema)
            return CursusReader(options, schema, typed=typed, where=where)

    def writer(self, schema: StructType, overwrite: bool) -> CursusWriter:
        """A batch write."""
        with one_line_errors():
            refuse_overwrite(overwrite)
            return CursusWriter(parse_write_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The source of a streaming query; for an invalid query one that raises the error."""
        try:
            with one_line_errors():
                options = parse_stream_read_options(self.options, origin(schema))
                typed, where = check_columns(options, schema)
        except CursusError as error:
            return RefusedStreamReader(error)
        return CursusStreamReader(options, schema, typed=typed, where=where, loaded=self._loaded)

    def streamWriter(self, schema: StructType, overwrite: bool) -> CursusStreamWriter:  # noqa: N802
        """The sink of a streaming query."""
        with one_line_errors():
            refuse_complete_mode(overwrite)
            return CursusStreamWriter(parse_stream_write_options(self.options), schema)


def register(spark: SparkSession) -> None:
    """Register the data source: for ``--py-files`` and editable installs. Spark finds others.

    From then on the session shows no value of an option ``storage.<name>``.

    Raises:
        CursusError: the Python of Spark's tasks cannot be started, or lacks this package.
    """
    with one_line_errors():
        session.require_package(spark)
    session.hide_storage_options(spark)
    # Spark warns if a source replaces another, even itself.
    if not session.knows_source(spark, CursusDataSource.name()):
        spark.dataSource.register(CursusDataSource)
