"""``meta/broker.id``: who a store is. Written once, by rename; never changed in place."""

from __future__ import annotations

import datetime
import socket
import uuid
from dataclasses import dataclass

from ..config import StoreConfig
from ..errors import DamagedMetadataError, IdentityError
from ..io import json_files as metafile
from ..io.locks import ensure_lock_file, locked
from ..vfs import Vfs

PATH, LOCK = "meta/broker.id", "meta/lock"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Identity:
    """Contents of ``meta/broker.id``."""

    uuid: uuid.UUID
    created_at: str
    node_name: str


def read(vfs: Vfs) -> Identity | None:
    """The store's identity, or None when it has none yet.

    Raises:
        DamagedMetadataError: the file cannot be trusted.
    """
    fields = metafile.read(vfs, PATH)
    if fields is None:
        return None
    if fields.get("format") != FORMAT:
        raise IdentityError(
            f"{PATH} has format {fields.get('format')!r}; this release knows {FORMAT}. "
            "Use the release that wrote the store.",
            path=PATH,
        )
    try:
        return Identity(
            uuid.UUID(metafile.field(fields, "uuid", str, PATH)),
            metafile.field(fields, "created_at", str, PATH),
            metafile.field(fields, "node_name", str, PATH),
        )
    except ValueError as error:
        raise DamagedMetadataError(f"{PATH} holds no UUID: {error}", path=PATH) from error


def create(vfs: Vfs, config: StoreConfig, known: uuid.UUID | None = None) -> Identity:
    """Make the store's first identity, or return the one another process just made.

    Args:
        vfs: The store's files.
        config: Gives the node's name and the lock's patience.
        known: Identity to restore, from the topics of a store that lost its file.
    """
    ensure_lock_file(vfs, LOCK)
    with locked(vfs, LOCK, config.lock_timeout_ms):
        existing = read(vfs)
        if existing is not None:
            return existing
        identity = Identity(
            known or uuid.uuid4(), timestamp(vfs), config.node_name or socket.gethostname()
        )
        metafile.replace(
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


def timestamp(vfs: Vfs) -> str:
    """Now, as metadata files write it."""
    moment = datetime.datetime.fromtimestamp(vfs.now_us() / 1e6, tz=datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
