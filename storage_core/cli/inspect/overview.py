"""``topics`` and ``describe``: topics, partitions, segments and consumer lag."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click

from ...metadata.schema_files import RegisteredSchema
from ...schema.ddl import quoted, to_ddl
from ...schema.fields import Field
from ...store.store import Store
from ..common import arguments, output
from ..common.formatting import iso, number, plural, printable, settings_text, size
from .size_strips import axis_of, strips
from .store_facts import (
    Lag,
    PartitionFacts,
    TopicFacts,
    consumer_lags,
    facts_of_topic,
    facts_of_topics,
    out_of_order,
)

_STRIP_WIDTH = 60


@click.command()
@arguments.with_store
@arguments.as_json
@click.pass_context
def topics(ctx: click.Context, store: Store, as_json: bool) -> None:
    """List the topics with their kind, segments, records and size."""
    found = facts_of_topics(store)
    if as_json:
        output.show_json([_summary(topic) for topic in found])
    else:
        output.table(
            ["topic", "kind", ">partitions", ">segments", ">records", ">size"],
            [
                [
                    topic.name,
                    "?" if topic.file is None else topic.file.kind,
                    number(topic.count),
                    *(["?", "?", "?"] if topic.problem else _figures(topic)),
                ]
                for topic in found
            ],
        )
    _exit_on_problems(ctx, found)


@click.command()
@arguments.with_store
@arguments.optional_topic
@arguments.as_json
@click.pass_context
def describe(ctx: click.Context, store: Store, topic: str | None, as_json: bool) -> None:
    """Show schema, partitions, offsets, segments, size and lag.

    Shows TOPIC, or all topics. The schema of a typed topic is shown as create --schema takes it,
    with all its versions. The strip of blocks below the table has a row for each partition:
    the higher a block, the more bytes the partition got at that time (at that offset, if the
    layout stores no timestamps).
    """
    if topic is None:
        found = facts_of_topics(store, times=True)
    else:
        found = [facts_of_topic(store, topic, times=True)]
    lags = consumer_lags(store, topic=topic)
    if as_json:
        output.show_json(
            {
                "path": store.path,
                "layout": store.layout,
                "topics": [_details(each) for each in found],
                "groups": [{**asdict(lag), "lag": lag.lag} for lag in lags],
            }
        )
    else:
        total = sum(each.size for each in found)
        count = plural(len(found), "topic")
        output.line(f"{store.path}  layout {store.layout}, {count}, {size(total)}")
        for each in found:
            _describe_topic(each)
        if lags:
            output.line()
            show_lags(lags)
    _exit_on_problems(ctx, found)


def _figures(topic: TopicFacts) -> list[str]:
    return [number(topic.segments), number(topic.records), size(topic.size)]


def _summary(topic: TopicFacts) -> dict[str, Any]:
    kind = None if topic.file is None else topic.file.kind
    shown: dict[str, Any] = {"topic": topic.name, "kind": kind, "partitions": topic.count}
    if topic.problem is not None:
        return {**shown, "problem": {"code": topic.problem.code, "message": str(topic.problem)}}
    return {
        **shown,
        "segments": topic.segments,
        "records": topic.records,
        "bytes": topic.size,
    }


def _details(topic: TopicFacts) -> dict[str, Any]:
    file = topic.file
    return {
        **_summary(topic),
        "created_at": "" if file is None else file.created_at,
        "settings": dict(topic.settings),
        "schema": to_ddl(topic.schemas[-1].schema.fields) if topic.schemas else None,
        "schema_versions": [
            {
                "version": schema.version,
                "origin": origin,
                "created_at": created_at,
                "schema": to_ddl(schema.fields),
            }
            for schema, origin, created_at in topic.schemas
        ],
        "key_columns": [] if file is None else list(file.key_columns),
        "timestamp_column": None if file is None else file.timestamp_column,
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
        "times_in_order": partition.times_in_order,
        "skipped": [asdict(each) for each in partition.skipped],
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
    output.line()
    kind = "" if topic.file is None else f"{topic.file.kind}, "
    output.line(f"{topic.name}  {kind}{plural(topic.count, 'partition')}", style="bold")
    if topic.settings:
        output.line(f"settings  {settings_text(topic.settings)}")
    _describe_schema(topic)
    output.table(
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
    for partition in topic.partitions:
        for lost in partition.skipped:
            place = f"of partition {partition.partition} were damaged and are skipped"
            output.line(f"records {number(lost.start)} to {number(lost.end - 1)} {place}")
    late = out_of_order(topic.partitions)
    if late is not None:
        output.line(f"times are out of order in {late}: read by time with timestampMode=exact")
    axis = axis_of(topic.partitions)
    if axis is None:
        return
    for partition, strip in zip(
        topic.partitions, strips(topic.partitions, axis, _STRIP_WIDTH), strict=True
    ):
        output.line(f"{partition.partition:>9}  {strip}")
    low, high = axis.ends
    between = "·" * max(1, _STRIP_WIDTH - 2 - len(low) - len(high))
    output.line(f"{'':>9}  {low} {between} {high}", style="dim")


def _describe_schema(topic: TopicFacts) -> None:
    if topic.file is None or not topic.schemas:
        return
    output.line(f"schema  {printable(to_ddl(topic.schemas[-1].schema.fields).encode())}")
    if topic.file.key_columns:
        keys = ", ".join(map(quoted, topic.file.key_columns))
        output.line(f"key columns  {printable(keys.encode())}")
    if topic.file.timestamp_column is not None:
        named = quoted(topic.file.timestamp_column)
        output.line(f"timestamp column  {printable(named.encode())}")
    output.table(
        [">schema version", "origin", "created at", "new or changed columns"],
        list(_version_rows(topic.schemas)),
    )


def _version_rows(schemas: Sequence[RegisteredSchema]) -> Iterator[list[str]]:
    before: Mapping[int, Field] = {}
    for schema, origin, created_at in schemas:
        changed = [field for field in schema.fields if before.get(field.id) != field]
        before = {field.id: field for field in schema.fields}
        text = printable(to_ddl(changed).encode())
        yield [str(schema.version), origin, created_at, text]


def show_lags(lags: Sequence[Lag]) -> None:
    """Print a table of committed offsets, end offsets and lag."""
    output.table(
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
            for lag in lags
        ],
    )


def _exit_on_problems(ctx: click.Context, found: Sequence[TopicFacts]) -> None:
    for topic in found:
        if topic.problem is not None:
            output.error(str(topic.problem), topic.problem.code)
    if any(topic.problem for topic in found):
        ctx.exit(output.PROBLEMS)
