"""The store of a query, opened on the driver and in every Spark task."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from storage_core import (
    LayoutNotFoundError,
    StorageError,
    Store,
    StoreConfig,
    TopicNotFoundError,
)
from storage_core.arguments import local_path, store_url
from storage_core.layouts.registry import LAYOUTS

from .errors import CursusError, cursus_error

if TYPE_CHECKING:  # a task that reads does not import the options of writes, nor the reverse
    from storage_core import Field, TopicFile

    from .options.read_options import ReadOptions
    from .options.write_options import StreamWriteOptions

TopicPartition = tuple[str, int]


class DriverStore(NamedTuple):
    """What the driver knows of the store of a write, and tells its tasks.

    Attributes:
        uuid: The identity of the store, as ``identity_of`` has it.
        pins: What spares tasks a look at the topics of an object store.
        bare: Whether it is a broker's directory without a topic: no file tells it from any other.
    """

    uuid: str | None = None
    pins: Mapping[str, bytes] | None = None
    bare: bool = False

    @classmethod
    def of(
        cls, store: Store, topic: str | None, pins: Mapping[str, bytes] | None = None
    ) -> DriverStore:
        """What tasks need to know of a store; ``topic`` is None if the rows name theirs."""
        uuid = identity_of(store)
        broker = uuid is None and not LAYOUTS[store.layout].identity
        return cls(uuid, pins, broker and topic is None and not store.topics())


def open_for_read(options: ReadOptions, pins: Mapping[str, bytes] | None = None) -> Store:
    """The store that a query reads; ``pins`` are those of the plan."""
    return Store.open(
        options.path,
        layout=options.layout,
        isolation=options.isolation,
        storage=dict(options.storage) or None,
        config=StoreConfig.from_environment().override(options.settings),
        pins=pins,
    )


def open_for_write(options: StreamWriteOptions) -> Store:
    """The store that a query writes, on the driver. A missing one is created, as the options say.

    Raises:
        CursusError: there is no store, and ``createTopic`` is false.
    """
    try:
        return _opened_for_write(options, None, create=options.create_topic)
    except LayoutNotFoundError as error:
        if options.create_topic:
            raise
        raise cursus_error(
            "LAYOUT_NOT_FOUND", f"{error} With createTopic=false a missing store is an error."
        ) from None


def open_existing_for_write(options: StreamWriteOptions) -> Store:
    """The store that a query writes, if there is one; its directory may lack the topic.

    Raises:
        LayoutNotFoundError: there is no store.
    """
    return _opened_for_write(options, None, create=False)


def open_in_task_for_write(options: StreamWriteOptions, driver: DriverStore) -> Store:
    """The same on an executor, where the driver's store must be: no task creates one.

    Raises:
        CursusError: there is no store on this host, or another one.
    """
    there = driver.bare and os.path.isdir(local_path(options.path))
    with driver_has_a_store(options.path):
        store = _opened_for_write(options, driver.pins, create=there)
    if driver.pins and store_url(options.path) is not None:
        return store  # a URL is the same everywhere: not worth a request of every task
    try:
        require_same_store(store, options.path, driver.uuid)
    except CursusError:
        store.close()
        raise
    return store


def _opened_for_write(
    options: StreamWriteOptions, pins: Mapping[str, bytes] | None, *, create: bool
) -> Store:
    return Store.open(
        options.path,
        layout=options.layout,
        create=create,
        storage=dict(options.storage) or None,
        config=StoreConfig.from_environment(),
        pins=pins,
    )


def identity_of(store: Store) -> str | None:
    """What tells a store from another one at the same path on another host; None if it has none."""
    try:
        found = store.store_uuid()
    except StorageError:  # what needs the identity reports it; a read needs none
        return None
    return None if found is None else str(found)


def require_same_store(store: Store, path: str, wanted: str | None) -> None:
    """Raise if a task has opened another store than the driver, whose ``identity_of`` is wanted.

    Raises:
        CursusError: it has: ``path`` leads to a disk of this host.
    """
    found = identity_of(store)
    if wanted in (None, found):
        return
    seen = "a directory without an identity" if found is None else f"store {found}"
    raise cursus_error(
        "IDENTITY_MISMATCH",
        f"Does every node see the same directory {path}? The driver has store {wanted} there, but "
        f"a task on host '{os.uname().nodename}' finds {seen}. Mount one directory on every node, "
        "or use an object store; see docs/deployment.md.",
    )


@contextmanager
def driver_has_a_store(path: str) -> Iterator[None]:
    """Ask whether all nodes see the directory, if a task finds no store where the driver had one.

    Raises:
        CursusError: there is no store on this host.
    """
    try:
        yield
    except LayoutNotFoundError as error:
        raise cursus_error(
            "LAYOUT_NOT_FOUND",
            f"Does every node see the directory {path}? The driver opened the store there, but a "
            f"task on host '{os.uname().nodename}' does not find it: {error} Mount it on every "
            "node, or use an object store; see docs/deployment.md.",
        ) from None


def ensure_topic(
    store: Store,
    options: StreamWriteOptions,
    topic: str,
    columns: Sequence[Field] | None = None,
    found: TopicFile | None = None,
) -> TopicFile:
    """Create a missing topic if ``createTopic`` is true; ``columns`` make it a typed one.

    ``found`` is the topic, if the caller has just looked.

    Raises:
        CursusError: the topic is missing and ``createTopic`` is false, or it does not have
            ``numPartitions`` partitions.
    """
    wanted = options.num_partitions
    try:
        found = found or store.topic(topic)
    except TopicNotFoundError as error:
        if not options.create_topic:
            raise cursus_error(
                "TOPIC_NOT_FOUND", f"{error} Create it, or set createTopic to true."
            ) from None
        found = store.create_topic(
            topic,
            wanted or 1,
            exist_ok=True,
            schema=columns,
            key_columns=options.key_columns or (),
            timestamp_column=options.timestamp_column,
        )
    if wanted is not None and found.partitions != wanted:
        raise cursus_error(
            "PARTITION_COUNT",
            f"Topic '{topic}' has {found.partitions} partition{'s' * (found.partitions != 1)}, but "
            f"numPartitions is {wanted}. "
            "Remove the option, or add partitions to the topic.",
        )
    return found
