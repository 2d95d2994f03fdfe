"""The first boot of a native store, and whether a directory may be written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

from ..config import StoreConfig
from ..errors import IdentityError, NotWritableError, StorageError, UnsafeFilesystemError
from ..io.durable import sync_directories
from ..vfs import Vfs
from . import checkpoint, identity
from .identity import Identity
from .topic_file import TopicFile

_UNSAFE = ("nfs", "cifs", "smb", "fuse")


def first_boot(vfs: Vfs, config: StoreConfig) -> Identity:
    """Give a new store its identity and its first, empty checkpoint."""
    created = identity.create(vfs, config)
    checkpoint.create(vfs, config.lock_timeout_ms)
    sync_directories(vfs, "topics")
    return created


def restore_identity(
    vfs: Vfs, config: StoreConfig, topics: Iterable[str], topic_of: Callable[[str], TopicFile]
) -> None:
    """Give a store that lost ``broker.id`` the identity that its topics remember.

    Raises:
        StorageError: those that could tell cannot be read. A new identity would lock them out.
    """
    if identity.read(vfs) is not None:
        return
    owners: set[UUID] = set()
    unread: StorageError | None = None
    for topic in topics:
        try:
            owners.add(topic_of(topic).store_uuid)
        except StorageError as error:
            unread = unread or error
    if unread is not None and not owners:
        raise unread
    if len(owners) > 1:
        raise IdentityError(
            f"{identity.PATH} is missing and the topics belong to {len(owners)} stores. "
            "Keep those of one store and move the rest away.",
            path=identity.PATH,
        )
    identity.create(vfs, config, known=next(iter(owners), None))
    first_boot(vfs, config)


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
