"""The store of a query, opened on the driver and in every Spark task."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from storage_core import LayoutNotFoundError, Store, StoreConfig, TopicNotFoundError

from .errors import cursus_error

if TYPE_CHECKING:  # a task that reads does not import the options of writes, nor the reverse
    from storage_core import Field, TopicFile

    from .options.read_options import ReadOptions
    from .options.write_options import StreamWriteOptions

TopicPartition = tuple[str, int]


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


def open_for_write(options: StreamWriteOptions, pins: Mapping[str, bytes] | None = None) -> Store:
    """The store that a query writes. A missing store is created, in the layout of the options.

    ``pins`` are what the driver knows of the topics.

    Raises:
        CursusError: there is no store, and ``createTopic`` is false.
    """
    try:
        return _opened_for_write(options, pins, create=options.create_topic)
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


def open_in_task_for_write(
    options: StreamWriteOptions, pins: Mapping[str, bytes] | None = None
) -> Store:
    """The same on an executor, where the driver's store must be: no task creates another.

    If the rows name their topics, the driver has created nothing, and the first task does.
    """
    if options.topic is None:
        return open_for_write(options, pins)
    with same_store_as_the_driver(options.path):
        return _opened_for_write(options, pins, create=False)


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


@contextmanager
def same_store_as_the_driver(path: str) -> Iterator[None]:
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
            f"Topic '{topic}' has {found.partitions} partitions, but numPartitions is {wanted}. "
            "Remove the option, or add partitions to the topic.",
        )
    return found
