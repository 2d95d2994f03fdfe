"""``append``: lines, or JSON lines, to records."""

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
from ..common import arguments, screen
from ..common.record_text import Incoming, parse_record
from ..common.wording import number

_GATHERED = 4 << 20
_CHUNK = 1 << 20


@click.command()
@arguments.with_store
@arguments.topic
@click.option("--partition", "-p", type=click.IntRange(min=0), metavar="N",
              help="Where all records go; else as they say, by key, or in turn.")  # fmt: skip
@click.option(
    "--json", "as_json", is_flag=True, help="Each line is an object, as cat --json prints."
)
@click.option("--key-separator", "-k", metavar="TEXT", help="A line is KEY TEXT VALUE.")
@click.option(
    "--input", "-i", "lines", type=click.File("rb"), default="-", help="Instead of stdin."
)
@click.option("--print-offsets", is_flag=True, help="Print where the records went, as JSON lines.")
def append(
    store: Store,
    topic: str,
    partition: int | None,
    as_json: bool,
    key_separator: str | None,
    lines: BinaryIO,
    print_offsets: bool,
) -> None:
    """Append lines of standard input to TOPIC, one record each.

    What is there is appended at once and is durable before more is read. Records with a key go
    where Kafka's producers and Spark's sink would put them.
    """
    arguments.chosen_partitions(store, topic, partition)
    if key_separator == "":
        raise click.UsageError("--key-separator needs a text of at least one character.")
    appender = _Appender(store, topic, partition)
    before = 0
    for gathered in _gather(lines):
        records: dict[int, Incoming] = {}
        problem: tuple[int, StorageError] | None = None
        for line, text in enumerate(gathered, before + 1):
            try:
                if not as_json or text.strip():
                    records[line] = appender.checked(_record(text, as_json, key_separator))
            except InvalidRecordError as error:
                problem = line, error
                break
        problem = appender.first_refused(records) or problem
        sound = [record for line, record in records.items() if not problem or line < problem[0]]
        appender.append(sound)
        if problem is not None:
            line, refusal = problem
            raise type(refusal)(f"line {line}: {refusal} Lines before it were appended.")
        before += len(gathered)
    if print_offsets:
        for each, written in sorted(appender.written.items()):
            screen.show_json(
                {"topic": topic, "partition": each, "start": written.start, "end": written.end}
            )
    screen.note(f"{number(appender.count)} records appended")


class _Appender:
    """Chooses partitions and remembers what was written where."""

    def __init__(self, store: Store, topic: str, partition: int | None) -> None:
        self._store = store
        self._topic = topic
        self._fixed = partition
        self._count = store.topic(topic).partitions
        self._largest = store.partition_log(topic, partition or 0).config.max_record_bytes
        self._turn = 0
        self.count = 0
        self.written: dict[int, OffsetRange] = {}

    def checked(self, record: Incoming) -> Incoming:
        """The record, if there is a place for it.

        Raises:
            InvalidRecordError: it names a partition that the topic does not have.
        """
        wanted = record.partition
        if self._fixed is None and wanted is not None and wanted >= self._count:
            raise InvalidRecordError(
                f"{self._topic!r} has no partition {wanted}; it has 0 to {self._count - 1}. "
                "Pass --partition to send all records to one."
            )
        return record

    def first_refused(self, records: dict[int, Incoming]) -> tuple[int, StorageError] | None:
        """The first line that the store would refuse, and why. One by one only if there is any.

        Found while they are appended, it would take its neighbours in the partition with it.
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
        """Append some records; those without key and partition go where the turn is."""
        by_partition: dict[int, list[Incoming]] = {}
        for record, partition in zip(records, self._places(records), strict=True):
            by_partition.setdefault(partition, []).append(record)
        for partition, chosen in by_partition.items():
            written = self._store.append(self._topic, partition, *_columns(chosen))
            known = self.written.get(partition, written)
            self.written[partition] = OffsetRange(known.start, written.end)
            self.count += len(chosen)
        self._turn = (self._turn + 1) % self._count

    def _places(self, records: list[Incoming]) -> list[int]:
        hashed = partition_for_keys(
            pa.array([record.key for record in records], pa.binary()), self._count
        ).tolist()
        places = []
        for record, by_key in zip(records, hashed, strict=True):
            wanted = record.partition if self._fixed is None else self._fixed
            if wanted is None:
                wanted = self._turn if record.key is None else by_key
            places.append(wanted)
        return places


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
        raise InvalidRecordError(f"there is no {separator!r} between key and value.")
    return Incoming(value, key)


def _gather(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Whole lines, as many as wait to be read but no more than some megabytes at a time."""
    rest = b""
    while True:
        pieces, gathered = [rest], 0
        while gathered < _GATHERED and (not gathered or _has_more(stream)):
            piece = stream.read1(_CHUNK) if isinstance(stream, io.BufferedReader) else stream.read()
            if not piece:
                break
            pieces.append(piece)
            gathered += len(piece)
        *lines, rest = b"".join(pieces).split(b"\n")
        if not gathered:
            if rest:
                yield [rest]
            return
        yield lines


def _has_more(stream: BinaryIO) -> bool:
    """Whether a read would not wait."""
    try:
        return bool(select.select([stream], [], [], 0)[0])
    except (OSError, ValueError, TypeError):
        return True
