"""``topics``, ``describe``, ``create``, ``alter``, ``delete``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from ...config import StoreConfig
from ...metadata.topic_file import TOPIC_SETTINGS
from ...store.store import Store
from ..common import arguments, screen
from ..common.wording import iso, number, plural, size
from ..inspect.overview import Lag, PartitionFacts, TopicFacts, lags, look_at_topic, look_at_topics
from ..inspect.picture import axis_of, strips

_STRIP = 60
_settings = click.option(
    "--set",
    "pairs",
    multiple=True,
    metavar="NAME=VALUE",
    help=f"A setting of the topic: {', '.join(TOPIC_SETTINGS)}.",
)


@click.command()
@arguments.with_store
@arguments.as_json
@click.pass_context
def topics(ctx: click.Context, store: Store, as_json: bool) -> None:
    """List the topics of the store at PATH."""
    found = look_at_topics(store)
    if as_json:
        screen.show_json([_summary(topic) for topic in found])
    else:
        screen.table(
            ["topic", ">partitions", ">segments", ">records", ">size"],
            [
                [
                    topic.name,
                    number(topic.count),
                    *(["?", "?", "?"] if topic.problem else _figures(topic)),
                ]
                for topic in found
            ],
        )
    _complain_and_exit(ctx, found)


@click.command()
@arguments.with_store
@arguments.optional_topic
@arguments.as_json
@click.pass_context
def describe(ctx: click.Context, store: Store, topic: str | None, as_json: bool) -> None:
    """Show TOPIC, or all topics: partitions, offsets, segments, bytes, lag.

    The strips show the bytes of each partition over time (over offsets where a layout has no
    times): the higher the block, the more.
    """
    if topic is None:
        found = look_at_topics(store, times=True)
    else:
        found = [look_at_topic(store, topic, times=True)]
    behind = lags(store, topic=topic)
    if as_json:
        screen.show_json(
            {
                "path": store.path,
                "layout": store.layout,
                "topics": [_details(each) for each in found],
                "groups": [{**asdict(lag), "lag": lag.lag} for lag in behind],
            }
        )
    else:
        total = sum(each.size for each in found)
        count = plural(len(found), "topic")
        screen.line(f"{store.path}  layout {store.layout}, {count}, {size(total)}")
        for each in found:
            _describe_topic(each)
        _describe_lag(behind)
    _complain_and_exit(ctx, found)


@click.command()
@arguments.path
@click.argument("topic")
@click.option(
    "--partitions", "-p", type=click.IntRange(min=1), default=1, show_default=True, metavar="N"
)
@_settings
@click.option("--layout", type=arguments.LAYOUTS, default="auto", help="Of a store that is made.")
@click.option("--if-not-exists", is_flag=True, help="An existing topic is fine.")
def create(
    path: str,
    topic: str,
    partitions: int,
    pairs: tuple[str, ...],
    layout: str,
    if_not_exists: bool,
) -> None:
    """Create TOPIC, and the store at PATH if there is none."""
    settings = arguments.parse_settings(pairs)
    config = StoreConfig.from_environment()
    with Store.open(path, layout=layout, create=True, config=config) as store:
        given = {name: value for name, value in settings.items() if value is not None}
        made = store.create_topic(topic, partitions, exist_ok=if_not_exists, **given)
    screen.note(f"{topic}: {plural(made.partitions, 'partition')}")


@click.command()
@arguments.with_store
@arguments.topic
@click.option("--partitions", "-p", type=click.IntRange(min=1), metavar="N", help="Grow to N.")
@_settings
def alter(store: Store, topic: str, partitions: int | None, pairs: tuple[str, ...]) -> None:
    """Give TOPIC more partitions or other settings (NAME=default takes one back)."""
    settings = arguments.parse_settings(pairs)
    if not settings and partitions is None:
        raise click.UsageError("Nothing to change. Pass --partitions or --set.")
    if settings:
        store.alter_topic(topic, **settings)
    if partitions is not None:
        store.add_partitions(topic, partitions)


@click.command()
@arguments.with_store
@arguments.topic
@arguments.yes
@click.pass_context
def delete(ctx: click.Context, store: Store, topic: str, yes: bool) -> None:
    """Delete TOPIC and all its records."""
    found = look_at_topic(store, topic)
    what = f"{plural(found.count, 'partition')}, {number(found.records)} records"
    if not screen.confirmed(f"Delete {topic} ({what}, {size(found.size)}) for good?", yes):
        ctx.exit(screen.PROBLEMS)
    store.delete_topic(topic)
    screen.note(f"{topic} is deleted")


def _figures(topic: TopicFacts) -> list[str]:
    return [number(topic.segments), number(topic.records), size(topic.size)]


def _summary(topic: TopicFacts) -> dict[str, Any]:
    shown: dict[str, Any] = {"topic": topic.name, "partitions": topic.count}
    if topic.problem is not None:
        return {**shown, "problem": {"code": topic.problem.code, "message": str(topic.problem)}}
    return {
        **shown,
        "segments": topic.segments,
        "records": topic.records,
        "bytes": topic.size,
    }


def _details(topic: TopicFacts) -> dict[str, Any]:
    return {
        **_summary(topic),
        "created_at": topic.created_at,
        "settings": dict(topic.settings or {}),
        "partitions": [_partition_details(partition) for partition in topic.partitions],
    }


def _partition_details(partition: PartitionFacts) -> dict[str, Any]:
    return {
        "partition": partition.partition,
        "start": partition.start,
        "end": partition.end,
        "records": partition.records,
        "bytes": partition.size,
        "recovery_due": partition.recovery_due,
        "segments": [
            {
                **asdict(segment),
                "first_time": None if segment.first_time is None else iso(segment.first_time),
                "last_time": None if segment.last_time is None else iso(segment.last_time),
            }
            for segment in partition.segments
        ],
    }


def _describe_topic(topic: TopicFacts) -> None:
    screen.line()
    screen.line(f"{topic.name}  {plural(topic.count, 'partition')}", style="bold")
    if topic.settings:
        screen.line(f"settings  {json.dumps(dict(topic.settings), ensure_ascii=False)}")
    screen.table(
        [">partition", ">start", ">end", ">records", ">segments", ">size", "state"],
        [
            [
                str(partition.partition),
                number(partition.start),
                number(partition.end),
                number(partition.records),
                number(len(partition.segments)),
                size(partition.size),
                "recovery due" if partition.recovery_due else "clean",
            ]
            for partition in topic.partitions
        ],
    )
    axis = axis_of(topic.partitions)
    if axis is None:
        return
    for partition, strip in zip(
        topic.partitions, strips(topic.partitions, axis, _STRIP), strict=True
    ):
        screen.line(f"{partition.partition:>9}  {strip}")
    low, high = axis.ends
    between = "·" * max(1, _STRIP - 2 - len(low) - len(high))
    screen.line(f"{'':>9}  {low} {between} {high}", style="dim")


def _describe_lag(behind: Sequence[Lag]) -> None:
    if behind:
        screen.line()
        show_lag(behind)


def show_lag(behind: Sequence[Lag]) -> None:
    """A table of how far groups are behind."""
    screen.table(
        ["group", "topic", ">partition", ">committed", ">end", ">lag"],
        [
            [
                lag.group,
                lag.topic,
                str(lag.partition),
                number(lag.committed),
                number(lag.end),
                number(lag.lag),
            ]
            for lag in behind
        ],
    )


def _complain_and_exit(ctx: click.Context, found: Sequence[TopicFacts]) -> None:
    for topic in found:
        if topic.problem is not None:
            screen.complain(str(topic.problem), topic.problem.code)
    if any(topic.problem for topic in found):
        ctx.exit(screen.PROBLEMS)
