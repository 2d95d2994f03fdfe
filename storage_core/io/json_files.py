"""Metadata files: JSON for people, with a checksum and one possible spelling for machines.

A metadata file is one JSON object, keys sorted, indented by two, ending in a newline. Its field
``crc32c`` is the checksum (8 hex digits) of the same text without that field. A reader accepts a
file only if writing its contents again gives the very same bytes, so every flipped bit is found.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from typing import Any, NoReturn

from ..errors import DamagedMetadataError
from ..vfs import Vfs
from .checksum import crc32c
from .durable import read_file, replace_file

MAX_BYTES = 16 << 20


def dump(fields: Mapping[str, Any]) -> bytes:
    """The bytes of a metadata file with these fields."""
    checksum = crc32c(_text(fields))
    return _text({**fields, "crc32c": f"{checksum:08x}"})


def load(data: bytes, path: str, limit: int = MAX_BYTES) -> dict[str, Any]:
    """The fields of a metadata file of at most ``limit`` bytes.

    Raises:
        DamagedMetadataError: not JSON, too large, wrong checksum, or edited by hand.
    """
    if len(data) > limit:
        raise _damaged(path, f"it is larger than {limit} bytes")
    try:
        fields = json.loads(data, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"it is not plain JSON ({error})") from error
    if not isinstance(fields, dict):
        raise _damaged(path, "it is not a JSON object")
    fields.pop("crc32c", None)
    if b"\\ud" in data and not _is_text(fields):
        raise _damaged(path, "a text in it is not valid Unicode")
    try:
        sound = dump(fields) == data
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"it is not plain JSON ({error})") from error
    if not sound:
        raise _damaged(path, "its checksum does not match its contents")
    return fields


def read(vfs: Vfs, path: str, limit: int = MAX_BYTES) -> dict[str, Any] | None:
    """The fields of the file at ``path``, or None when there is none."""
    data = read_file(vfs, path, limit + 1)
    return None if data is None else load(data, path, limit)


def replace(vfs: Vfs, path: str, fields: Mapping[str, Any]) -> None:
    """Write the file durably in one step. The caller holds the lock over it."""
    replace_file(vfs, path, dump(fields))


def field(fields: Mapping[str, Any], name: str, kind: type, path: str) -> Any:
    """A field of the expected type."""
    value = fields.get(name)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise _damaged(path, f"field {name!r} should be {kind.__name__}, found {value!r}")
    return value


def _text(fields: Mapping[str, Any]) -> bytes:
    return (json.dumps(fields, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()


def _is_text(fields: Mapping[str, Any]) -> bool:
    """Whether all texts can be encoded: JSON can escape half a surrogate pair, which is no text."""
    try:
        json.dumps(fields, ensure_ascii=False).encode()
    except (UnicodeEncodeError, ValueError, RecursionError):
        return False
    return True


def _damaged(path: str, reason: str) -> DamagedMetadataError:
    return DamagedMetadataError(
        f"{path} cannot be trusted: {reason}. Restore it from a backup.", path=path
    )


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("an object has the same key twice")
    return fields


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def timestamp(vfs: Vfs) -> str:
    """Now, as metadata files write it."""
    moment = datetime.datetime.fromtimestamp(vfs.now_us() / 1e6, tz=datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
