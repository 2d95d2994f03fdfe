"""The broker's small text files.

``replication-offset-checkpoint`` (high watermarks) and ``log-start-offset-checkpoint`` have a line
with the version 0, a line with the number of entries, and for each entry a line of topic, partition
and offset. ``leader-epoch-checkpoint`` is alike, with epoch and start offset. A
``partition.metadata`` has ``version: 0`` and ``topic_id:`` with a uuid in the alphabet of URLs.
None has a checksum.
"""

from __future__ import annotations

import base64
import binascii
import uuid

from ...errors import DamagedMetadataError
from ...format.file_names import MAX_OFFSET

Offsets = dict[tuple[str, int], int]


def parse_offsets(data: bytes, path: str) -> Offsets:
    """Offsets by topic and partition.

    Raises:
        DamagedMetadataError: it is not what the broker writes.
    """
    found: Offsets = {}
    for line in _entries(data, path):
        fields = line.split(" ")
        if len(fields) != 3 or not all(map(_is_number, fields[1:])):
            raise _damaged(path, f"line {line!r}, expected a topic, a partition and an offset")
        key = (fields[0], int(fields[1]))
        if key in found:
            raise _damaged(path, f"{fields[0]}-{fields[1]} twice")
        found[key] = int(fields[2])
    return found


def parse_epochs(data: bytes, path: str) -> list[tuple[int, int]]:
    """Leader epochs and their start offsets.

    Raises:
        DamagedMetadataError: it is not what the broker writes.
    """
    found = []
    for line in _entries(data, path):
        fields = line.split(" ")
        if len(fields) != 2 or not all(map(_is_number, fields)):
            raise _damaged(path, f"line {line!r}, expected an epoch and an offset")
        found.append((int(fields[0]), int(fields[1])))
    return found


def parse_topic_id(data: bytes, path: str) -> uuid.UUID:
    """The id of the topic.

    Raises:
        DamagedMetadataError: it is not what the broker writes.
    """
    lines = _text(data, path).splitlines()  # the last one has no end
    fields = dict(line.split(": ", 1) for line in lines if ": " in line)
    text = fields.get("topic_id", "")
    try:
        return uuid.UUID(bytes=base64.b64decode(text + "==", altchars=b"-_", validate=True))
    except (ValueError, binascii.Error) as error:
        raise _damaged(path, f"topic_id {text!r}, expected 22 letters and digits") from error


def _is_number(text: str) -> bool:
    return text.isdigit() and len(text) < 20 and int(text) <= MAX_OFFSET


def _entries(data: bytes, path: str) -> list[str]:
    if not data:
        return []  # as the broker creates the file
    lines = _lines(data, path)
    if lines[:1] != ["0"]:
        raise _damaged(path, f"version {' '.join(lines[:1])!r}, expected 0")
    count = len(lines) - 2
    if lines[1:2] != [str(count)]:
        raise _damaged(path, f"{max(0, count)} entries, expected {' '.join(lines[1:2])!r}")
    return lines[2:]


def _lines(data: bytes, path: str) -> list[str]:
    text = _text(data, path)
    return text.split("\n")[:-1] if text.endswith("\n") else [""]


def _text(data: bytes, path: str) -> str:
    try:
        return data.decode("ascii")
    except UnicodeDecodeError as error:
        raise _damaged(path, f"bytes that are no text: {error}") from error


def _damaged(path: str, what: str) -> DamagedMetadataError:
    return DamagedMetadataError(
        f"{path} is not what a Kafka broker writes: {what}. Restore it from a copy.", path=path
    )
