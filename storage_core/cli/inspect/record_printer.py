"""Records and rows printed to standard output, one batch at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, Literal

import click
import pyarrow as pa

from ...store.store import Store
from ..common import arguments
from ..common.record_text import record_json, record_line
from ..common.row_text import PLACE, json_line, row_lines, row_objects

Form = Literal["line", "json", "raw"]


def form_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--where``, ``--columns``, ``--json`` and ``--raw`` to a command."""
    raw = click.option(
        "--raw", "form", flag_value="raw", help="Print only values, each followed by a newline."
    )
    as_json = click.option(
        "--json", "form", flag_value="json", help="Print each record as a JSON object on one line."
    )
    columns = click.option(
        "--columns", type=arguments.names_option, default="", metavar="NAMES",
        help="Print only these columns of a typed topic, separated by commas.",
    )  # fmt: skip
    where = click.option(
        "--where", metavar="SQL",
        help="Print only records that match, such as 'amount > 100' or '_offset >= 5'.",
    )  # fmt: skip
    return where(columns(as_json(raw(function))))


class Printer:
    """Prints at most ``most`` records of one topic in one form."""

    def __init__(
        self,
        store: Store,
        topic: str,
        form: Form | None,
        most: int | None = None,
        columns: tuple[str, ...] = (),
        where: str | None = None,
    ) -> None:
        self._store = store
        self._topic = topic
        self._form = form
        self._left = most
        self._printed = 0
        self._chosen = columns
        self._where = where
        self._out = sys.stdout.buffer
        self._typed = store.topic(topic).is_typed
        if self._typed and form == "raw":
            raise click.UsageError(f"--raw is for records topics; {topic!r} is typed. Use --json.")
        if columns and not self._typed:
            raise click.UsageError(f"--columns is for typed topics; {topic!r} is a records topic.")

    @property
    def printed(self) -> int:
        """How many records have been printed."""
        return self._printed

    @property
    def is_done(self) -> bool:
        """Whether ``most`` records are printed."""
        return self._left == 0

    def show(self, partition: int, start: int | None, end: int | None) -> Iterator[int]:
        """Print the records of a partition; after each batch, the offset after the last one."""
        batches = self._store.read(
            self._topic,
            partition,
            start,
            end,
            max_records=self._left,
            columns=self._columns(),
            where=self._where,
        )
        for batch in batches:
            self._printed += batch.num_rows
            if self._left is not None:
                self._left -= batch.num_rows
            self._out.writelines(line + b"\n" for line in self._lines(partition, batch))
            if batch.num_rows:
                yield batch["_offset" if self._typed else "offset"][-1].as_py() + 1

    def flush(self) -> None:
        """Flush standard output."""
        self._out.flush()

    def _columns(self) -> tuple[str, ...]:
        """The columns that the form needs."""
        if self._typed:
            schema = self._store.schema(self._topic)
            assert schema is not None
            own = self._chosen or tuple(field.name for field in schema.fields)
            return (*PLACE, *(name for name in dict.fromkeys(own) if name not in _SHOWN))
        if self._form == "raw":
            return ("offset", "value")
        return ("offset", "timestamp", "key", "value", "headers")

    def _lines(self, partition: int, batch: pa.RecordBatch) -> list[bytes]:
        if self._form == "raw":
            return [value or b"" for value in batch["value"].to_pylist()]
        return [line.encode() for line in self._texts(partition, batch)]

    def _texts(self, partition: int, batch: pa.RecordBatch) -> list[str]:
        as_json = self._form == "json"
        if not self._typed:
            rows = batch.to_pylist()
            if as_json:
                return [record_json(self._topic, partition, row) for row in rows]
            return [record_line(partition, row) for row in rows]
        if as_json:
            return [json_line(row) for row in row_objects(self._topic, partition, batch)]
        return row_lines(partition, batch)


_SHOWN = (*PLACE, "_topic", "_partition")
"""What every row is printed with, whatever columns are chosen."""
