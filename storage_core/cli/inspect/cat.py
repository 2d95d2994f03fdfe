"""``cat``: print what a topic holds."""

from __future__ import annotations

import click

from ...store.store import Store
from ..common import arguments, when
from .printing import Form, Printer, form_options


@click.command()
@arguments.with_store
@arguments.topic
@arguments.partition
@click.option(
    "--from", "start", type=int, metavar="OFFSET", help="First offset; -10: the last ten offsets."
)
@click.option("--to", "end", type=click.IntRange(min=0), metavar="OFFSET", help="Stop before it.")
@click.option("--at", type=when.when_option, metavar="TIME", help=f"Begin at a time: {when.HELP}.")
@click.option("--max", "most", type=click.IntRange(min=0), metavar="N", help="At most N records.")
@arguments.isolation
@form_options
def cat(
    store: Store,
    topic: str,
    partition: int | None,
    start: int | None,
    end: int | None,
    at: when.When | None,
    most: int | None,
    form: Form | None,
) -> None:
    """Print records of TOPIC, partition by partition.

    With --json a record is one object: topic, partition, offset, timestamp, key, value, headers;
    what is not UTF-8 stands in key_b64 and value_b64.
    """
    if at is not None and start is not None:
        raise click.UsageError("--from and --at both say where to begin. Choose one.")
    printer = Printer(topic, form, most)
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
        for batch in store.read(
            topic, each, first, end, max_records=printer.left, columns=printer.columns
        ):
            printer.show(each, batch)
    printer.flush()


def first_offset(store: Store, topic: str, partition: int, start: int, *, strict: bool) -> int:
    """Where to begin in one partition: from the end if negative, inside the log unless strict."""
    bounds = store.offsets(topic, partition)
    if start < 0:
        return max(bounds.start, bounds.end + start)
    return start if strict else min(max(start, bounds.start), bounds.end)
