"""On the executor: pieces of segments become Arrow batches of exactly the columns asked for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import lru_cache

import pyarrow as pa
from pyspark.sql.types import StructType

from storage_core import DataLossError, Store

from .errors import cursus_error, one_line_errors
from .options import ReadOptions
from .planning import LogSlice, segment_of
from .schema import arrow_schema
from .splitting import Piece

_log = logging.getLogger("cursus_spark")
_STORED = {
    "key": "key",
    "value": "value",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestampType": "timestamp_type",
    "headers": "headers",
}
_FULL_ROWS = 8192


def read_slice(
    options: ReadOptions, schema: StructType, task: LogSlice
) -> Iterator[pa.RecordBatch]:
    """All batches of one task."""
    with one_line_errors(), open_store(options) as store:
        target = arrow_schema(schema)
        stored = tuple(dict.fromkeys(_stored_columns(target)))
        for piece in task.pieces:
            convert = _converter(target, stored, piece)
            try:
                for batch in store.read_slice(
                    piece.topic,
                    piece.partition,
                    segment_of(piece),
                    piece.start_offset,
                    piece.end_offset,
                    stored,
                ):
                    yield convert(batch)
            except DataLossError as error:
                if options.fail_on_data_loss:
                    raise cursus_error(
                        "DATA_LOSS",
                        f"{error} Set failOnDataLoss to false to read what is left.",
                    ) from None
                _log.warning("skipped %s: %s", piece.path, error)


def open_store(options: ReadOptions) -> Store:
    """The store of a query."""
    return Store.open(options.path, layout=options.layout, isolation=options.isolation)


def _stored_columns(target: pa.Schema) -> list[str]:
    """Columns to decode; the offset is there for errors even if only text is wanted."""
    names = [_STORED[name] for name in target.names if name in _STORED]
    text = any(target.field(name).type == pa.string() for name in ("key", "value") if name in names)
    return [*names, "offset"] if text or not names else names


def _converter(
    target: pa.Schema, stored: tuple[str, ...], piece: Piece
) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """A function from stored batches to Spark's, with all decisions made once."""
    if stored == tuple(target.names) and _same_types(target):
        return lambda batch: pa.RecordBatch.from_arrays(batch.columns, schema=target)

    topic, partition = pa.scalar(piece.topic), pa.scalar(piece.partition, pa.int32())

    def convert(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = dict(zip(stored, batch.columns, strict=True))
        arrays = []
        for field in target:
            if field.name == "topic":
                arrays.append(_repeated(topic, batch.num_rows))
            elif field.name == "partition":
                arrays.append(_repeated(partition, batch.num_rows))
            else:
                arrays.append(_typed(columns, field, piece))
        return pa.RecordBatch.from_arrays(arrays, schema=target)

    return convert


def _same_types(target: pa.Schema) -> bool:
    return all(field.type != pa.string() and field.name != "headers" for field in target)


def _typed(columns: dict[str, pa.Array], field: pa.Field, piece: Piece) -> pa.Array:
    column = columns[_STORED[field.name]]
    if column.type == field.type:
        return column
    if field.type != pa.string():
        return column.cast(field.type)
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        offset = _first_bad_text(column, columns["offset"])
        raise cursus_error(
            "NOT_UTF8",
            f"{piece.topic}-{piece.partition}: the {field.name} at offset {offset} is not UTF-8. "
            f"Read it as binary: .schema('{field.name} binary').",
        ) from None


def _first_bad_text(column: pa.Array, offsets: pa.Array) -> int:
    for row, item in enumerate(column):
        try:
            (item.as_py() or b"").decode()
        except UnicodeDecodeError:
            return int(offsets[row].as_py())
    return -1


def _repeated(value: pa.Scalar, rows: int) -> pa.Array:
    """One value in every row: a slice of a remembered column, as most batches are about as long."""
    if rows > _FULL_ROWS:
        return pa.repeat(value, rows)
    return _full_column(value).slice(0, rows)


@lru_cache(maxsize=64)
def _full_column(value: pa.Scalar) -> pa.Array:
    return pa.repeat(value, _FULL_ROWS)
