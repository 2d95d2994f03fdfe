"""Opening a log directory: its files, its layout and the engine for it."""

from __future__ import annotations

import errno
import logging
import os
from typing import TYPE_CHECKING

from ..arguments import local_path
from ..config import StoreConfig
from ..engine.native import NativeEngine
from ..errors import LayoutNotFoundError
from ..layouts.detect import choose_layout
from ..layouts.registry import CURSUS, CURSUS_BROKER, LAYOUTS
from ..lazy import LazyModule
from ..types import IsolationLevel
from ..vfs import PosixVfs, Vfs

if TYPE_CHECKING:
    from ..brokers import engine as broker_engine
    from ..brokers import ordinal_era
    from ..engine.api import Engine
    from ..metadata import identity
else:
    broker_engine = LazyModule("storage_core.brokers.engine")
    ordinal_era = LazyModule("storage_core.brokers.ordinal_era")
    identity = LazyModule("storage_core.metadata.identity")

_log = logging.getLogger("storage_core")
_logged: set[str] = set()

_NO_DIRECTORY = {
    errno.ENOTDIR: "is a file or inside one, not a directory",
    errno.ELOOP: "cannot be opened: its symbolic links form a loop",
}


def open_files(
    path: str | os.PathLike[str], layout: str, *, create: bool, config: StoreConfig
) -> tuple[Vfs, str]:
    """The files of a log directory and its layout. ``create`` makes a missing directory.

    Raises:
        LayoutNotFoundError: the path is not a log directory.
        LayoutMismatchError: the directory has another layout than ``layout``.
    """
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
    return vfs, chosen


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
    return broker_engine.open_engine(vfs, layout, config, isolation, internal_topics)
