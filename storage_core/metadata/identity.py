"""``meta/broker.id``: the identity of a store, and whether this process may write to it.

A rename creates the file once. Nothing changes it afterwards.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..config import StoreConfig
from ..errors import (
    DamagedMetadataError,
    IdentityError,
    NotWritableError,
    StorageError,
    UnsafeFilesystemError,
)
from ..io import json_files
from ..io.durable import sync_directories
from ..io.locks import ensure_lock_file, locked
from ..lazy import LazyModule
from ..vfs import Vfs
from .topic_file import TopicFile

if TYPE_CHECKING:
    from . import checkpoint
else:
    checkpoint = LazyModule("storage_core.metadata.checkpoint")

PATH, LOCK = "meta/broker.id", "meta/lock"
FORMAT = 1
_UNSAFE_FILESYSTEMS = ("nfs", "cifs", "smb", "fuse")


@dataclass(frozen=True, slots=True)
class Identity:
    """Contents of ``meta/broker.id``."""

    uuid: uuid.UUID
    created_at: str
    node_name: str


def read(vfs: Vfs) -> Identity | None:
    """The store's identity; None if it has none yet.

    Raises:
        DamagedMetadataError: the file is damaged.
        IdentityError: a newer release wrote the file.
    """
    fields = json_files.read(vfs, PATH)
    return None if fields is None else from_fields(fields, PATH, FORMAT)


def from_fields(fields: Mapping[str, Any], path: str, known_format: int) -> Identity:
    """The identity in the fields of a document.

    Raises:
        DamagedMetadataError: a field is missing or invalid.
        IdentityError: a newer release wrote it.
    """
    if fields.get("format") != known_format:
        raise IdentityError(
            f"{path} has format {fields.get('format')!r}; this release knows {known_format}. "
            "Use the release that wrote the store.",
            path=path,
        )
    try:
        return Identity(
            uuid.UUID(json_files.field(fields, "uuid", str, path)),
            json_files.field(fields, "created_at", str, path),
            json_files.field(fields, "node_name", str, path),
        )
    except ValueError as error:
        raise DamagedMetadataError(
            f"{path} is damaged: uuid: {error}. Restore it from a copy.", path=path
        ) from error


def create(vfs: Vfs, config: StoreConfig, known: uuid.UUID | None = None) -> Identity:
    """Create the store's identity, or return the one that another process has just created.

    Args:
        vfs: The store's files.
        config: Its ``node_name`` and ``lock_timeout_ms`` are used.
        known: The UUID that the topics name, for a store that lost ``broker.id``.
    """
    ensure_lock_file(vfs, LOCK)
    with locked(vfs, LOCK, config.lock_timeout_ms):
        existing = read(vfs)
        if existing is not None:
            return existing
        name = config.node_name or socket.gethostname()
        identity = Identity(known or uuid.uuid4(), json_files.timestamp(vfs), name)
        json_files.replace(
            vfs,
            PATH,
            {
                "format": FORMAT,
                "uuid": str(identity.uuid),
                "created_at": identity.created_at,
                "node_name": identity.node_name,
            },
        )
        return identity


def first_boot(vfs: Vfs, config: StoreConfig) -> Identity:
    """Create the identity and the first, empty checkpoint of a new store."""
    created = create(vfs, config)
    checkpoint.create(vfs, config.lock_timeout_ms)
    sync_directories(vfs, "topics")
    return created


def restore_identity(
    vfs: Vfs, config: StoreConfig, topics: Iterable[str], topic_of: Callable[[str], TopicFile]
) -> None:
    """Write a lost ``broker.id`` again, with the store UUID that the topics name.

    Raises:
        StorageError: no topic can be read. A new identity would make all topics unwritable.
    """
    if read(vfs) is not None:
        return
    owners: set[uuid.UUID] = set()
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
            f"{PATH} is missing and the topics belong to {len(owners)} different stores. "
            "Keep the topics of one store and move the others away.",
            path=PATH,
        )
    create(vfs, config, known=next(iter(owners), None))
    first_boot(vfs, config)


def require_trusted_locks(vfs: Vfs, config: StoreConfig) -> None:
    """Raise on file systems where advisory locks may not work between machines."""
    kind = vfs.filesystem()
    if kind.startswith(_UNSAFE_FILESYSTEMS) and not config.allow_unsafe_fs:
        raise UnsafeFilesystemError(
            f"{vfs.root} is on {kind}, where file locks may not exclude other machines. "
            "Move the store to a local file system, or set allow_unsafe_fs if only one machine "
            "writes to it."
        )


def require_writable(vfs: Vfs, config: StoreConfig) -> Identity:
    """Check that this process may write to the store; return the store's identity."""
    if not vfs.writable():
        raise NotWritableError(
            f"this user cannot write to {vfs.root}. Reading works. To write, change the "
            "permissions or use another user.",
            path="",
        )
    require_trusted_locks(vfs, config)
    found = read(vfs)
    if found is None:
        raise IdentityError(
            f"{vfs.root} has topics but no {PATH}. If this directory is a complete store, "
            "run repair: it restores the file. If it is a part of a store, copy the rest.",
            path=PATH,
        )
    return found


class Ownership:
    """Checks that this process may write to a store, and that a topic belongs to the store.

    It checks the directory once, and a topic each time its log is opened.
    """

    def __init__(self, vfs: Vfs, config: StoreConfig) -> None:
        self._vfs = vfs
        self._config = config
        self._identity: Identity | None = None
        self._is_writable = False

    def require_writable(self) -> Identity:
        if self._identity is None or not self._is_writable:
            self._identity = require_writable(self._vfs, self._config)
            self._is_writable = True
        return self._identity

    def store_uuid(self) -> uuid.UUID | None:
        """The identity of the store; None if its file is missing."""
        if self._identity is None:
            self._identity = read(self._vfs)
        return None if self._identity is None else self._identity.uuid

    def require_member(self, topic: str, topic_store: uuid.UUID) -> None:
        """Raise for a topic that was copied from another store."""
        store = self.require_writable().uuid
        if topic_store != store:
            raise IdentityError(
                f"topic {topic!r} belongs to store {topic_store}, but this is store {store}. "
                "Copying a single topic directory is not supported: use convert, or copy the "
                "store.",
                topic=topic,
                path=f"topics/{topic}/topic.json",
            )
