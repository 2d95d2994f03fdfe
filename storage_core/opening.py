"""Recognising a log directory, and deciding whether it may be written."""

from __future__ import annotations

import os

from . import checkpoint, identity
from .config import StoreConfig
from .durable import make_directories
from .errors import (
    IdentityError,
    LayoutMismatchError,
    LayoutNotFoundError,
    NotWritableError,
    UnsafeFilesystemError,
)
from .identity import Identity
from .vfs import PosixVfs, Vfs

LAYOUT_NAMES = ("native",)
_UNSAFE = ("nfs", "cifs", "smb", "fuse")


def recognise(vfs: Vfs) -> str | None:
    """Name of the layout of a directory, or None when it is empty or missing.

    Raises:
        LayoutNotFoundError: there are files, but of no layout we know.
    """
    try:
        names = vfs.listdir("")
    except FileNotFoundError:
        return None
    if "meta" in names or "topics" in names:
        return "native"
    if not names:
        return None
    raise LayoutNotFoundError(
        f"{vfs.root} is not a log directory. Looked for: meta/broker.id and topics/ (native). "
        f"Found: {', '.join(sorted(names)[:8])}.",
        path="",
    )


def open_directory(
    path: str | os.PathLike[str], layout: str, *, create: bool, config: StoreConfig
) -> Vfs:
    """Files of an existing store, or of a new one when ``create`` is set."""
    if layout not in ("auto", *LAYOUT_NAMES):
        raise LayoutNotFoundError(
            f"layout {layout!r} is unknown. Use auto, {', '.join(LAYOUT_NAMES)}."
        )
    vfs = PosixVfs(path)
    found = recognise(vfs)
    if found is not None:
        if layout not in ("auto", found):
            raise LayoutMismatchError(
                f"{vfs.root} holds layout {found}, not {layout}. Use layout='auto' or {found!r}."
            )
        if create and vfs.stat("topics") is None:
            # Its last step: another process is in its first boot, or crashed there.
            require_trusted_locks(vfs, config)
            first_boot(vfs, config)
        return vfs
    if not create:
        raise LayoutNotFoundError(
            f"{vfs.root} is empty or does not exist. Looked for: meta/broker.id and topics/ "
            "(native). Pass create=True to make a new store there.",
            path="",
        )
    vfs.make_root()
    require_trusted_locks(vfs, config)
    first_boot(vfs, config)
    return vfs


def first_boot(vfs: Vfs, config: StoreConfig) -> Identity:
    """Give a new store its identity and its first, empty checkpoint."""
    created = identity.create(vfs, config)
    checkpoint.create(vfs, config.lock_timeout_ms)
    make_directories(vfs, "topics")
    return created


def require_trusted_locks(vfs: Vfs, config: StoreConfig) -> None:
    """Refuse to write where advisory locks may not hold between machines."""
    kind = vfs.filesystem()
    if kind.startswith(_UNSAFE) and not config.allow_unsafe_fs:
        raise UnsafeFilesystemError(
            f"{vfs.root} is on {kind}, where file locks may not exclude other machines. "
            "Move the store to a local file system, or set allow_unsafe_fs if only one machine "
            "ever writes to it."
        )


def require_writable(vfs: Vfs, config: StoreConfig) -> Identity:
    """Check once that this process may write this store, and return who the store is."""
    if not vfs.writable():
        raise NotWritableError(
            f"{vfs.root} cannot be written by this user. Reading works; to write, change its "
            "permissions or use another user.",
            path="",
        )
    require_trusted_locks(vfs, config)
    found = identity.read(vfs)
    if found is None:
        raise IdentityError(
            f"{vfs.root} has topics but no {identity.PATH}. If this directory is the whole store, "
            "run repair to give it its identity back; if it is a part of one, copy the rest.",
            path=identity.PATH,
        )
    return found


def require_member(topic: str, topic_store: object, store: Identity) -> None:
    """Refuse to write a topic that was copied in from another store."""
    if topic_store != store.uuid:
        raise IdentityError(
            f"topic {topic!r} belongs to store {topic_store}, but this is store {store.uuid}. "
            "Copying a single topic directory is not supported: use convert, or copy the store.",
            topic=topic,
            path=f"topics/{topic}/topic.json",
        )
