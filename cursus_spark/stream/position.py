"""The offsets of the stream source, as Spark keeps them in the checkpoint.

``{"v":1,"id":{"orders":"<uuid>"},"pos":{"orders":{"0":10}},"from":{"orders":{"0":3}}}``

``id`` shows whether a topic was deleted and created again. ``from`` is in the first batch only:
Spark asks for the initial offset several times, also after a crash, and does not keep the answer.
To resolve ``latest`` each time would skip records that arrive in between, so the initial offset is
only a symbol, ``{"v":1,"start":"latest"}``, and the first end offset carries the resolved start.

Spark compares offsets as JSON text, so the keys are sorted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import CursusError, cursus_error, shown
from ..options.offsets import load_json, parse_partition

VERSION = 1
_MAX_OFFSET = (1 << 63) - 1

Positions = Mapping[str, Mapping[int, int]]
"""Next offset to read, by topic and partition."""


@dataclass(frozen=True, slots=True)
class SymbolicStart:
    """The start of a new query before it is resolved; the text is for logs."""

    text: str

    def to_dict(self) -> dict[str, Any]:
        """The dictionary for Spark."""
        return {"start": self.text, "v": VERSION}

    def to_json(self) -> str:
        """The same as JSON text."""
        return json.dumps(self.to_dict(), separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """How far a stream has come.

    Attributes:
        ids: The uuid of every topic, except in a layout without uuids.
        positions: The next offset of every partition.
        start: In the first batch, where that batch starts.
    """

    ids: Mapping[str, str] = field(default_factory=dict)
    positions: Positions = field(default_factory=dict)
    start: Positions | None = None

    def position(self, topic: str, partition: int) -> int | None:
        """The next offset of a partition; None if the stream does not know the partition."""
        return self.positions.get(topic, {}).get(partition)

    def to_dict(self) -> dict[str, Any]:
        """The dictionary for Spark, its keys in sorted order."""
        first = {} if self.start is None else {"from": _dump(self.start)}
        return {
            **first,
            "id": dict(sorted(self.ids.items())),
            "pos": _dump(self.positions),
            "v": VERSION,
        }

    def to_json(self) -> str:
        """The same as JSON text."""
        return json.dumps(self.to_dict(), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> StreamPosition:
        """Parse a position; a symbolic start is refused.

        Raises:
            CursusError: not a position of this source.
        """
        found = parse_stream_offset(text)
        if isinstance(found, SymbolicStart):
            raise _invalid(text)
        return found


def parse_stream_offset(offset: str | Mapping[str, Any]) -> StreamPosition | SymbolicStart:
    """Parse the result of ``to_dict`` or ``to_json``, as Spark passes it back.

    Raises:
        CursusError: not an offset of this source, or one of a newer version.
    """
    try:
        found = load_json(offset) if isinstance(offset, str) else offset
        if not isinstance(found, Mapping):
            raise ValueError("not an object")
        version = found.get("v")
        if isinstance(version, int) and version > VERSION:
            raise cursus_error(
                "CHECKPOINT_INVALID",
                f"The checkpoint was written by a newer version of cursus-spark (offset version "
                f"{version}, known: {VERSION}). Upgrade, or start with a new checkpoint.",
            )
        if version != VERSION or isinstance(version, bool):
            raise ValueError("no version")
        return _parse_fields(found)
    except ValueError:
        raise _invalid(offset) from None


def _parse_fields(found: Mapping[str, Any]) -> StreamPosition | SymbolicStart:
    fields = set(found) - {"v"}
    if fields == {"start"} and isinstance(found["start"], str):
        return SymbolicStart(found["start"])
    if fields - {"from"} != {"id", "pos"}:
        raise ValueError("wrong fields")
    ids = found["id"]
    if not isinstance(ids, Mapping) or not all(isinstance(each, str) for each in ids.values()):
        raise ValueError("id is not an object of texts")
    start = _load(found["from"]) if "from" in found else None
    return StreamPosition(dict(ids), _load(found["pos"]), start)


def _invalid(offset: str | Mapping[str, Any]) -> CursusError:
    text = offset if isinstance(offset, str) else json.dumps(offset, default=str)
    return cursus_error(
        "CHECKPOINT_INVALID",
        f"The checkpoint contains an offset that the cursus source did not write: {shown(text)}. "
        "Start with a new checkpoint.",
    )


def _dump(positions: Positions) -> dict[str, dict[str, int]]:
    return {
        topic: dict(sorted((str(number), offset) for number, offset in partitions.items()))
        for topic, partitions in sorted(positions.items())
    }


def _load(value: object) -> dict[str, dict[int, int]]:
    if not isinstance(value, Mapping):
        raise ValueError("positions are not an object")
    result: dict[str, dict[int, int]] = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, Mapping):
            raise ValueError("partitions are not an object")
        result[topic] = {
            parse_partition(number): _offset(offset) for number, offset in partitions.items()
        }
    return result


def _offset(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_OFFSET:
        raise ValueError(f"{value!r} is not an offset")
    return value
