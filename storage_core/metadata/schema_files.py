"""The schema versions of a typed topic: ``topics/<topic>/schemas/<version>.json``.

A writer *registers* a version before it names it anywhere: the file is durable, has the next number
and never changes. A registered version is not visible. The ``watermark`` file names the *published*
one. So what a crashed or aborted job registered is never seen.

``published.json`` names the version that the ``watermark`` file has, or is about to get. It is
durable before. Recovery needs it when the ``watermark`` file is lost: neither frames nor numbers
tell which registered version was published.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal, NamedTuple, Protocol, get_args

from ..errors import (
    DamagedMetadataError,
    InvalidSchemaError,
    SchemaMismatchError,
    TopicNotFoundError,
)
from ..io import json_files
from ..io.durable import create_file, is_abandoned
from ..io.locks import locked
from ..schema.document import MAX_VERSION, from_json, to_json
from ..schema.fields import Field, SchemaVersion
from ..vfs import Vfs
from . import high_watermark, topic_file

Origin = Literal["create", "alter", "write"]
Make = Callable[[Sequence[SchemaVersion], int, int], SchemaVersion]
"""A new schema from the registered ones, the next version and the next field id."""

_FORMAT = 1
_NAMES = {"format", "topic_uuid", "created_at", "origin", "version", "fields"}
_SUFFIX, _TEMPORARY = ".json", ".tmp"
_PUBLISHED = "published.json"
_TIMEOUT_MS = 30_000


class RegisteredSchema(NamedTuple):
    """One schema file. ``origin``: which call registered the version."""

    schema: SchemaVersion
    origin: Origin
    created_at: str


class Schemas(Protocol):
    """The registered schema versions of one typed topic."""

    def get(self, version: int) -> SchemaVersion:
        """A registered version. Raises if the topic has none of this number."""

    def all(self) -> list[RegisteredSchema]:
        """Every registered version in order."""


class NewSchema(NamedTuple):
    """What makes a new topic a typed one."""

    fields: tuple[Field, ...]
    key_columns: tuple[str, ...] = ()
    timestamp_column: str | None = None


def directory_of(topic: str) -> str:
    """The directory of a topic's schema files."""
    return f"topics/{topic}/schemas"


def file_name(version: int) -> str:
    """The name of the file of a version."""
    return f"{version:08}{_SUFFIX}"


def prepare(vfs: Vfs, directory: str, topic_uuid: uuid.UUID, fields: tuple[Field, ...]) -> None:
    """Write the schema files of a topic that is being created: version 1, published."""
    vfs.mkdir(directory)
    first = RegisteredSchema(SchemaVersion(1, fields), "create", json_files.timestamp(vfs))
    create_file(vfs, f"{directory}/{file_name(1)}", _dump(first, topic_uuid))
    create_file(vfs, f"{directory}/{_PUBLISHED}", _dump_published(1, topic_uuid))
    vfs.fsync_dir(directory)


