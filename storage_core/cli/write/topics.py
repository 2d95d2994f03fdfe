"""``create``, ``alter`` and ``delete``: topics and their settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ...config import StoreConfig
from ...errors import TopicExistsError
from ...metadata.topic_file import TOPIC_SETTINGS, with_partitions
from ...schema.ddl import parse_ddl, quoted
from ...schema.fields import fold
from ...store.store import Store
from ..common import arguments, output
from ..common.formatting import number, plural, size
from ..inspect.store_facts import facts_of_topic

_settings = click.option(
    "--set",
    "pairs",
    multiple=True,
    metavar="NAME=VALUE",
    help=f"A setting of the topic; may be repeated. Settings: {', '.join(TOPIC_SETTINGS)}.",
)


@click.command()
@arguments.path
@click.argument("topic")
@click.option(
    "--partitions", "-p", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
    help="Number of partitions.",
)  # fmt: skip
@click.option(
    "--schema", metavar="DDL",
    help="Columns as in Spark, such as 'id BIGINT NOT NULL, tags ARRAY<STRING>': makes the topic a "
    "typed one.",
)  # fmt: skip
@click.option(
    "--key-columns", type=arguments.names_option, default="", metavar="NAMES",
    help="Columns of --schema, separated by commas, that choose the partition of a row.",
)  # fmt: skip
@click.option(
    "--timestamp-column", metavar="NAME",
    help="Column of --schema whose values are the timestamps of the rows.",
)  # fmt: skip
@_settings
@arguments.layout_option("--layout", "Layout of a new store", auto="means native")
@arguments.storage
@click.option("--if-not-exists", is_flag=True, help="Succeed if the topic exists.")
def create(
    path: str,
    topic: str,
    partitions: int,
    schema: str | None,
    key_columns: tuple[str, ...],
    timestamp_column: str | None,
    pairs: tuple[str, ...],
    layout: str,
    storage: tuple[str, ...],
    if_not_exists: bool,
) -> None:
    """Create TOPIC, and the store if PATH is empty or missing.

    Without --schema it is a records topic, with keys and values. The kind of a topic, its key
    columns and its timestamp column never change.
    """
    settings = arguments.parse_settings(pairs)
    columns = None if schema is None else parse_ddl(schema)
    if columns is None and (key_columns or timestamp_column is not None):
        raise click.UsageError("--key-columns and --timestamp-column name columns of --schema.")
    config = StoreConfig.from_environment()
    options = arguments.storage_options(storage)
    with Store.open(path, layout=layout, create=True, config=config, storage=options) as store:
        existed = topic in store.topics()
        given = {name: value for name, value in settings.items() if value is not None}
        created = store.create_topic(
            topic,
            partitions,
            exist_ok=if_not_exists,
            schema=columns,
            key_columns=key_columns,
            timestamp_column=timestamp_column,
            **given,
        )
        found = _fixed(created.is_typed, created.key_columns, created.timestamp_column)
        if found != _fixed(columns is not None, key_columns, timestamp_column):
            raise TopicExistsError(
                f"topic {topic!r} exists as a {created.kind} topic with key columns "
                f"{list(created.key_columns)} and timestamp column {created.timestamp_column!r}. "
                "These never change: take another name.",
                topic=topic,
            )
    what = f"a {created.kind} topic with {plural(created.partitions, 'partition')}"
    output.note(f"{topic} is there already: {what}" if existed else f"{topic} is created: {what}")


def _fixed(is_typed: bool, keys: Sequence[str], timestamp: str | None) -> tuple[Any, ...]:
    """What never changes of a topic. The case of names does not matter, as in Spark."""
    return is_typed, [fold(name) for name in keys], fold(timestamp or "")


@click.command()
@arguments.with_store
@arguments.topic
@click.option(
    "--partitions", "-p", type=click.IntRange(min=1), metavar="N",
    help="New number of partitions; it can only grow.",
)  # fmt: skip
@click.option(
    "--add-column", "added", multiple=True, metavar="DDL",
    help="A column to add to a typed topic, such as 'amount DOUBLE'; may be repeated.",
)  # fmt: skip
@_settings
def alter(
    store: Store,
    topic: str,
    partitions: int | None,
    added: tuple[str, ...],
    pairs: tuple[str, ...],
) -> None:
    """Add partitions or columns to TOPIC, or change its settings.

    New columns are null in the rows that are there. --set NAME=default removes a setting from the
    topic, so that the store's own value applies.
    """
    settings = arguments.parse_settings(pairs)
    if not settings and partitions is None and not added:
        raise click.UsageError("Nothing to change. Pass --partitions, --add-column or --set.")
    before, columns_before = store.topic(topic), store.schema(topic)
    if partitions is not None:
        with_partitions(topic, before, partitions)  # raises before anything is changed
    if added:
        columns = parse_ddl(", ".join(added))
        for column in columns:
            if not column.nullable:
                raise click.UsageError(
                    f"--add-column: {quoted(column.name)} cannot be NOT NULL: the rows that are "
                    "there have no value for it."
                )
        store.alter_topic(topic, add_columns=columns, **settings)
    elif settings:
        store.alter_topic(topic, **settings)
    if partitions is not None:
        store.add_partitions(topic, partitions)
    found, changes = store.topic(topic), list[str]()
    if store.schema(topic) != columns_before:
        changes.append(f"new columns {', '.join(added)}")
    changes += [
        f"{name} is {found.settings.get(name, 'default')}"
        for name in settings
        if found.settings.get(name) != before.settings.get(name)
    ]
    if found.partitions != before.partitions:
        changes.append(plural(found.partitions, "partition"))
    output.note(f"{topic}: {', '.join(changes) or 'nothing changed: it was so already'}")


@click.command()
@arguments.with_store
@arguments.topic
@arguments.yes
@click.pass_context
def delete(ctx: click.Context, store: Store, topic: str, yes: bool) -> None:
    """Delete TOPIC and all its records."""
    found = facts_of_topic(store, topic)
    what = f"{plural(found.count, 'partition')}, {number(found.records)} records"
    if not output.confirmed(f"Delete {topic} ({what}, {size(found.size)}) permanently?", yes):
        ctx.exit(output.PROBLEMS)
    store.delete_topic(topic)
    output.note(f"{topic} is deleted")
