"""Options of the connector, parsed, and the texts of their errors."""

from __future__ import annotations

from typing import Any

import pytest

from cursus_spark.errors import CursusError
from cursus_spark.options import parse
from cursus_spark.options.read_options import ReadOptions
from cursus_spark.options.stream_read_options import StreamReadOptions
from cursus_spark.options.write_options import WriteOptions

READ = {"path": "/data/log", "subscribe": "orders"}
WRITE = {"path": "/data/log", "topic": "orders"}


def read(**options: str) -> ReadOptions:
    return parse.parse_read_options({**READ, **options})


def stream(**options: str) -> StreamReadOptions:
    return parse.parse_stream_read_options({**READ, **options})


def write(**options: str) -> WriteOptions:
    return parse.parse_write_options({**WRITE, **options})


def message(parser: Any, *arguments: Any, **options: Any) -> str:
    """The text of the error that a parser raises."""
    with pytest.raises(CursusError) as caught:
        parser(*arguments, **options)
    return str(caught.value)
