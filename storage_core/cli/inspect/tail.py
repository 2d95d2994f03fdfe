"""``tail``: print the last records of a topic, and follow new ones."""

from __future__ import annotations

from collections.abc import Iterator

import click

from ...errors import DataLossError, TopicNotFoundError
from ...store.store import Store
from ..common import arguments, output
from .cat import first_offset
from .record_printer import Form, Printer, form_options


@click.command()
@arguments.with_store
@arguments.topic
@arguments.partition
@click.option("--lines", "-n", type=click.IntRange(min=0), default=10, show_default=True,
              metavar="N", help="Start with the last N offsets of each partition.")  # fmt: skip
@click.option("--follow", "-f", is_flag=True, help="Print new records as they arrive.")
@click.option("--max", "most", type=click.IntRange(min=0), metavar="N",
              help="Stop after N records.")  # fmt: skip
@click.option("--interval", type=click.FloatRange(min=0.01), default=0.2, show_default=True,
              metavar="SECONDS", help="Time between two polls with -f.")  # fmt: skip
@arguments.isolation
@form_options
def tail(
    store: Store,
    topic: str,
    partition: int | None,
    lines: int,
    follow: bool,
    most: int | None,
    interval: float,
    where: str | None,
    columns: tuple[str, ...],
    form: Form | None,
) -> None:
    """Print the last records of TOPIC; -f follows new ones.

    Ctrl-C ends the command with exit code 0.
    """
    printer = Printer(store, topic, form, most, columns, where)
    follower = _Follower(store, topic, partition, lines, printer)
    try:
        follower.poll()
        while follow and not printer.is_done:
            store.vfs.sleep(interval)
            follower.poll()
    except KeyboardInterrupt:
        printer.flush()


class _Follower:
    """Prints the records that each poll finds."""

    def __init__(
        self, store: Store, topic: str, partition: int | None, lines: int, printer: Printer
    ) -> None:
        self._store = store
        self._topic = topic
        self._partition = partition
        self._printer = printer
        self._uuid = store.topic(topic).uuid
        self._next = {
            each: first_offset(store, topic, each, -lines, strict=True) if lines else ends
            for each, ends in self._ends()
        }

    def poll(self) -> None:
        """Print the records since the last poll, one partition after another."""
        if self._store.topic(self._topic).uuid != self._uuid:
            raise TopicNotFoundError(
                f"topic {self._topic!r} was deleted and created again.", topic=self._topic
            )
        for partition, end in self._ends():
            start = self._next.get(partition, 0)
            try:
                self._show(partition, start, end)
            except DataLossError as error:
                output.error(str(error), error.code)
                self._next[partition] = self._store.offsets(self._topic, partition).start
        self._printer.flush()

    def _show(self, partition: int, start: int, end: int) -> None:
        first = self._store.start_offset(self._topic, partition)
        if start < min(first, end):
            raise DataLossError(
                f"{self._topic}-{partition}: records {start} to {first - 1} were removed "
                f"before they were printed. Continuing at offset {first}.",
                topic=self._topic,
                partition=partition,
                offset=start,
            )
        if start < end and not self._printer.is_done:
            for reached in self._printer.show(partition, start, end):
                self._next[partition] = reached
            self._next[partition] = end

    def _ends(self) -> Iterator[tuple[int, int]]:
        ends = self._store.visible_ends(self._topic)
        if self._partition is not None:
            arguments.chosen_partitions(self._store, self._topic, self._partition)
            return iter([(self._partition, ends[self._partition])])
        return iter(enumerate(ends))
