"""Every layout in one table: its name, its files, its engine and what it can do.

Detection, ``Store.open``, the setting ``layout``, the CLI's ``--layout``, the connector's option
and the tables of the README and ``docs/lifecycle.md`` are derived from it or checked against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from .broker_names import (
    BROKER_NAMES,
    CURSUS_NAMES,
    KAFKA_NAMES,
    RUSTLOG_NAMES,
    STATE_DIRECTORY,
    Names,
)


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
        stores_all: Whether it stores every column of a record, and any offset.
        ordinal: Whether offsets are positions in the log, which begin at 0.
        frames: Where its frames stand: in files, or in slices of objects. None if it has none.
        rolls: Whether a log has an active segment, which grows until it is sealed.
        garbage: Whether ``collect_garbage`` has something to do.
        requests: Whether a look at a topic is a request to a server.
        tells_end: Whether damaged records cannot be taken for the end of the log, because something
            beside them says where that is.
        identity: Whether a store has a uuid.
        state: The directory of our own small files and locks; None where nothing can be locked.
        groups: Where the offsets of consumer groups are, in a sentence, if they are not here.
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
    stores_all: bool = False
    ordinal: bool = False
    frames: Literal["files", "slices"] | None = None
    rolls: bool = True
    garbage: bool = False
    requests: bool = False
    tells_end: bool = False
    identity: bool = False
    state: str | None = STATE_DIRECTORY
    groups: str | None = None


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
    stores_all=True,
    frames="files",
    tells_end=True,
    identity=True,
    state="meta",
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
    ordinal=True,
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
    groups="Kafka keeps the offsets of its consumer groups in the topic __consumer_offsets, in a "
    "form that is not read here. Ask the broker (kafka-consumer-groups --describe), then set them "
    "in a native store with --reset-to.",
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
    stores_all=True,
    frames="slices",
    rolls=False,
    garbage=True,
    requests=True,
    tells_end=True,
    identity=True,
    state=None,
)

LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {layout.name: layout for layout in (NATIVE, CURSUS, CURSUS_BROKER, RUSTLOG, OBJECTS, KAFKA)}
)
READ_ONLY = tuple(layout.name for layout in LAYOUTS.values() if layout.atomic_for is None)
"""The layouts that only their broker writes."""
DEFAULT = NATIVE
"""What a store becomes unless another layout is asked for."""
LAYOUT_NAMES = ("auto", *LAYOUTS)
"""What users may write: a layout, or ``auto`` to recognise it."""


def layout_at_url(setting: str) -> str:
    """What to ask for in an object store, where the default of the setting is no wish."""
    return "auto" if setting == DEFAULT.name else setting
