"""A look at what a store remembers beside its logs: redo records, the ledger, consumer groups.

One of them that is damaged keeps writers out, or loses a reader's place, while every log is sound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..commit.intents import Intents
from ..commit.ledger import Ledger
from ..errors import StorageError
from ..format.file_names import is_name
from ..metadata.consumer_groups import read as read_group
from ..types import Problem
from ..vfs import Vfs

_SUFFIX = ".json"
# A commit under way is no problem; one of so long ago has nobody to finish it.
_ABANDONED_US = 60_000_000


def state_problems(vfs: Vfs, intents: Intents, ledger: Ledger, groups: str) -> Iterator[Problem]:
    """All problems of these files; ``groups`` is the directory of the groups. Changes nothing."""
    yield from _damaged(vfs, intents.directory, intents.read)
    yield from _damaged(vfs, ledger.directory, ledger.read)
    yield from _damaged(vfs, groups, lambda path: read_group(vfs, groups, _name_in(path)))
    yield from _abandoned(vfs, intents.directory)


def _damaged(vfs: Vfs, directory: str, read: Callable[[str], object]) -> Iterator[Problem]:
    for path in _files(vfs, directory):
        if not is_name(_name_in(path)):
            message = f"{path} is none of ours."
            yield Problem("warning", "STRANGER", message, path=path)
            continue
        try:
            read(path)
        except StorageError as error:
            yield Problem.from_error(error)


def _abandoned(vfs: Vfs, directory: str) -> Iterator[Problem]:
    for path in _files(vfs, directory):
        stat = vfs.stat(path)
        if stat is not None and vfs.now_us() - stat.modified_ns // 1000 > _ABANDONED_US:
            message = f"{path}: a commit that is not finished; the next writer or repair ends it."
            yield Problem("warning", "RECOVERY_NEEDED", message, path=path)


def _files(vfs: Vfs, directory: str) -> list[str]:
    try:
        names = sorted(vfs.listdir(directory))
    except FileNotFoundError:
        return []
    return [f"{directory}/{name}" for name in names if name.endswith(_SUFFIX)]


def _name_in(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(_SUFFIX)
