"""What a bug is that is put into the engine, and what the bugs are made of."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.support.patching import Patch


class Mutant(NamedTuple):
    """A bug, and where it must be noticed."""

    patch: Patch
    noticed: str


class Instead:
    """An object with some names of our own."""

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
