"""Records printed to standard output, one batch at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Literal

import click
import pyarrow as pa

from ..common.record_text import record_json, record_line

Form = Literal["line", "json", "raw"]


def form_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--json`` and ``--raw`` to a command."""
    raw = click.option(
        "--raw", "form", flag_value="raw", help="Print only values, each followed by a newline."
    )
    as_json = click.option(
        "--json", "form", flag_value="json", help="Print each record as a JSON object on one line."
    )
    return as_json(raw(function))


class Printer:
    """Prints at most ``most`` records of one topic in one form."""

    def __init__(self, topic: str, form: Form | None, most: int | None = None) -> None:
        self._topic = topic
        self._form = form
        self._left = most
        self._out = sys.stdout.buffer

    @property
    def is_done(self) -> bool:
        """Whether ``most`` records are printed."""
        return self._left == 0

    @property
    def left(self) -> int | None:
        """How many records may follow; None without a limit."""
        return self._left

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the form needs."""
        if self._form == "raw":
            return ("offset", "value")
        return ("offset", "timestamp", "key", "value", "headers")

    def show(self, partition: int, batch: pa.RecordBatch) -> None:
        """Print the records of a batch."""
        if self._left is not None:
            batch = batch.slice(0, self._left)
            self._left -= batch.num_rows
        if self._form == "raw":
            lines = [value or b"" for value in batch["value"].to_pylist()]
        else:
            lines = [self._text(partition, row).encode() for row in batch.to_pylist()]
        if lines:
            self._out.write(b"\n".join(lines) + b"\n")

    def flush(self) -> None:
        """Flush standard output."""
        self._out.flush()

    def _text(self, partition: int, row: dict[str, Any]) -> str:
        if self._form == "json":
            return record_json(self._topic, partition, row)
        return record_line(partition, row)
