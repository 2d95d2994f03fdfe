"""``create``, ``alter`` and ``delete``: topics and their settings."""

from __future__ import annotations

import click

from ...config import StoreConfig
from ...metadata.topic_file import TOPIC_SETTINGS
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
@_settings
@arguments.layout_option("--layout", "Layout of a new store", auto="means native")
@click.option("--if-not-exists", is_flag=True, help="Succeed if the topic exists.")
def create(
    path: str,
    topic: str,
    partitions: int,
    pairs: tuple[str, ...],
    layout: str,
    if_not_exists: bool,
) -> None:
    """Create TOPIC, and the store if PATH is empty or missing."""
    settings = arguments.parse_settings(pairs)
    config = StoreConfig.from_environment()
    with Store.open(path, layout=layout, create=True, config=config) as store:
        given = {name: value for name, value in settings.items() if value is not None}
        created = store.create_topic(topic, partitions, exist_ok=if_not_exists, **given)
    output.note(f"{topic}: {plural(created.partitions, 'partition')}")


@click.command()
@arguments.with_store
@arguments.topic
@click.option(
    "--partitions", "-p", type=click.IntRange(min=1), metavar="N",
    help="New number of partitions; it can only grow.",
)  # fmt: skip
@_settings
def alter(store: Store, topic: str, partitions: int | None, pairs: tuple[str, ...]) -> None:
    """Add partitions to TOPIC or change its settings.

    --set NAME=default removes a setting from the topic, so that the store's own value applies.
    """
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
    found = facts_of_topic(store, topic)
    what = f"{plural(found.count, 'partition')}, {number(found.records)} records"
    if not output.confirmed(f"Delete {topic} ({what}, {size(found.size)}) permanently?", yes):
        ctx.exit(output.PROBLEMS)
    store.delete_topic(topic)
    output.note(f"{topic} is deleted")
