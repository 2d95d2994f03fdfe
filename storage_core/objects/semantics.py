"""The semantics gate: what a store of objects depends on, tried out against a backend.

Some servers accept conditional writes and ignore the condition. Commits of two writers would then
overwrite each other in silence. So no store is made where this check finds a problem.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress

from ..errors import StoreSemanticsError
from ..io.parallel import map_on_threads
from .backend import ObjectBackend

_RACERS, _BATCH = 4, 500
# With at least this number of rounds, listings of several pages are tried too.
_AT_LENGTH, _PAGES_OF_KEYS, _THREADS = 20, 2100, 8


def require_semantics(backend: ObjectBackend, rounds: int = 3) -> None:
    """Raise unless the backend keeps its promises.

    Raises:
        StoreSemanticsError: a promise is broken; it names which one.
    """
    for problem in semantics_problems(backend, rounds):
        raise StoreSemanticsError(
            f"{backend.name} cannot hold a store: {problem}. Two writers could overwrite each "
            "other's commits. Use a store with conditional writes, such as S3, GCS, Azure Blob "
            "Storage, MinIO, or a directory."
        )


def semantics_problems(backend: ObjectBackend, rounds: int) -> Iterator[str]:
    """Every broken promise. Uses keys below ``check/`` and deletes them."""
    prefix = f"check/{uuid.uuid4()}/"
    try:
        yield from _basic(backend, prefix)
        for number in range(rounds):
            yield from _races(backend, f"{prefix}race-{number}-")
            yield from _visibility(backend, f"{prefix}seen-{number}/")
        if rounds >= _AT_LENGTH:
            yield from _long_listing(backend, f"{prefix}many/")
    finally:
        # By name too: a server whose listings are wrong would keep them.
        races = [f"{prefix}race-{number}-" for number in range(rounds)]
        keys = [f"{race}{kind}" for race in races for kind in ("create", "replace")]
        keys += [key for number in range(rounds) for key in _seen(f"{prefix}seen-{number}/")]
        with suppress(OSError):
            keys += [info.key for info in backend.list_after(prefix)]
            keys += [f"{prefix}a", f"{prefix}b"]
            for at in range(0, len(keys), _BATCH):
                backend.delete(keys[at : at + _BATCH])


def _basic(backend: ObjectBackend, prefix: str) -> Iterator[str]:
    first, second = f"{prefix}a", f"{prefix}b"
    if not _refused(FileNotFoundError, lambda: backend.get_ranges(first)):
        yield "an object that was never written can be read"
    backend.create(first, [b"one"])
    if not _refused(FileExistsError, lambda: backend.create(first, [b"two"])):
        yield "a second create of the same object succeeds"
    if bytes(backend.get_ranges(first).whole) != b"one":
        yield "a read does not return what was created"
    if [bytes(piece) for piece in backend.get_ranges(first, [(1, 1), (2, 9)]).pieces] != [
        b"n",
        b"e",
    ]:
        yield "a read of ranges does not return them"
    backend.put(second, [b"x"])
    if [info.key for info in backend.list_after(prefix)] != [first, second]:
        yield "a listing does not show what was written"
    if [info.key for info in backend.list_after(prefix, first)] != [second]:
        yield "a listing does not begin where it was asked to"
    backend.delete([first, second])
    backend.delete([first])
    if list(backend.list_after(prefix)):
        yield "a listing shows what was deleted"


def _visibility(backend: ObjectBackend, prefix: str) -> Iterator[str]:
    """What is written, replaced or deleted is seen at once."""
    keys = _seen(prefix)
    for number, key in enumerate(keys):
        backend.create(key, [b"1"])
        if [info.key for info in backend.list_after(prefix)] != keys[: number + 1]:
            yield "a listing does not show what was just created"
    backend.put(keys[0], [b"22"])
    if bytes(backend.get_ranges(keys[0]).whole) != b"22":
        yield "a read returns what was replaced before"
    backend.delete(keys[1:])
    if [info.key for info in backend.list_after(prefix)] != keys[:1]:
        yield "a listing shows what was just deleted"
    if not _refused(FileNotFoundError, lambda: backend.get_ranges(keys[1])):
        yield "an object that was deleted can be read"


def _seen(prefix: str) -> list[str]:
    return [f"{prefix}{number:020d}" for number in range(_RACERS)]


def _long_listing(backend: ObjectBackend, prefix: str) -> Iterator[str]:
    """A listing of several pages, from the start and from the middle."""
    keys = [f"{prefix}{number:020d}" for number in range(_PAGES_OF_KEYS)]
    map_on_threads(lambda key: backend.put(key, [b""]), keys, _THREADS)
    if [info.key for info in backend.list_after(prefix)] != keys:
        yield "a listing of many objects is not complete and in order"
    middle = len(keys) // 2
    if [info.key for info in backend.list_after(prefix, keys[middle])] != keys[middle + 1 :]:
        yield "a listing of many objects does not begin where it was asked to"


def _races(backend: ObjectBackend, prefix: str) -> Iterator[str]:
    created = _winners(lambda racer: backend.create(f"{prefix}create", [b"%d" % racer]))
    if len(created) != 1:
        yield f"of {_RACERS} creates of one object at once {len(created)} succeed"
    elif bytes(backend.get_ranges(f"{prefix}create").whole) != b"%d" % created[0]:
        yield "the object of a create that succeeded was overwritten"
    key = f"{prefix}replace"
    backend.replace_if(key, [b"start"], None)
    tag = backend.get_ranges(key).tag
    replaced = _winners(lambda racer: backend.replace_if(key, [b"%d" % racer], tag))
    if len(replaced) != 1:
        yield f"of {_RACERS} conditional replacements at once {len(replaced)} succeed"
    elif bytes(backend.get_ranges(key).whole) != b"%d" % replaced[0]:
        yield "the object of a replacement that succeeded was overwritten"
    if not _refused(FileExistsError, lambda: backend.replace_if(key, [b"late"], tag)):
        yield "a replacement with an old tag succeeds"


def _winners(call: Callable[[int], None]) -> list[int]:
    won: list[int] = []
    failed: list[BaseException] = []
    start = threading.Barrier(_RACERS)

    def run(racer: int) -> None:
        start.wait()
        try:
            with suppress(FileExistsError):
                call(racer)
                won.append(racer)
        except OSError as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(racer,)) for racer in range(_RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return won


def _refused(kind: type[OSError], call: Callable[[], object]) -> bool:
    try:
        call()
    except kind:
        return True
    return False
