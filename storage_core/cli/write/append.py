"""``append``: lines of text or JSON become records."""

from __future__ import annotations

import io
import select
from collections.abc import Iterator
from typing import Any, BinaryIO

import click
import pyarrow as pa

from ...errors import RECORD_ERRORS, InvalidRecordError, StorageError
from ...format.columns import make_columns
from ...format.partitioner import partition_for_keys
from ...store.store import Store
from ...types import OffsetRange
from ..common import arguments, output
from ..common.formatting import plural
from ..common.record_text import Incoming, parse_record

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
    with a key goes to the partition that Kafka's producers and Spark's sink choose for it.
    """
    arguments.chosen_partitions(store, topic, partition)
    if key_separator == "":
        raise click.UsageError("--key-separator must not be empty.")
    appender = _Appender(store, topic, partition)
    before = 0
    for batch in _line_batches(lines):
        records: dict[int, Incoming] = {}
        problem: tuple[int, StorageError] | None = None
        for line, text in enumerate(batch, before + 1):
            try:
                if not as_json or text.strip():
                    records[line] = appender.checked(_record(text, as_json, key_separator))
            except InvalidRecordError as error:
                problem = line, error
                break
        problem = appender.first_refused(records) or problem
        accepted = [record for line, record in records.items() if not problem or line < problem[0]]
        appender.append(accepted)
        if problem is not None:
            line, refusal = problem
            raise type(refusal)(f"line {line}: {refusal} The lines before it were appended.")
        before += len(batch)
    if print_offsets:
        for each, written in sorted(appender.written.items()):
            output.show_json(
                {"topic": topic, "partition": each, "start": written.start, "end": written.end}
            )
    output.note(f"{plural(appender.count, 'record')} appended")


class _Appender:
    """Chooses a partition for each record and keeps the offsets that were written."""

    def __init__(self, store: Store, topic: str, partition: int | None) -> None:
        self._store = store
        self._topic = topic
        self._fixed = partition
        self._count = store.topic(topic).partitions
        self._largest = store.partition_log(topic, partition or 0).config.max_record_bytes
        self._next = 0
        self.count = 0
        self.written: dict[int, OffsetRange] = {}

    def checked(self, record: Incoming) -> Incoming:
        """The record.

        Raises:
            InvalidRecordError: the record names a partition that the topic does not have.
        """
        wanted = record.partition
        if self._fixed is None and wanted is not None and wanted >= self._count:
            raise InvalidRecordError(
                f"{self._topic!r} has no partition {wanted}; it has partitions 0 to "
                f"{self._count - 1}. Pass --partition to append all records to one partition."
            )
        return record

    def first_refused(self, records: dict[int, Incoming]) -> tuple[int, StorageError] | None:
        """The first line that the store would refuse, and its error.

        Checked before the append: a refused record fails the whole append of its partition. The
        records are checked one by one only if the check of all of them fails.
        """
        try:
            self._check(list(records.values()))
        except RECORD_ERRORS:
            for line, record in records.items():
                try:
                    self._check([record])
                except RECORD_ERRORS as error:
                    return line, error
        return None

    def _check(self, records: list[Incoming]) -> None:
        columns = make_columns(
            *_columns(records), now_us=self._store.vfs.now_us(), max_record_bytes=self._largest
        )
        self._store.check_columns(self._topic, self._fixed or 0, columns)

    def append(self, records: list[Incoming]) -> None:
        """Append records; those without key and partition go to partitions in turn."""
        by_partition: dict[int, list[Incoming]] = {}
        for record, partition in zip(records, self._partitions(records), strict=True):
            by_partition.setdefault(partition, []).append(record)
        for partition, chosen in by_partition.items():
            written = self._store.append(self._topic, partition, *_columns(chosen))
            known = self.written.get(partition, written)
            self.written[partition] = OffsetRange(known.start, written.end)
            self.count += len(chosen)
        self._next = (self._next + 1) % self._count

    def _partitions(self, records: list[Incoming]) -> list[int]:
        hashed = partition_for_keys(
            pa.array([record.key for record in records], pa.binary()), self._count
        ).tolist()
        partitions = []
        for record, by_key in zip(records, hashed, strict=True):
            wanted = record.partition if self._fixed is None else self._fixed
            if wanted is None:
                wanted = self._next if record.key is None else by_key
            partitions.append(wanted)
        return partitions


def _columns(records: list[Incoming]) -> tuple[Any, Any, Any, Any]:
    """Values, keys, timestamps and headers."""
    return (
        pa.array([record.value for record in records], pa.binary()),
        _or_none([record.key for record in records]),
        _or_none([record.timestamp for record in records]),
        _or_none([record.headers for record in records]),
    )


def _or_none(values: list[Any]) -> list[Any] | None:
    return None if all(value is None for value in values) else values


def _record(text: bytes, as_json: bool, separator: str | None) -> Incoming:
    if as_json:
        return parse_record(text)
    if separator is None:
        return Incoming(text)
    key, found, value = text.partition(separator.encode())
    if not found:
        raise InvalidRecordError(f"the line has no {separator!r} between key and value.")
    return Incoming(value, key)


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
