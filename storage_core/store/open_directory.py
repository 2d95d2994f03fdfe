"""Opening a log directory: its files, its layout and the engine for it."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..arguments import local_path, store_url
from ..config import StoreConfig
from ..engine.native import NativeEngine
from ..errors import ConfigError, LayoutMismatchError, LayoutNotFoundError
from ..io.io_errors import typed_write_errors
from ..layouts.detect import choose_layout
from ..layouts.registry import CURSUS, CURSUS_BROKER, LAYOUTS, OBJECTS, STORE_FILE
from ..lazy import LazyModule
from ..types import IsolationLevel
from ..vfs import PosixVfs, Vfs

if TYPE_CHECKING:
    from ..brokers import engine as broker_engine
    from ..brokers import ordinal_era
    from ..engine.api import Engine
    from ..kafka import engine as kafka_engine
    from ..metadata import identity
    from ..objects import engine as object_engine
    from ..vfs import remote
else:
    broker_engine = LazyModule("storage_core.brokers.engine")
    ordinal_era = LazyModule("storage_core.brokers.ordinal_era")
    identity = LazyModule("storage_core.metadata.identity")
    kafka_engine = LazyModule("storage_core.kafka.engine")
    object_engine = LazyModule("storage_core.objects.engine")
    remote = LazyModule("storage_core.vfs.remote")

_log = logging.getLogger("storage_core")
_logged: set[str] = set()

_NO_DIRECTORY = {
    errno.ENOTDIR: "is a file or inside one, not a directory",
    errno.ELOOP: "cannot be opened: its symbolic links form a loop",
}


def open_files(
    path: str | os.PathLike[str],
    layout: str,
    *,
    create: bool,
    config: StoreConfig,
    storage: Mapping[str, str] | None = None,
    known: bool = False,
) -> tuple[Vfs, str]:
    """The files of a log directory and its layout. ``create`` makes a missing directory.

    ``storage`` are the options of an object store, ``known`` that there is a store at the URL.

    Raises:
        LayoutNotFoundError: the path is not a log directory.
        LayoutMismatchError: the directory has another layout than ``layout``.
    """
    url = store_url(path)
    if url is not None:
        if known:
            return remote.UrlVfs(url, storage), OBJECTS.name
        return _open_url(remote.UrlVfs(url, storage), layout, create=create, config=config)
    if storage:
        raise ConfigError("storage options are of object stores, such as s3://bucket/log.")
    vfs = PosixVfs(local_path(path))
    try:
        chosen = choose_layout(vfs, layout, create=create)
        if (layout, chosen) == ("auto", CURSUS.name) and ordinal_era.holds_messages(vfs):
            chosen = CURSUS_BROKER.name
            _log_ordinal_era(vfs)
        if create:
            vfs.make_root()
    except OSError as error:
        if error.errno not in _NO_DIRECTORY:
            raise
        raise LayoutNotFoundError(
            f"{vfs.root} {_NO_DIRECTORY[error.errno]}. Pass the path of a log directory.", path=""
        ) from error
    if create and chosen == "native" and vfs.stat("topics") is None:
        # topics/ is created last. If it is missing, another process is creating the store now, or
        # crashed while it did.
        identity.require_trusted_locks(vfs, config)
        identity.first_boot(vfs, config)
    elif create and LAYOUTS[chosen].engine == "objects":
        object_engine.create_store(vfs, config)
    return vfs, chosen


def _open_url(vfs: Vfs, layout: str, *, create: bool, config: StoreConfig) -> tuple[Vfs, str]:
    if layout not in ("auto", OBJECTS.name):
        raise LayoutMismatchError(
            f"{vfs.root} is an object store, which holds layout objects, not {layout}. Use "
            "layout='auto'."
        )
    with typed_write_errors(f"opening {vfs.root}"):
        if not object_engine.has_store(vfs, config):
            if not create:
                raise LayoutNotFoundError(
                    f"{vfs.root} holds no store: there is no {STORE_FILE}, and perhaps no such "
                    "bucket or container. Compare the URL. Writing makes a store there: a Spark "
                    "write, `cursus create`, or create=True.",
                    path="",
                )
            try:
                object_engine.create_store(vfs, config)
            except FileNotFoundError as error:
                raise LayoutNotFoundError(
                    f"{vfs.root}: the bucket or container does not exist. Create it first.", path=""
                ) from error
    return vfs, OBJECTS.name


def semantics_problems(
    path: str | os.PathLike[str],
    config: StoreConfig,
    storage: Mapping[str, str] | None = None,
    rounds: int = 100,
) -> list[str]:
    """Try out what a store of objects depends on; every promise that is broken.

    At a URL no store has to be there. It needs the right to write, and leaves nothing.

    Raises:
        ConfigError: it is a directory of another layout.
    """
    url = store_url(path)
    vfs: Vfs = PosixVfs(local_path(path)) if url is None else remote.UrlVfs(url, storage)
    if url is None and (layout := choose_layout(vfs, "auto", create=False)) != OBJECTS.name:
        raise ConfigError(
            f"{vfs.root} has layout {layout}, which depends on locks, not on conditional writes. "
            "This is for layout objects."
        )
    with typed_write_errors(f"trying out {vfs.root}"):
        return object_engine.broken_promises(vfs, config, rounds)


def _log_ordinal_era(vfs: Vfs) -> None:
    """Say once in this process that the records decided, and not the file names alone."""
    if vfs.root not in _logged:
        _logged.add(vfs.root)
        _log.warning(
            "%s is read as layout cursus-broker: its first records are messages of an early cursus "
            "broker. Such a directory is only read. With layout=cursus its records are raw bytes, "
            "and it can be written.",
            vfs.root,
        )


def make_engine(
    vfs: Vfs,
    layout: str,
    config: StoreConfig,
    *,
    isolation: IsolationLevel,
    internal_topics: bool,
) -> Engine:
    """The engine for a directory of this layout."""
    if LAYOUTS[layout].engine == "native":
        return NativeEngine(vfs, config)
    if LAYOUTS[layout].engine == "objects":
        return object_engine.open_engine(vfs, config)
    if LAYOUTS[layout].engine == "kafka":
        return kafka_engine.open_engine(vfs, config, isolation, internal_topics)
    return broker_engine.open_engine(vfs, layout, config, isolation, internal_topics)
