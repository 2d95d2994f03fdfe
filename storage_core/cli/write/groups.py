"""``groups``: show the lag of consumer groups, and reset their offsets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict

import click

from ...layouts.registry import LAYOUTS
from ...store.store import Store
from ..common import arguments, output, times
from ..common.formatting import number, plural
from ..inspect.overview import show_lags
from ..inspect.store_facts import consumer_lags

Target = str | int | times.When


def _target(text: str) -> Target:
    if text in ("earliest", "latest"):
        return text
    # A number is never a time here: milliseconds would be an offset far past the end of the log.
    if re.fullmatch(r"\d+", text):
        return int(text)
    if not re.fullmatch(r"-\d+", text):
        try:
            return times.parse_when(text)
        except ValueError:
            pass
    raise click.BadParameter(
        f"{text!r} is not a place in a log. Use earliest, latest, an offset, or a time: "
        f"{times.HELP_BESIDE_OFFSETS}."
    )


@click.command()
@arguments.with_store
@click.argument("group", required=False)
@click.option("--topic", "-t", metavar="TOPIC", help="Only this topic.")
@arguments.partition
@click.option(
    "--reset-to",
    "target",
    type=_target,
    metavar="earliest|latest|OFFSET|TIME",
    help=f"Set the group's offsets. A number is an offset; a time is {times.HELP_BESIDE_OFFSETS}.",
)
@arguments.yes
@arguments.as_json
@click.pass_context
def groups(
    ctx: click.Context,
    store: Store,
    group: str | None,
    topic: str | None,
    partition: int | None,
    target: Target | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Show the lag of consumer groups, or reset a group.

    Shows GROUP, or every group. Exit code 1 if GROUP has committed no offsets.
    """
    if target is not None:
        if group is None:
            raise click.UsageError("--reset-to needs a GROUP.")
        if not _reset(store, group, topic, partition, target, yes):
            ctx.exit(output.PROBLEMS)
    found = [
        lag
        for lag in consumer_lags(store, group, topic)
        if partition is None or lag.partition == partition
    ]
    if as_json:
        output.show_json([{**asdict(lag), "lag": lag.lag} for lag in found])
    elif found:
        show_lags(found)
    if target is not None:
        output.note(f"the offsets of group {group} are set in {plural(len(found), 'partition')}")
    elif not found and (elsewhere := LAYOUTS[store.layout].groups) is not None:
        output.error(elsewhere)
    elif not found and group is None:
        output.note(
            "No consumer group has committed offsets here. A stream does with the option "
            "consumerGroup, a program with Store.commit_offsets."
        )
    if not found and group is not None:
        known = ", ".join(store.groups()) or "none"
        output.error(
            f"group {group!r} has committed no offsets in this store. Groups found: {known}."
        )
        ctx.exit(output.PROBLEMS)


def _reset(
    store: Store, group: str, topic: str | None, partition: int | None, target: Target, yes: bool
) -> bool:
    """Set the group's offsets in one topic, or in all it has read; False if the user declines."""
    known = store.committed_offsets(group)
    names = sorted(known) if topic is None else [topic]
    if not names:
        raise click.UsageError(
            f"Group {group!r} has committed no offsets in this store. Pass --topic."
        )
    chosen = {name: arguments.chosen_partitions(store, name, partition) for name in names}
    if isinstance(target, int):
        _check_offset(
            target, [store.offsets(name, each).end for name in names for each in chosen[name]]
        )
    wanted = {
        name: {each: _offset(store, name, each, target) for each in chosen[name]} for name in names
    }
    moves = [
        f"{name}-{each}: {number(known.get(name, {}).get(each))} → {number(offset)}"
        for name, ends in wanted.items()
        for each, offset in ends.items()
    ]
    if not yes:
        click.echo("\n".join(moves), err=True)
    if not output.confirmed(f"Set the offsets of group {group}?", yes):
        return False
    store.commit_offsets(group, wanted)
    return True


def _check_offset(offset: int, ends: Iterable[int]) -> None:
    """Refuse an offset past the end of every partition: most often it was meant as a time."""
    last = max(ends, default=0)
    if offset > last:
        raise click.BadParameter(
            f"offset {offset} is past the end of every partition (the highest end is {last}). "
            f"Use latest for the end. For a time use {times.HELP_BESIDE_OFFSETS}.",
            param_hint="--reset-to",
        )


def _offset(store: Store, topic: str, partition: int, target: Target) -> int:
    bounds = store.offsets(topic, partition)
    if target == "earliest":
        return bounds.start
    if isinstance(target, times.When):
        found = store.offset_for_timestamp(topic, partition, target.at(store.vfs.now_us()))
        return bounds.end if found is None else found
    if isinstance(target, int):
        return min(max(target, bounds.start), bounds.end)
    return bounds.end
