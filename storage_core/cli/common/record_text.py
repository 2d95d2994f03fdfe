"""A record as text: a line for people, a JSON object for programs, and back."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...errors import InvalidRecordError
from .formatting import as_iso, printable
from .times import parse_when

_FIELDS = frozenset("topic partition offset timestamp key key_b64 value value_b64 headers".split())


class Incoming(NamedTuple):
    """A record to append; ``partition`` is None if the record does not name one."""

    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] | None = None
    timestamp: int | None = None
    partition: int | None = None


def record_object(topic: str, partition: int, row: Mapping[str, Any]) -> dict[str, Any]:
    """A record as the object that ``cat --json`` prints."""
    stamp = row["timestamp"]
    return {
        "topic": topic,
        "partition": partition,
        "offset": row["offset"],
        "timestamp": None if stamp is None else as_iso(stamp),
        **_encoded("key", row["key"]),
        **_encoded("value", row["value"]),
        "headers": [
            {"key": header["key"], **_encoded("value", header["value"])}
            for header in row["headers"] or ()
        ],
    }


def record_json(topic: str, partition: int, row: Mapping[str, Any]) -> str:
    """A record as the line that ``cat --json`` prints."""
    return json.dumps(record_object(topic, partition, row), ensure_ascii=False)


def record_line(partition: int, row: Mapping[str, Any]) -> str:
    """A record as a line for people: partition and offset, time, key, value, headers."""
    stamp = row["timestamp"]
    parts = [f"{partition}:{row['offset']}"]
    if stamp is not None:
        parts.append(as_iso(stamp))
    parts += [printable(row["key"]), printable(row["value"])]
    if row["headers"]:
        pairs = (f"{printable(h['key'].encode())}={printable(h['value'])}" for h in row["headers"])
        parts.append("{" + ", ".join(pairs) + "}")
    return "  ".join(parts)


def parse_record(line: bytes) -> Incoming:
    """A record from a line such as ``cat --json`` prints; topic and offset are ignored.

    Raises:
        InvalidRecordError: the message names the field.
    """
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidRecordError(f"the line is not JSON: {error}.") from error
    if not isinstance(fields, dict):
        raise InvalidRecordError(
            "the line is not a JSON object with key, value, headers, timestamp."
        )
    unknown = sorted(set(fields) - _FIELDS)
    if unknown:
        known = ", ".join(sorted(_FIELDS))
        raise InvalidRecordError(f"field {unknown[0]!r} is unknown. Known fields: {known}.")
    partition = fields.get("partition")
    if partition is not None and (type(partition) is not int or partition < 0):
        raise InvalidRecordError(f"partition must be an integer of at least 0, got {partition!r}.")
    return Incoming(
        _decoded("value", fields),
        _decoded("key", fields),
        _headers(fields.get("headers")),
        _timestamp(fields.get("timestamp")),
        partition,
    )


def _encoded(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_b64": base64.b64encode(data).decode()}


def _decoded(name: str, fields: Mapping[str, Any]) -> bytes | None:
    coded = fields.get(f"{name}_b64")
    plain = fields.get(name)
    if coded is not None:
        try:
            return base64.b64decode(coded, validate=True)
        except (TypeError, ValueError, binascii.Error) as error:
            raise InvalidRecordError(f"{name}_b64 is not base64: {error}.") from error
    if plain is None:
        return None
    text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRecordError(f"{name} cannot be encoded as UTF-8: {error}.") from error


def _headers(given: Any) -> list[tuple[str, bytes | None]] | None:
    if not given:
        return None
    if isinstance(given, dict):
        given = [{"key": name, "value": value} for name, value in given.items()]
    if not isinstance(given, list) or not all(
        isinstance(item, dict) and isinstance(item.get("key"), str) for item in given
    ):
        raise InvalidRecordError("headers must be an object, or a list of {key, value}.")
    return [(item["key"], _decoded("value", item)) for item in given]


def _timestamp(given: Any) -> int | None:
    if given is None:
        return None
    if isinstance(given, str) or type(given) is int:
        try:
            when = parse_when(str(given))
        except ValueError as error:
            raise InvalidRecordError(f"timestamp: {error}") from error
        if not when.ago:
            return when.microseconds
    raise InvalidRecordError("timestamp must be ISO 8601 text or milliseconds since 1970.")
