"""``retain``: dropping what is old, or all below an offset."""

from __future__ import annotations

from typing import Any

import click

from ...store.store import Store
from ..common import arguments, screen
from ..common.wording import number, plural, size
from .rewrite import show

_dry_run = click.option("--dry-run", "-n", is_flag=True, help="Only show what would be done.")


@click.command()
@arguments.with_store
@arguments.optional_topic
@click.option(
    "--before",
    type=click.IntRange(min=0),
    metavar="OFFSET",
    help="Delete the records of TOPIC below this offset instead.",
)
@arguments.partition
@_dry_run
@arguments.yes
@arguments.as_json
@click.pass_context
def retain(
    ctx: click.Context,
    store: Store,
    topic: str | None,
    before: int | None,
    partition: int | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Drop the segments that retention_ms and retention_bytes of TOPIC, or of all topics, let go.

    Shows first what would go, then asks.
    """
    if before is not None:
        _delete(ctx, store, topic, before, partition, dry_run=dry_run, yes=yes, as_json=as_json)
        return
    if partition is not None:
        raise click.UsageError("--partition goes with --before.")
    planned = store.retain(topic, dry_run=True)
    rows = _expired(store, planned)
    if as_json:
        screen.show_json(rows)
    elif rows:
        screen.table(
            ["topic", ">partition", ">base", ">end", ">size"],
            [
                [
                    row["topic"],
                    str(row["partition"]),
                    number(row["base"]),
                    number(row["end"]),
                    size(row["bytes"]),
                ]
                for row in rows
            ],
        )
    if not rows:
        screen.note("Nothing is past its limit (settings retention_ms and retention_bytes).")
        return
    total = size(sum(row["bytes"] for row in rows))
    if dry_run:
        screen.note(f"{plural(len(rows), 'segment')} would go, {total}.")
        return
    if not screen.confirmed(f"Drop {plural(len(rows), 'segment')}, {total}, for good?", yes):
        ctx.exit(screen.PROBLEMS)
    dropped = store.retain(topic)
    screen.note(f"{plural(sum(map(len, dropped.values())), 'segment')} dropped")


def _delete(
    ctx: click.Context,
    store: Store,
    topic: str | None,
    before: int,
    partition: int | None,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    if topic is None:
        raise click.UsageError("--before needs a TOPIC.")
    chosen = arguments.chosen_partitions(store, topic, partition)
    # Of a partition that ends before the offset, all there is.
    ends = {number: min(before, store.offsets(topic, number).end) for number in chosen}
    planned = store.delete_records(topic, ends, dry_run=True)
    if dry_run or not as_json:
        show(planned, as_json)
    if dry_run:
        return
    if not screen.confirmed(f"Delete the records of {topic} below {before} for good?", yes):
        ctx.exit(screen.PROBLEMS)
    reports = store.delete_records(topic, ends)
    if as_json:
        show(reports, as_json)
    screen.note(f"the log starts at {', '.join(number(report.start_offset) for report in reports)}")
    held_back = [report for report in reports if report.note or not report.done]
    for report in held_back:
        why = report.note or "segments changed meanwhile; try again"
        screen.complain(f"{topic}-{report.partition}: not all below {before} is deleted: {why}")
    if held_back:
        ctx.exit(screen.PROBLEMS)


def _expired(store: Store, planned: dict[tuple[str, int], list[int]]) -> list[dict[str, Any]]:
    rows = []
    for (topic, partition), bases in planned.items():
        segments = {found.base: found for found in store.segments(topic, partition)}
        for base in bases:
            found = segments.get(base)
            if found is not None:
                rows.append(
                    {
                        "topic": topic,
                        "partition": partition,
                        "base": base,
                        "end": found.end,
                        "bytes": found.size,
                        "path": found.path,
                    }
                )
    return rows
