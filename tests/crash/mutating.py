"""Tools to put a bug into the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

Patch = Callable[[pytest.MonkeyPatch], None]


class Mutant(NamedTuple):
    """A bug, and where it must be noticed."""

    patch: Patch
    noticed: str


def nothing(*_: Any, **__: Any) -> None:
    """A step left out."""


def without(owner: Any, name: str, instead: Any = nothing) -> Patch:
    return lambda patch: patch.setattr(owner, name, instead)


class Instead:
    """A module or an object with some names of our own."""

    def __init__(self, original: Any, **names: Any) -> None:
        self._original = original
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


class AnyChecksum(int):
    """A checksum that every other one equals."""

    def __new__(cls, *_: Any) -> AnyChecksum:
        return super().__new__(cls, 0)

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__
