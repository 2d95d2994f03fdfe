"""Pins: what a driver knows of a topic and its tasks need, so that no task reads a log.

A task that reads planned slices, or stages rows, needs the settings and columns of the topic. The
driver has them. With a pin a task makes no request but those for its records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...format.selection import Schemas
from ...io import json_files
from ...metadata import topic_file
from ...metadata.schema_files import RegisteredSchema
from ...metadata.topic_file import TopicFile
from ...schema.fields import SchemaVersion
from ..state import LogState, schema_fields, schema_from


class Pin(NamedTuple):
    """A topic as the state of its log described it."""

    log: str
    topic: TopicFile
    schemas: tuple[RegisteredSchema, ...]
    published: int | None


class PinnedSchemas:
    """The schema versions of a pinned topic.

    A task may meet later ones: where a merge has joined the rows that it wants with newer rows.
    ``later`` reads the log for these.
    """

    def __init__(self, known: Sequence[RegisteredSchema], later: Callable[[], Schemas]) -> None:
        self._known = known
        self._later = later

    def get(self, version: int) -> SchemaVersion:
        """A registered version."""
        if 1 <= version <= len(self._known):
            return self._known[version - 1].schema
        return self._later().get(version)

    def all(self) -> list[RegisteredSchema]:
        """Every registered version in order."""
        return list(self._known)


def encode_pin(log: str, topic: TopicFile, state: LogState) -> bytes:
    """A pin as bytes, for another process."""
    return json_files.dump(
        {
            "log": log,
            "topic": topic_file.dump(topic),
            "schemas": [schema_fields(each) for each in state.schemas],
            "published": state.published,
        }
    )


def decode_pin(data: bytes) -> Pin:
    """The inverse of ``encode_pin``."""
    fields = json_files.load(data, "the plan of the query")
    return Pin(
        fields["log"],
        topic_file.parse(fields["topic"], "the plan of the query"),
        tuple(map(schema_from, fields["schemas"])),
        fields["published"],
    )
