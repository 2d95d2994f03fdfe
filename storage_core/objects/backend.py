"""The seam to an object store: six calls, and nothing else touches objects.

Keys are names separated by ``/``. Failed calls raise ``OSError``. Three kinds have a meaning:

* ``FileNotFoundError``: there is no such object.
* ``FileExistsError`` of ``create`` and ``replace_if``: there is an object, or there may be one. S3
  answers so (409) if two creates overlap, even if neither has stored anything yet. And the object
  may be the caller's own, of a call whose reply was lost. Only a read tells.
* every other error: the call may or may not have happened, and may still happen later.

A backend of the tests that records, fails or delays calls wraps another one; no caller can tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from ..vfs import Buffer


class ObjectInfo(NamedTuple):
    """One object of a listing."""

    key: str
    size: int


class Contents(NamedTuple):
    """Bytes of one object. ``tag`` is for ``replace_if``; it is only known of whole objects."""

    pieces: tuple[memoryview, ...]
    tag: str | None = None

    @property
    def whole(self) -> memoryview:
        """All bytes of an object that was read as a whole."""
        return self.pieces[0]


class ObjectBackend(Protocol):
    """One object store below one prefix. Every call is safe for several threads."""

    @property
    def name(self) -> str:
        """Where the objects are, for messages. It holds no credentials."""

    @property
    def lists_whole(self) -> bool:
        """Whether a listing reads the names of a whole directory, however few it returns."""

    def create(self, key: str, data: Sequence[Buffer]) -> None:
        """Create an object. Of several calls for one key exactly one succeeds.

        Raises:
            FileExistsError: see the module.
        """

    def put(self, key: str, data: Sequence[Buffer]) -> None:
        """Create or replace an object, whatever is there."""

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]] | None = None) -> Contents:
        """Bytes of an object: ranges of (position, size), or all of it.

        A range that passes the end of the object is shorter.

        Raises:
            FileNotFoundError: there is no such object.
        """

    def list_after(
        self, prefix: str, after: str = "", most: int | None = None
    ) -> Iterator[ObjectInfo]:
        """All objects below ``prefix``, which ends in ``/``, whose keys are above ``after``.

        They come in the order of their keys. With ``most`` the first ones are enough, and no more
        requests are made than those take.
        """

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects. One that does not exist is no error."""

    def replace_if(self, key: str, data: Sequence[Buffer], tag: str | None) -> None:
        """Replace an object that still has this tag; with None, create it.

        A key is written by this call or by the others, never by both.

        Raises:
            FileExistsError: it has another tag, or it exists.
        """


def read_object(backend: ObjectBackend, key: str) -> bytes | None:
    """All bytes of an object; None if there is none."""
    try:
        return bytes(backend.get_ranges(key).whole)
    except FileNotFoundError:
        return None