class TopicSchemas:
    """The schema versions of one typed topic. Safe for several threads and processes."""

    def __init__(
        self, vfs: Vfs, topic: str, topic_uuid: uuid.UUID, timeout_ms: int = _TIMEOUT_MS
    ) -> None:
        self._vfs = vfs
        self._topic = topic
        self._uuid = topic_uuid
        self._timeout_ms = timeout_ms
        self.directory = directory_of(topic)
        self._known: dict[int, RegisteredSchema] = {}

    def get(self, version: int) -> SchemaVersion:
        """A registered version. It reads each file once: files never change.

        Raises:
            DamagedMetadataError: its file is missing or damaged.
        """
        return self.registered(version).schema

    def registered(self, version: int) -> RegisteredSchema:
        """A registered version and where it comes from."""
        found = self._known.get(version)
        if found is None:
            found = self._known[version] = self._read(version)
        return found

    def path_of(self, version: int) -> str:
        """The path of the file of a version."""
        return f"{self.directory}/{file_name(version)}"

    def numbers(self) -> list[int]:
        """The versions that have a file, sorted. A damaged store may lack some."""
        return sorted(
            int(name.removesuffix(_SUFFIX)) for name in self._vfs.listdir(self.directory)
            if name.endswith(_SUFFIX) and name.removesuffix(_SUFFIX).isdecimal()
        )  # fmt: skip

    def all(self) -> list[RegisteredSchema]:
        """Every registered version in order.

        Raises:
            DamagedMetadataError: one is missing or damaged. No number or field id may be given away
                before it is restored: frames may name it.
        """
        last = max(self.numbers(), default=1)
        return [self.registered(version) for version in range(1, last + 1)]

    def register(self, after: int, origin: Origin, make: Make) -> SchemaVersion:
        """Make a version durable, and return it; one of the same fields is taken instead.

        Published versions only rise, so only versions from ``after``, the published one, on are
        taken. One writer at a time, so that no number and no field id is given twice.

        Raises:
            TopicNotFoundError: the topic was deleted, and perhaps created again. Nothing was
                written.
        """
        with self._owned():
            self._sweep()
            known = [found.schema for found in self.all()]
            version = known[-1].version + 1
            if version > MAX_VERSION:
                raise InvalidSchemaError(
                    f"topic {self._topic!r} has used all {MAX_VERSION} schema versions."
                )
            made = make(known, version, 1 + max(each.max_id for each in known))
            for each in known:
                if each.version >= after and each.fields == made.fields:
                    if each.version > after:
                        self._secure(each.version)
                    return each
            schema = SchemaVersion(version, made.fields)
            self._create(RegisteredSchema(schema, origin, json_files.timestamp(self._vfs)))
            return schema

    @contextmanager
    def _owned(self) -> Iterator[None]:
        """Hold the topic's lock. The directory is that of this topic, not of a later namesake."""
        with locked(self._vfs, high_watermark.lock_of(self._topic), self._timeout_ms):
            found = topic_file.read(self._vfs, self._topic)
            if found is None or found.uuid != self._uuid:
                raise TopicNotFoundError(
                    f"topic {self._topic!r} was deleted and created again during this call. "
                    "Nothing was written.",
                    topic=self._topic,
                )
            yield

    def adopt(self, found: RegisteredSchema) -> None:
        """Register a version of another store's topic under its own number.

        Raises:
            SchemaMismatchError: the number is that of other columns here.
        """
        version = found.schema.version
        with self._owned():
            if version not in self.numbers():
                self._create(found)
                return
        if self.get(version) != found.schema:
            raise SchemaMismatchError(
                f"topic {self._topic!r} has other columns in schema version {version} than the "
                "topic that is copied. Choose an empty target.",
                topic=self._topic,
            )

    def published(self) -> int:
        """The version in ``published.json``. Only for a topic whose ``watermark`` file is lost.

        Raises:
            DamagedMetadataError: the file is missing or damaged.
        """
        path = f"{self.directory}/{_PUBLISHED}"
        fields = json_files.read(self._vfs, path)
        if fields is None:
            raise self._missing(path)
        if set(fields) != {"format", "topic_uuid", "version"}:
            raise _damaged(path, f"it should have format, topic_uuid, version, found {set(fields)}")
        self._check_head(fields, path)
        version: int = json_files.field(fields, "version", int, path)
        return version

    def set_published(self, version: int) -> None:
        """Make durable which version is published next. The caller holds partition 0's lock."""
        data = _dump_published(version, self._uuid)
        self._replace(f"{self.directory}/{_PUBLISHED}", data)

    def _read(self, version: int) -> RegisteredSchema:
        path = self.path_of(version)
        fields = json_files.read(self._vfs, path)
        if fields is None:
            raise self._missing(path)
        if set(fields) != _NAMES:
            raise _damaged(path, f"it should have {sorted(_NAMES)}, found {sorted(fields)}")
        self._check_head(fields, path)
        origin = fields["origin"]
        if origin not in get_args(Origin):
            raise _damaged(path, f"field 'origin' should be {get_args(Origin)}, found {origin!r}")
        created_at = json_files.field(fields, "created_at", str, path)
        try:
            schema = from_json({"version": fields["version"], "fields": fields["fields"]})
        except InvalidSchemaError as error:
            raise _damaged(path, str(error).removesuffix(".")) from error
        if schema.version != version:
            raise _damaged(path, f"it should have version {version}, found {schema.version}")
        return RegisteredSchema(schema, origin, created_at)

    def _check_head(self, fields: dict[str, Any], path: str) -> None:
        if fields["format"] != _FORMAT:
            raise _damaged(path, f"format {fields['format']!r} is unknown to this release")
        if fields["topic_uuid"] != str(self._uuid):
            raise _damaged(path, f"it belongs to topic {fields['topic_uuid']}, not {self._uuid}")

    def _create(self, found: RegisteredSchema) -> None:
        """Give a new file its name durably."""
        temporary = self._temporary(_dump(found, self._uuid))
        try:
            self._vfs.link(temporary, self.path_of(found.schema.version))
        finally:
            self._vfs.unlink(temporary)
        self._vfs.fsync_dir(self.directory)
        self._known[found.schema.version] = found

    def _secure(self, version: int) -> None:
        """Write a version again: whoever registered it may have crashed before its fsync."""
        self._replace(self.path_of(version), _dump(self.registered(version), self._uuid))

    def _replace(self, path: str, data: bytes) -> None:
        self._vfs.rename(self._temporary(data), path)
        self._vfs.fsync_dir(self.directory)

    def _temporary(self, data: bytes) -> str:
        path = f"{self.directory}/{uuid.uuid4()}{_TEMPORARY}"
        create_file(self._vfs, path, data)
        return path

    def _sweep(self) -> None:
        """Remove old temporary files that crashed writers left."""
        for name in self._vfs.listdir(self.directory):
            path = f"{self.directory}/{name}"
            if name.endswith(_TEMPORARY) and is_abandoned(self._vfs, path):
                with suppress(FileNotFoundError):
                    self._vfs.unlink(path)

    def _missing(self, path: str) -> DamagedMetadataError:
        return DamagedMetadataError(
            f"{path} is missing, which topic {self._topic!r} needs. Restore the file from a copy.",
            topic=self._topic,
            path=path,
        )


def _dump(found: RegisteredSchema, topic_uuid: uuid.UUID) -> bytes:
    data = json_files.dump(
        {
            "format": _FORMAT,
            "topic_uuid": str(topic_uuid),
            "created_at": found.created_at,
            "origin": found.origin,
            **to_json(found.schema),
        }
    )
    if len(data) > json_files.MAX_BYTES:  # no reader would take the file
        raise InvalidSchemaError(
            f"a schema of {len(found.schema.by_id)} columns and inner fields takes {len(data)} "
            f"bytes with its names, at most {json_files.MAX_BYTES} fit. Use fewer columns, or "
            "shorter names."
        )
    return data


def _dump_published(version: int, topic_uuid: uuid.UUID) -> bytes:
    return json_files.dump({"format": _FORMAT, "topic_uuid": str(topic_uuid), "version": version})


def _damaged(path: str, reason: str) -> DamagedMetadataError:
    return DamagedMetadataError(
        f"{path} is damaged: {reason}. Restore the file from a copy.", path=path
    )
