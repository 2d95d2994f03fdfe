"""Every layout in one table: its name, its files, its engine and what it can do.

Detection, ``Store.open``, the setting ``layout``, the CLI's ``--layout``, the connector's option
and the tables of the README and ``docs/lifecycle.md`` are derived from it or checked against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from .broker_names import BROKER_NAMES, CURSUS_NAMES, KAFKA_NAMES, RUSTLOG_NAMES, Names


class Layout(NamedTuple):
    """One kind of log directory.

    Attributes:
        name: As users write it.
        files: What detection looks for, in words.
        engine: Which engine opens it; ``store.open_directory`` has them.
        names: The file names of a broker; they are also what detection goes by. None for ours.
        columns: The columns that a record has beside its offset.
        atomic_for: Who sees a commit whole or not at all; None where nobody but its broker writes.
        retain: By which times ``retain`` works; None where it is refused.
        delete_records: What ``delete_records`` removes; None where it is refused.
        compact: Whether ``compact`` works.
        rewrite: Whether ``merge`` and ``recompress`` work.
        scrub: What ``scrub`` verifies.
    """

    name: str
    files: str
    engine: Literal["native", "broker", "objects", "kafka"]
    names: Names | None
    columns: tuple[str, ...]
    atomic_for: Literal["everybody", "our readers"] | None = "our readers"
    retain: Literal["record times", "file times"] | None = "file times"
    delete_records: Literal["records", "files"] | None = "files"
    compact: bool = False
    rewrite: bool = False
    scrub: Literal["checksums", "records and offsets", "records"] = "records and offsets"


NATIVE = Layout(
    "native",
    files="meta/broker.id and topics/<topic>/topic.json",
    engine="native",
    names=None,
    columns=("key", "value", "headers", "timestamp"),
    atomic_for="everybody",
    retain="record times",
    delete_records="records",
    compact=True,
    rewrite=True,
    scrub="checksums",
)
# Offsets are positions in the log, so no file can be dropped: all later records would move.
CURSUS = Layout(
    "cursus",
    files="<topic>/partition_<p>_segment_<n>.log",
    engine="broker",
    names=CURSUS_NAMES,
    columns=("value",),
    retain=None,
    delete_records=None,
    scrub="records",
)
CURSUS_BROKER = Layout(
    "cursus-broker",
    files="<topic>/partition_<p>_segment_<20 digits>.log",
    engine="broker",
    names=BROKER_NAMES,
    columns=("key", "value", "headers"),
    compact=True,
)
RUSTLOG = Layout(
    "rustlog",
    files="topics/<topic>/partition-<p>/<20 digits>.log",
    engine="broker",
    names=RUSTLOG_NAMES,
    columns=("value",),
)
KAFKA = Layout(
    "kafka",
    files="<topic>-<p>/<20 digits>.log",
    engine="kafka",
    names=KAFKA_NAMES,
    columns=("key", "value", "headers", "timestamp"),
    atomic_for=None,
    retain=None,
    delete_records=None,
    scrub="checksums",
)

STORE_FILE = "store.json"
OBJECTS = Layout(
    "objects",
    files="store.json and logs/<id>/<20 digits>.commit",
    engine="objects",
    names=None,
    columns=("key", "value", "headers", "timestamp"),
    atomic_for="everybody",
    retain="record times",
    delete_records="records",
    compact=True,
    rewrite=True,
    scrub="checksums",
)

LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {layout.name: layout for layout in (NATIVE, CURSUS, CURSUS_BROKER, RUSTLOG, OBJECTS, KAFKA)}
)
READ_ONLY = tuple(layout.name for layout in LAYOUTS.values() if layout.atomic_for is None)
"""The layouts that only their broker writes."""
LAYOUT_NAMES = ("auto", *LAYOUTS)
"""What users may write: a layout, or ``auto`` to recognise it."""
