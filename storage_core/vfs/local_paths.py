"""Paths as users write them: local paths and ``file:`` URIs. Other schemes are refused."""

from __future__ import annotations

import os
import re

from ..errors import LayoutNotFoundError

# One slash is enough: pathlib makes s3:/bucket of s3://bucket. A name with one letter is a drive.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=/)")
_THIS_HOST = ("", "localhost")


def local_path(path: str | os.PathLike[str]) -> str:
    """The absolute local path that ``path`` names, from a path or a ``file:`` URI.

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
        return os.path.abspath(text)
    rest = text[found.end() :]
    if found[1].lower() != "file":
        raise LayoutNotFoundError(
            f"{text} is not a path of a mounted file system: {found[1]}:// is not supported. "
            "Mount the storage, and pass the path of the directory, such as /data/log.",
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
    return os.path.abspath("/" + rest.lstrip("/"))
