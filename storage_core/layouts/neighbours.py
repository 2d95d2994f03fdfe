"""Where a wrong path may have meant to lead: the store around it, below it or beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from difflib import get_close_matches

from ..vfs import PosixVfs
from .registry import STORE_FILE

_IDENTITY = "meta/broker.id"
_MOST_BELOW = 50  # an error should not search a disk


def hint(root: str) -> str:
    """A sentence that names such a store, with a space before it; empty if there is none."""
    return next((f" There is a store at {near}." for near in _near(root) if _is_store(near)), "")


def _near(root: str) -> Iterator[str]:
    above = os.path.dirname(root)
    yield above
    yield os.path.dirname(above)
    for name in _names(root)[:_MOST_BELOW]:
        yield os.path.join(root, name)
    for name in get_close_matches(os.path.basename(root), _names(above)):
        yield os.path.join(above, name)


def _names(folder: str) -> list[str]:
    with suppress(OSError):
        return sorted(PosixVfs(folder).listdir(""))
    return []


def _is_store(path: str) -> bool:
    files = PosixVfs(path)
    with suppress(OSError):
        return any(files.stat(name) is not None for name in (_IDENTITY, STORE_FILE))
    return False
