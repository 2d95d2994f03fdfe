"""``store.json``: the identity of a store of objects. It is created once and never changes."""

from __future__ import annotations

import socket
import uuid

from ..config import StoreConfig
from ..errors import IdentityError, NotWritableError
from ..io import json_files
from ..layouts.registry import STORE_FILE
from ..metadata.identity import Identity, from_fields
from ..vfs import Vfs
from .backend import read_object
from .patience import TRANSIENT, PatientBackend
from .semantics import require_semantics

_FORMAT = 1


def read(backend: PatientBackend) -> Identity | None:
    """The store's identity; None if there is no store.

    Raises:
        DamagedMetadataError: the object is damaged.
        IdentityError: a newer release wrote it.
    """
    data = read_object(backend, STORE_FILE)
    if data is None:
        return None
    return from_fields(json_files.load(data, STORE_FILE), STORE_FILE, _FORMAT)


def require_writable(backend: PatientBackend, clock: Vfs) -> Identity:
    """The identity of a store that this process may write to."""
    if not clock.writable():
        raise NotWritableError(
            f"this user cannot write to {backend.name}. Reading works. To write, change the "
            "permissions or use another user.",
            path="",
        )
    found = read(backend)
    if found is None:
        raise IdentityError(
            f"{backend.name} has no store.json. If this is a store, restore the file from a copy.",
            path=STORE_FILE,
        )
    return found


def ensure(backend: PatientBackend, clock: Vfs, config: StoreConfig) -> Identity:
    """The store's identity. A store is made if there is none, and if its objects can be trusted.

    Raises:
        StoreSemanticsError: conditional writes do not work there.
    """
    while True:
        found = read(backend)
        if found is not None:
            return found
        require_semantics(backend.inner)
        fields = {
            "format": _FORMAT,
            "uuid": str(uuid.uuid4()),
            "created_at": json_files.timestamp(clock),
            "node_name": config.node_name or socket.gethostname(),
        }
        try:
            backend.create(STORE_FILE, [json_files.dump(fields)])
        except (FileExistsError, *TRANSIENT):
            backend.patience.wait(1)  # ours or another's: the next read tells
