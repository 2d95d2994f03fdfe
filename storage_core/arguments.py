"""What users pass to public functions: checked, and read where it is a text.

An error says what is wanted and what it got.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from .errors import ConfigError, InvalidRecordError, LayoutNotFoundError, StorageError

_MAX = (1 << 63) - 1
# One slash is enough: pathlib makes s3:/bucket of s3://bucket. A name with one letter is a drive.
OBJECT_SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=/)")
_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_MILLISECONDS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}
_MILLISECONDS |= {"d": 24 * _MILLISECONDS["h"], "w": 7 * 24 * _MILLISECONDS["h"]}
_THIS_HOST = ("", "localhost")


def names(argument: str, value: Any, error: type[StorageError] = ConfigError) -> tuple[str, ...]:
    """Names from a list, a tuple, an Arrow array or any other iterable of texts."""
    found = value.to_pylist() if hasattr(value, "to_pylist") else value
    if isinstance(found, str):
        raise error(f"{argument} must be a list of names, got {found!r}. Put it in a list.")
    if not isinstance(found, Iterable):
        raise error(f"{argument} must be a list of names, got {found!r}.")
    listed = tuple(found)
    for name in listed:
        if not isinstance(name, str):
            raise error(f"{argument} must be a list of names, got {name!r} in it.")
    return listed


def integer(
    argument: str, value: object, low: int = 0, high: int = _MAX, *, optional: bool = False
) -> None:
    """Raise for what is no integer from ``low`` to ``high``; with ``optional`` None is one too."""
    if value is None and optional:
        return
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        most = "" if high == _MAX else f" and at most {high}"
        raise ConfigError(f"{argument} must be an integer of {low} or more{most}, got {value!r}.")


def one_of(argument: str, value: object, choices: Collection[str]) -> None:
    """Raise for what is none of the words."""
    if not isinstance(value, str) or value not in choices:
        raise ConfigError(f"{argument} must be one of {', '.join(choices)}, got {value!r}.")


def instance(argument: str, value: object, kind: type | tuple[type, ...], wanted: str) -> None:
    """Raise for what is not of the kind; ``wanted`` says it in words."""
    if not isinstance(value, kind):
        raise ConfigError(f"{argument} must be {wanted}, got {value!r}.")


def offsets(argument: str, value: object, wanted: str) -> None:
    """Raise for what does not map partitions to offsets; ``wanted`` shows what does."""
    instance(argument, value, Mapping, wanted)
    assert isinstance(value, Mapping)
    for partition, offset in value.items():
        if not all(type(number) is int for number in (partition, offset)):
            raise InvalidRecordError(
                f"{argument} must be {wanted}, got {partition!r}: {offset!r} in it."
            )


def function(argument: str, value: object) -> None:
    """Raise for what can be neither called nor left out."""
    if value is not None and not callable(value):
        raise ConfigError(f"{argument} must be a function or None, got {value!r}.")


def store_url(path: object) -> str | None:
    """The URL of an object store that ``path`` names; None if it names none.

    Raises:
        LayoutNotFoundError: the URL holds credentials, or names no bucket.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    found = _SCHEME.match(text) if isinstance(text, str) else None
    if found is None or not isinstance(text, str) or found[1].lower() not in OBJECT_SCHEMES:
        return None
    rest = text[found.end() :]
    if rest.startswith("///") or not rest.strip("/"):
        raise LayoutNotFoundError(
            f"{text} names no bucket or container. Write {found[1]}://bucket/log.", path=""
        )
    rest = rest.lstrip("/")
    host = rest.partition("/")[0]
    account = found[1].lower() in ("abfs", "abfss")  # container@account
    if ("@" in host and not account) or ":" in host.partition("@")[0] or "?" in rest:
        raise LayoutNotFoundError(
            f"a URL of scheme {found[1]}:// holds credentials or a query. Pass keys by the "
            "environment or as storage options.",
            path="",
        )
    scheme = "s3" if found[1].lower() == "s3a" else found[1].lower()
    return f"{scheme}://{rest}".rstrip("/")


def local_path(path: str | os.PathLike[str]) -> str:
    """The local path that ``path`` names, from a path or a ``file:`` URI.

    Raises:
        LayoutNotFoundError: a URI of another scheme or host, or nothing that can be a path.
    """
    text: object = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise LayoutNotFoundError(
            f"{path!r} is not a path. Pass the path of a directory, such as /data/log.", path=""
        )
    found = _SCHEME.match(text)
    if found is None:
        return text
    rest = text[found.end() :]
    if found[1].lower() != "file":
        raise LayoutNotFoundError(
            f"{text} is not a path of a mounted file system: {found[1]}:// is not supported. "
            "Mount the storage, and pass the path of the directory, such as /data/log. Object "
            f"stores have {', '.join(f'{name}://' for name in OBJECT_SCHEMES)}.",
            path="",
        )
    if rest.startswith("//") and rest[2:3] != "/":
        host, _, below = rest[2:].partition("/")
        if host.lower() not in _THIS_HOST:
            raise LayoutNotFoundError(
                f"{text} names the host {host!r}, not a path of this machine. "
                f"Write file:///{host}/{below} for /{host}/{below}.",
                path="",
            )
        rest = below
    return "/" + rest.lstrip("/")


def byte_size(text: str) -> int | None:
    """Bytes, as Spark reads them: ``64MiB``, ``64mb`` and ``64m`` are 64 MiB. None: no size."""
    found = re.fullmatch(r"([0-9]{1,19}) ?([kmgt]?)(?:i?b)?", text.strip().lower())
    return int(found[1]) * _BYTES[found[2]] if found else None


def milliseconds(text: str) -> int | None:
    """Milliseconds from ``500ms``, ``90s``, ``15m``, ``12h``, ``7d`` or ``2w``. None: no length."""
    found = re.fullmatch(r"([0-9]{1,19}) ?([a-z]*)", text.strip().lower())
    if found is None or found[2] not in _MILLISECONDS:
        return None
    return int(found[1]) * _MILLISECONDS[found[2]]
