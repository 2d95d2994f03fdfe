"""``gc`` and ``retain``: delete garbage, segments past the limits, or records below an offset."""

from __future__ import annotations

from typing import Any

import click

from ...store.store import Store
from ..common import arguments, output
from ..common.formatting import number, plural, size
from .maintenance_reports import show_reports


@click.command()
@arguments.with_store
@arguments.dry_run
@arguments.yes
@arguments.as_json
@click.pass_context
def gc(ctx: click.Context, store: Store, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete what no reader needs from a store of objects.

    Data of crashed jobs, removed records, old commits and deleted topics, once they are older than
    staging_ttl_ms. Shows how much it is, then asks.
    """
    count, total = store.collect_garbage(dry_run=True)
    if as_json:
        output.show_json({"objects": count, "bytes": total})
    if not count:
        output.note("There is no garbage that is old enough.")
        return
    found = f"{plural(count, 'object')}, {size(total)}"
    if dry_run:
        output.note(f"{found}, would be deleted.")
        return
    if not output.confirmed(f"Delete {found}, permanently?", yes):
        ctx.exit(output.PROBLEMS)
    deleted, _ = store.collect_garbage()
    output.note(f"{plural(deleted, 'object')} deleted")


@click.command()
@arguments.with_store
@arguments.optional_topic
@click.option(
    "--before",
    type=click.IntRange(min=0),
    metavar="OFFSET",
    help="Delete the records of TOPIC below this offset instead.",
)
@click.option(
    "--partition", "-p", type=click.IntRange(min=0), metavar="N",
    help="With --before: only this partition.",
)  # fmt: skip
@arguments.dry_run
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
    """Delete segments past the retention limits.

    Applies retention_ms and retention_bytes of TOPIC, or of all topics. Shows the segments, then
    asks.
    """
    if before is not None:
        _delete(ctx, store, topic, before, partition, dry_run=dry_run, yes=yes, as_json=as_json)
        return
    if partition is not None:
        raise click.UsageError("--partition needs --before.")
    planned = store.retain(topic, dry_run=True)
    rows = _expired(store, planned)
    if as_json:
        output.show_json(rows)
    elif rows:
        output.table(
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
        output.note(_why_nothing(store, topic))
        return
    total = size(sum(row["bytes"] for row in rows))
    if dry_run:
        output.note(f"{plural(len(rows), 'segment')} would be deleted, {total}.")
        return
    if not output.confirmed(f"Delete {plural(len(rows), 'segment')}, {total}, permanently?", yes):
        ctx.exit(output.PROBLEMS)
    deleted = store.retain(topic)
    output.note(f"{plural(sum(map(len, deleted.values())), 'segment')} deleted")


def _why_nothing(store: Store, topic: str | None) -> str:
    names = store.topics() if topic is None else [topic]
    configs = [store.topic(name).config(store.config) for name in names]
    if all(each.retention_ms is None and each.retention_bytes is None for each in configs):
        return (
            "Nothing to delete: no topic has retention_ms or retention_bytes. Set one with "
            "cursus alter PATH TOPIC --set retention_ms=30d."
        )
    return "Nothing to delete: no sealed segment is past the limits retention_ms, retention_bytes."


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
    # A partition that ends before the offset loses all its records.
    ends = {number: min(before, store.offsets(topic, number).end) for number in chosen}
    planned = store.delete_records(topic, ends, dry_run=True)
    if dry_run or not as_json:
        show_reports(planned, as_json)
    if dry_run:
        return
    if not output.confirmed(
        f"Delete the records of {topic} below offset {before} permanently?", yes
    ):
        ctx.exit(output.PROBLEMS)
    reports = store.delete_records(topic, ends)
    if as_json:
        show_reports(reports, as_json)
    starts = ", ".join(number(report.start_offset) for report in reports)
    output.note(f"the log starts at offset {starts}")
    incomplete = [report for report in reports if report.note or not report.done]
    for report in incomplete:
        why = report.note or "segments changed meanwhile; run the command again"
        output.error(
            f"{topic}-{report.partition}: not all records below {before} are deleted: {why}"
        )
    if incomplete:
        ctx.exit(output.PROBLEMS)


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
