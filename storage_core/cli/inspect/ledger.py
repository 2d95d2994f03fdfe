"""``ledger``: the versions that applications have committed."""

from __future__ import annotations

import click

from ...commit.ledger import LedgerEntry, VersionRanges
from ...errors import TopicNotFoundError
from ...store.store import Store
from ..common import arguments, output
from ..common.formatting import plural

_SHOWN = 5


@click.command()
@arguments.with_store
@click.option("--app", metavar="APP", help="Only this application (txnAppId, or a query's id).")
@click.option("--topic", "-t", metavar="TOPIC", help="Only this topic.")
@arguments.as_json
def ledger(store: Store, app: str | None, topic: str | None, as_json: bool) -> None:
    """Show the versions that applications have committed.

    A write with a txnVersion that is not above the last one adds nothing. With txnMode exact it
    adds nothing only if the version is among the committed ones.
    """
    found = [
        entry
        for entry in store.ledger()
        if app in (None, entry.app) and topic in (None, entry.topic) and not entry.plain
    ]
    if as_json:
        output.show_json([_fields(store, entry) for entry in found])
        return
    if found:
        output.table(
            ["app", "topic", "last", "committed", "recorded at"],
            [
                [
                    entry.app,
                    entry.topic if _is_current(store, entry) else f"{entry.topic} (deleted)",
                    str(entry.version),
                    _text(entry.committed),
                    entry.recorded_at,
                ]
                for entry in found
            ],
        )
    output.note(f"{plural(len(found), 'application')} with committed versions")


def _fields(store: Store, entry: LedgerEntry) -> dict[str, object]:
    return {
        "app": entry.app,
        "topic": entry.topic,
        "version": entry.version,
        "committed": entry.committed,
        "recorded_at": entry.recorded_at,
        "deleted": not _is_current(store, entry),
    }


def _is_current(store: Store, entry: LedgerEntry) -> bool:
    try:
        return str(store.topic(entry.topic).uuid) == entry.topic_uuid
    except TopicNotFoundError:
        return False


def _text(ranges: VersionRanges | None) -> str:
    """The highest ranges. Entries of earlier releases do not have them."""
    if ranges is None:
        return "unknown"
    parts = [str(low) if low == high else f"{low} to {high}" for low, high in ranges[-_SHOWN:]]
    return ", ".join(["…", *parts] if len(ranges) > _SHOWN else parts)
