"""``append``: lines of text or JSON become records."""

from __future__ import annotations

import io
import select
from collections.abc import Iterator
from typing import Any, BinaryIO

import click

from ...errors import RECORD_ERRORS, StorageError
from ...store.store import Store
from ..common import arguments, output
from ..common.formatting import plural
from .line_appenders import RecordAppender, RowAppender

_BATCH_BYTES = 4 << 20
_READ_BYTES = 1 << 20


@click.command()
@arguments.with_store
@arguments.topic
@click.option("--partition", "-p", type=click.IntRange(min=0), metavar="N",
              help="Append all records to this partition. Default: the partition that the "
              "record names, else by key, else round-robin.")  # fmt: skip
@click.option(
    "--json", "as_json", is_flag=True, help="Each line is an object as cat --json prints it."
)
@click.option(
    "--key-separator", "-k", metavar="TEXT", help="TEXT separates key and value in each line."
)
@click.option(
    "--input", "-i", "lines", type=arguments.LocalFile("rb"), default="-",
    help="Read this file instead of standard input.",
)  # fmt: skip
@click.option(
    "--print-offsets", is_flag=True,
    help="Print the offsets of the new records, one JSON object per partition.",
)  # fmt: skip
def append(
    store: Store,
    topic: str,
    partition: int | None,
    as_json: bool,
    key_separator: str | None,
    lines: BinaryIO,
    print_offsets: bool,
) -> None:
    """Append each line of standard input to TOPIC as a record.

    Lines are appended as they arrive, and are durable before the command reads more. A record
    with a key goes to the partition that Kafka's producers and Spark's sink choose for it. A typed
    topic takes --json: an object of its columns in each line.
    """
    arguments.chosen_partitions(store, topic, partition)
    if key_separator == "":
        raise click.UsageError("--key-separator must not be empty.")
    appender: RecordAppender | RowAppender
    if store.topic(topic).is_typed:
        if key_separator is not None or not as_json:
            raise click.UsageError(
                f"{topic!r} is a typed topic. Pass --json, without --key-separator: each line is "
                "an object of its columns."
            )
        appender = RowAppender(store, topic, partition)
    else:
        appender = RecordAppender(store, topic, partition, as_json, key_separator)
    try:
        _append_lines(appender, lines, as_json)
    finally:  # a bad line ends the command, and the lines before it are in the log
        if print_offsets:
            for each, written in sorted(appender.written.items()):
                output.show_json(
                    {"topic": topic, "partition": each, "start": written.start, "end": written.end}
                )
    output.note(f"{plural(appender.count, 'record')} appended")


def _append_lines(appender: RecordAppender | RowAppender, lines: BinaryIO, as_json: bool) -> None:
    before = 0
    for batch in _line_batches(lines):
        records: dict[int, Any] = {}
        problem: tuple[int, StorageError] | None = None
        for line, text in enumerate(batch, before + 1):
            try:
                if not as_json or text.strip():
                    records[line] = appender.parsed(text)
            except RECORD_ERRORS as error:
                problem = line, error
                break
        problem = appender.first_refused(records) or problem
        accepted = [record for line, record in records.items() if not problem or line < problem[0]]
        appender.append(accepted)
        if problem is not None:
            line, refusal = problem
            raise type(refusal)(f"line {line}: {refusal} The lines before it were appended.")
        before += len(batch)


def _line_batches(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Whole lines: all that can be read without waiting, up to some megabytes in a batch."""
    rest = b""
    while True:
        pieces, size = [rest], 0
        while size < _BATCH_BYTES and (not size or _has_more(stream)):
            piece = (
                stream.read1(_READ_BYTES)
                if isinstance(stream, io.BufferedReader)
                else stream.read()
            )
            if not piece:
                break
            pieces.append(piece)
            size += len(piece)
        *lines, rest = b"".join(pieces).split(b"\n")
        if not size:
            if rest:
                yield [rest]
            return
        yield lines


def _has_more(stream: BinaryIO) -> bool:
    """Whether a read returns at once."""
    try:
        return bool(select.select([stream], [], [], 0)[0])
    except (OSError, ValueError, TypeError):
        return True
