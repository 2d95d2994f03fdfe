"""``skip``: find damaged records, and give them up."""

from __future__ import annotations

import click

from ...segments.damage import Damage
from ...store.store import Store
from ..common import arguments, output
from ..common.formatting import number, plural, size


@click.command()
@arguments.with_store
@arguments.topic
@arguments.partition
@click.option("--from", "start", type=click.IntRange(min=0), metavar="OFFSET",
              help="First damaged offset.")  # fmt: skip
@click.option("--to", "end", type=click.IntRange(min=0), metavar="OFFSET",
              help="First offset after the damage.")  # fmt: skip
@arguments.yes
@arguments.as_json
@click.pass_context
def skip(
    ctx: click.Context,
    store: Store,
    topic: str,
    partition: int | None,
    start: int | None,
    end: int | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Show the damaged records of TOPIC, or give some of them up.

    Reads every byte. With --partition, --from and --to, which must name exactly one of the ranges
    that it shows, the records of that range are given up: readers warn and go on after them. Their
    bytes are saved beside the log. Try to restore the file from a copy first.
    """
    chosen = arguments.chosen_partitions(store, topic, partition)
    if start is None and end is None:
        found = [(each, damage) for each in chosen for damage in store.damage(topic, each)]
        _show(store, topic, found, chosen, as_json=as_json)
        if found:
            ctx.exit(output.PROBLEMS)
        return
    if start is None or end is None or partition is None:
        raise click.UsageError("Pass --partition, --from and --to together.")
    question = f"Give up the records {start} to {end - 1} of {topic}-{partition} permanently?"
    if not output.confirmed(question, yes):
        ctx.exit(output.PROBLEMS)
    saved = store.skip_damaged(topic, partition, start, end)
    if as_json:
        output.show_json({"topic": topic, "partition": partition, "start": start, "end": end,
                          "saved_as": saved})  # fmt: skip
    else:
        where = "there were none" if saved is None else f"in {saved}"
        output.note(f"{plural(end - start, 'offset')} skipped; the damaged bytes are {where}")


def _show(
    store: Store,
    topic: str,
    found: list[tuple[int, Damage]],
    partitions: list[int],
    *,
    as_json: bool,
) -> None:
    skipped = [(each, range_) for each in partitions for range_ in store.skipped(topic, each)]
    if as_json:
        shown = [
            {
                "partition": each,
                "start": damage.start,
                "end": damage.end,
                "path": damage.path,
                "position": damage.position,
                "bytes": damage.size,
                "reason": damage.reason,
                "skipped": False,
            }
            for each, damage in found
        ]
        shown += [
            {"partition": each, "start": range_.start, "end": range_.end, "skipped": True}
            for each, range_ in skipped
        ]
        output.show_json(shown)
        return
    rows = [
        [
            str(each),
            number(d.start),
            number(d.end),
            "damaged",
            size(d.size),
            f"{d.path}: {d.reason}",
        ]
        for each, d in found
    ]
    rows += [
        [str(each), number(r.start), number(r.end), "skipped", "–", "–"] for each, r in skipped
    ]
    if rows:
        output.table([">partition", ">from", ">to", "state", ">size", "why"], rows)
    output.note(f"{plural(len(found), 'damage')} in {topic}")
