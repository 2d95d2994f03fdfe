"""What a disk may hold of files and folders after a power cut.

Bytes are durable once their file was synced, names once their folder was. Everything since may
survive or not, each on its own: 512-byte sectors (of any age since the sync), sizes (so files may
be longer than their data, and end in zeros), and names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from storage_core.vfs import FileStat

SECTOR = 512
_AGES = 3
"""How many ages of a sector, or of a file's size, a power cut may choose from."""


class Item(NamedTuple):
    """One thing that a power cut may keep or not: a change of names, or an age of some bytes."""

    what: int
    """A file's number, or for a change of names -1."""
    part: int
    """A sector, or -1 for the file's size; which change of names."""
    ages: int
    """How many there are to choose from; 0 is the durable one, the last is the newest."""
    of_lock: bool = False
    """Of a lock's state word, which counts for nothing after a power cut."""


Choice = Mapping[Item, int]
"""The age that the disk has of each item; an item that is not named is as it was synced."""
Choose = Callable[[Sequence[Item]], Choice]


def kept(items: Sequence[Item]) -> Choice:
    """Everything reached the disk."""
    return {item: item.ages - 1 for item in items}


def lost(items: Sequence[Item]) -> Choice:  # noqa: ARG001
    """Nothing reached the disk that was not synced."""
    return {}


@dataclass(eq=False)
class File:
    """Bytes as the page cache has them, and every age of them since the last sync."""

    number: int
    data: bytes = b""
    synced: bytes = b""
    sectors: dict[int, list[bytes]] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    given_up: dict[int, bytes] = field(default_factory=dict)
    """Sectors that a failed sync left clean in memory only, with what the disk has of them."""
    is_lock: bool = False
    sealed: bool = False
    modified_ns: int = 0
    holder: int | None = None
    """Descriptor that has the lock."""

    def write(self, data: bytes, position: int) -> None:
        before = self.data[:position].ljust(position, b"\0")
        self.data = before + data + self.data[position + len(data) :]
        self._note(position, position + len(data))

    def truncate(self, size: int) -> None:
        end = max(size, len(self.data))
        self.data = self.data[:size].ljust(size, b"\0")
        self._note(size, end)

    def _note(self, start: int, end: int) -> None:
        for sector in range(start // SECTOR, -(-end // SECTOR)):
            at = sector * SECTOR
            ages = self.sectors.setdefault(sector, [self.synced[at : at + SECTOR]])
            ages.append(self.data[at : at + SECTOR])
            del ages[1 : 1 - _AGES]
            self.given_up.pop(sector, None)
        self.sizes = [*(self.sizes or [len(self.synced)]), len(self.data)]
        del self.sizes[1 : 1 - _AGES]

    def sync(self) -> None:
        self.synced = self._without_what_was_given_up()
        self.sectors, self.sizes = {}, []

    def _without_what_was_given_up(self) -> bytes:
        if not self.given_up:
            return self.data
        found = bytearray(self.data)
        for sector, old in self.given_up.items():
            at = sector * SECTOR
            size = len(found[at : at + SECTOR])
            found[at : at + size] = old[:size].ljust(size, b"\0")
        return bytes(found)

    def drop_pages(self) -> None:
        """What a failed sync leaves: the pages count as clean, and the disk never got them."""
        self.data = self.synced
        self.sectors, self.sizes = {}, []

    def keep_pages_only(self) -> None:
        """The other thing a failed sync leaves: readable pages that are never written again."""
        for sector in self.sectors:
            at = sector * SECTOR
            self.given_up.setdefault(sector, self.synced[at : at + SECTOR])
        self.synced = self._without_what_was_given_up()
        self.sectors, self.sizes = {}, []

    def items(self) -> list[Item]:
        """What a power cut may keep of the file."""
        parts = [(sector, len(ages)) for sector, ages in self.sectors.items()]
        if self.sizes:
            parts.insert(0, (-1, len(self.sizes)))
        return [Item(self.number, part, ages, self.is_lock) for part, ages in parts]

    def left(self, choice: Choice) -> bytes:
        """What the disk holds, each sector and the size as ``choice`` says."""
        if not self.sizes:
            return self.synced
        size = self.sizes[choice.get(Item(self.number, -1, len(self.sizes), self.is_lock), 0)]
        found = bytearray(self.synced[:size])
        found.extend(bytes(-(-size // SECTOR) * SECTOR - len(found)))
        for sector, ages in self.sectors.items():
            if sector * SECTOR < size:
                item = Item(self.number, sector, len(ages), self.is_lock)
                chosen = ages[choice.get(item, 0)]
                found[sector * SECTOR : (sector + 1) * SECTOR] = chosen.ljust(SECTOR, b"\0")
        return bytes(found[:size])

    def copy(self, choice: Choice | None) -> File:
        """The same file after a kill, or with ``choice`` after a power cut."""
        made = File(self.number, sealed=self.sealed, modified_ns=self.modified_ns)
        made.is_lock = self.is_lock
        if choice is not None:
            made.data = made.synced = self.left(choice)
            return made
        made.data, made.synced = self.data, self.synced
        made.sectors = {sector: list(ages) for sector, ages in self.sectors.items()}
        made.sizes = list(self.sizes)
        made.given_up = dict(self.given_up)
        return made

    def stat(self) -> FileStat:
        return FileStat("file", len(self.data), self.modified_ns, (1, self.number))


@dataclass(eq=False)
class Folder:
    """Names as they are, and as they were at the last sync."""

    number: int
    names: dict[str, File | Folder] = field(default_factory=dict)
    synced: dict[str, File | Folder] = field(default_factory=dict)
    modified_ns: int = 0

    def stat(self) -> FileStat:
        return FileStat("directory", 0, self.modified_ns, (1, self.number))

    def files(self, path: str = "") -> dict[str, File]:
        """All files below, by path."""
        found: dict[str, File] = {}
        for name, node in self.names.items():
            below = f"{path}/{name}" if path else name
            found |= node.files(below) if isinstance(node, Folder) else {below: node}
        return found


Node = File | Folder
Step = tuple[tuple[Folder, str, Node | None], ...]
"""Names that change together: a rename is one step, whatever a power cut leaves."""


def after_steps(steps: list[Step]) -> dict[Folder, dict[str, Node]]:
    """The names of the folders that some unsynced steps changed."""
    names: dict[Folder, dict[str, Node]] = {}
    for step in steps:
        for folder, name, node in step:
            found = names.setdefault(folder, dict(folder.synced))
            if node is None:
                found.pop(name, None)
            else:
                found[name] = node
    return names


class Copier:
    """Copies files and folders after a kill, or with ``choice`` after a power cut.

    Links stay links: whoever is copied twice is copied once.
    """

    def __init__(
        self, names_of: Callable[[Folder], dict[str, Node]], choice: Choice | None = None
    ) -> None:
        self._names_of = names_of
        self._choice = choice
        self._known: dict[int, Node] = {}

    def folder(self, node: Folder) -> Folder:
        """The copy of a folder, with all below it."""
        made = self._known.get(node.number)
        if made is None:
            made = self._known[node.number] = Folder(node.number, modified_ns=node.modified_ns)
            names = self._names_of(node)
            made.names = {name: self.node(below) for name, below in names.items()}
            if self._choice is not None:
                made.synced = dict(made.names)
            else:
                made.synced = {name: self.node(below) for name, below in node.synced.items()}
        assert isinstance(made, Folder)
        return made

    def node(self, node: Node) -> Node:
        if isinstance(node, Folder):
            return self.folder(node)
        if node.number not in self._known:
            self._known[node.number] = node.copy(self._choice)
        return self._known[node.number]
