"""``groups``: how far readers have come, and setting them elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict

import click

from ...store.store import Store
from ..common import arguments, screen, when
from ..common.wording import number
from ..inspect.overview import lags
from .topics import show_lag

Target = str | int | when.When


def _target(text: str) -> Target:
    if text in ("earliest", "latest"):
        return text
    # A number is never a time here: one in milliseconds would be an offset far behind the end.
    if re.fullmatch(r"\d+", text):
        return int(text)
    if not re.fullmatch(r"-\d+", text):
        try:
            return when.parse_when(text)
        except ValueError:
            pass
    raise click.BadParameter(
        f"{text!r} is no place. Use earliest, latest, an offset, or a time: "
        f"{when.HELP_BESIDE_OFFSETS}."
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
    help="Set the group to another place. A number is an offset; a time is "
    f"{when.HELP_BESIDE_OFFSETS}.",
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
    """Show how far GROUP, or every group, is behind; with --reset-to, set it elsewhere.

    Exit code 1 if GROUP never committed.
    """
    if target is not None:
        if group is None:
            raise click.UsageError("--reset-to needs a GROUP.")
        if not _reset(store, group, topic, partition, target, yes):
            ctx.exit(screen.PROBLEMS)
    found = [
        lag for lag in lags(store, group, topic) if partition is None or lag.partition == partition
    ]
    if as_json:
        screen.show_json([{**asdict(lag), "lag": lag.lag} for lag in found])
    elif found:
        show_lag(found)
    if not found and group is not None:
        screen.complain(f"group {group!r} has committed no offsets here.")
        ctx.exit(screen.PROBLEMS)


def _reset(
    store: Store, group: str, topic: str | None, partition: int | None, target: Target, yes: bool
) -> bool:
    """Move the group on the topics asked for, or on those it knows; False if nobody agreed."""
    known = store.committed_offsets(group)
    names = sorted(known) if topic is None else [topic]
    if not names:
        raise click.UsageError(f"Group {group!r} is new here. Say --topic.")
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
    if not screen.confirmed(f"Set group {group} there?", yes):
        return False
    store.commit_offsets(group, wanted)
    return True


def _check_offset(offset: int, ends: Iterable[int]) -> None:
    """Refuse an offset that no partition has come to: most often it was meant as a time."""
    last = max(ends, default=0)
    if offset > last:
        raise click.BadParameter(
            f"{offset} is behind the end of every partition (the highest is {last}). A number is "
            f"an offset; write a time as {when.HELP_BESIDE_OFFSETS}; the end is latest.",
            param_hint="--reset-to",
        )


def _offset(store: Store, topic: str, partition: int, target: Target) -> int:
    bounds = store.offsets(topic, partition)
    if target == "earliest":
        return bounds.start
    if isinstance(target, when.When):
        found = store.offset_for_timestamp(topic, partition, target.at(store.vfs.now_us()))
        return bounds.end if found is None else found
    if isinstance(target, int):
        return min(max(target, bounds.start), bounds.end)
    return bounds.end
