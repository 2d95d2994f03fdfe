"""``store.json``: the identity of a store of objects. It is created once and never changes."""

from __future__ import annotations

import socket
import uuid

from ..config import StoreConfig
from ..errors import DamagedMetadataError, IdentityError
from ..io import json_files
from ..layouts.registry import STORE_FILE
from ..metadata.identity import Identity
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
    fields = json_files.load(data, STORE_FILE)
    if fields.get("format") != _FORMAT:
        raise IdentityError(
            f"{STORE_FILE} has format {fields.get('format')!r}; this release knows {_FORMAT}. "
            "Use the release that wrote the store.",
            path=STORE_FILE,
        )
    try:
        return Identity(
            uuid.UUID(json_files.field(fields, "uuid", str, STORE_FILE)),
            json_files.field(fields, "created_at", str, STORE_FILE),
            json_files.field(fields, "node_name", str, STORE_FILE),
        )
    except ValueError as error:
        raise DamagedMetadataError(
            f"{STORE_FILE} is damaged: uuid: {error}. Restore it from a copy.", path=STORE_FILE
        ) from error


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
