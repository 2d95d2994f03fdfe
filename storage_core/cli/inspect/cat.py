"""``cat``: print the records of a topic."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ...store.store import Store
from ..common import arguments, output, times
from .record_printer import Form, Printer, form_options


@click.command()
@arguments.with_store
@arguments.topic
@arguments.partition
@click.option(
    "--from", "start", type=int, metavar="OFFSET",
    help="First offset. -10 starts at the last ten offsets of each partition.",
)  # fmt: skip
@click.option(
    "--to", "end", type=click.IntRange(min=0), metavar="OFFSET", help="Stop before this offset."
)
@click.option(
    "--at", type=times.when_option, metavar="TIME",
    help=f"Start at the first record at or after TIME: {times.HELP}.",
)  # fmt: skip
@click.option(
    "--max", "most", type=click.IntRange(min=0), metavar="N", help="Print at most N records."
)
@arguments.isolation
@form_options
def cat(
    store: Store,
    topic: str,
    partition: int | None,
    start: int | None,
    end: int | None,
    at: times.When | None,
    most: int | None,
    where: str | None,
    columns: tuple[str, ...],
    form: Form | None,
) -> None:
    """Print the records of TOPIC, one partition after another.

    With --json each line is an object with topic, partition, offset, timestamp, key, value and
    headers. Keys and values that are not UTF-8 are printed as base64 in key_b64 and value_b64. A
    row of a typed topic has _topic, _partition, _offset, _timestamp and its columns.
    """
    if at is not None and start is not None:
        raise click.UsageError("--from and --at both set the start. Pass only one of them.")
    printer = Printer(store, topic, form, most, columns, where)
    partitions = arguments.chosen_partitions(store, topic, partition)
    for each in partitions:
        if printer.is_done:
            break
        first = start
        if at is not None:
            first = store.offset_for_timestamp(topic, each, at.at(store.vfs.now_us()))
            if first is None:
                continue
        if first is not None:
            first = first_offset(store, topic, each, first, strict=len(partitions) == 1)
        for _ in printer.show(each, first, end):
            pass
    printer.flush()
    if not printer.printed and most != 0:
        output.note(_why_nothing(store, topic, partitions))


def _why_nothing(store: Store, topic: str, partitions: Sequence[int]) -> str:
    bounds = {each: store.offsets(topic, each) for each in partitions}
    if not any(len(each) for each in bounds.values()):
        return f"No record to print: {topic} is empty."
    shown = [f"{each}: {found.start} to {found.end}" for each, found in bounds.items()]
    held = ", ".join(shown[:8]) + (", …" if len(shown) > 8 else ".")
    return f"No record of {topic} matches. Offsets by partition, the end excluded: {held}"


def first_offset(store: Store, topic: str, partition: int, start: int, *, strict: bool) -> int:
    """The start offset in one partition: a negative one counts from the end of the log.

    An offset outside the log becomes the nearest one inside, unless ``strict``.
    """
    bounds = store.offsets(topic, partition)
    if start < 0:
        return max(bounds.start, bounds.end + start)
    return start if strict else min(max(start, bounds.start), bounds.end)
