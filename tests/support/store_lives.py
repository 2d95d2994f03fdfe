"""Logs with a past: keyed, in many small segments; and what readers see of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from storage_core import Store, StoreConfig
from tests.support.stores import TOPIC, rows

Record = tuple[bytes | None, bytes | None]
"""Key and value."""
COLUMNS = ("offset", "timestamp", "key", "value", "headers", "timestamp_type")


def contents(store: Store, partition: int = 0, topic: str = TOPIC, **bounds: Any) -> list[Any]:
    """Everything a reader can know of the records."""
    return rows(store.read(topic, partition, columns=COLUMNS, **bounds))


def in_segments(
    path: Path,
    groups: Sequence[Sequence[Record]],
    config: StoreConfig | None = None,
    layout: str = "native",
    **settings: Any,
) -> Store:
    """A store whose topic has a sealed segment for each group of records, and an empty one more."""
    store = Store.open(path, create=True, config=config, layout=layout)
    store.create_topic(TOPIC, **settings)
    for group in groups:
        store.append(TOPIC, 0, [value for _, value in group], keys=[key for key, _ in group])
        store.roll(TOPIC, 0)
    store.append(TOPIC, 0, [b"the active segment"])
    return store


def numbered(segments: int, each: int = 3, keys: int = 2, size: int = 20) -> list[list[Record]]:
    """Groups of records with few keys, each value another."""
    return [
        [(b"k%d" % ((at * each + n) % keys), b"%d-%d" % (at, n) + b"." * size) for n in range(each)]
        for at in range(segments)
    ]


def latest(records: Sequence[tuple[int, bytes | None, bytes | None]], upto: int) -> list[int]:
    """Offsets that stay when all below ``upto`` is compacted: the model, a plain dict."""
    last = {key: offset for offset, key, _ in records if key is not None and offset < upto}
    return [
        offset for offset, key, _ in records if key is None or offset >= upto or last[key] == offset
    ]
