"""What a disk may hold of files and folders after a power cut.

Bytes are durable once their file was synced, names once their folder was. Everything since may
survive or not, each on its own: 512-byte sectors (of any age since the sync), sizes (so files may
be longer than their data, and end in zeros), and names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from storage_core.vfs import FileStat

SECTOR = 512
_AGES = 3
"""How many ages of a sector, or of a file's size, a power cut may choose from."""

Choose = Callable[[int], int]
"""Picks one of so many ages; 0 is the durable one, the last is the newest."""


@dataclass(eq=False)
class File:
    """Bytes as the page cache has them, and every age of them since the last sync."""

    number: int
    data: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    sectors: dict[int, list[bytes]] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    sealed: bool = False
    modified_ns: int = 0
    holder: int | None = None
    """Descriptor that has the lock."""

    def write(self, data: bytes, position: int) -> None:
        if len(self.data) < position:
            self.data.extend(bytes(position - len(self.data)))
        self.data[position : position + len(data)] = data
        self._note(position, position + len(data))

    def truncate(self, size: int) -> None:
        end = max(size, len(self.data))
        del self.data[size:]
        self.data.extend(bytes(size - len(self.data)))
        self._note(size, end)

    def _note(self, start: int, end: int) -> None:
        for sector in range(start // SECTOR, -(-end // SECTOR)):
            at = sector * SECTOR
            ages = self.sectors.setdefault(sector, [self.synced[at : at + SECTOR]])
            ages.append(bytes(self.data[at : at + SECTOR]))
            del ages[1 : 1 - _AGES]
        self.sizes = [*(self.sizes or [len(self.synced)]), len(self.data)]
        del self.sizes[1 : 1 - _AGES]

    def sync(self) -> None:
        self.synced = bytes(self.data)
        self.sectors, self.sizes = {}, []

    def drop_pages(self) -> None:
        """What a failed sync leaves: the pages count as clean, and the disk never got them."""
        self.data = bytearray(self.synced)
        self.sectors, self.sizes = {}, []

    def left(self, choose: Choose) -> bytes:
        """What the disk holds, each sector and the size as ``choose`` says."""
        if not self.sizes:
            return self.synced
        size = self.sizes[choose(len(self.sizes))]
        found = bytearray(self.synced[:size])
        found.extend(bytes(-(-size // SECTOR) * SECTOR - len(found)))
        for sector, ages in self.sectors.items():
            chosen = ages[choose(len(ages))]
            if sector * SECTOR < size:
                found[sector * SECTOR : (sector + 1) * SECTOR] = chosen.ljust(SECTOR, b"\0")
        return bytes(found[:size])

    def copy(self, choose: Choose | None) -> File:
        """The same file after a kill, or with ``choose`` after a power cut."""
        made = File(self.number, sealed=self.sealed, modified_ns=self.modified_ns)
        if choose is not None:
            made.synced = self.left(choose)
            made.data = bytearray(made.synced)
            return made
        made.data, made.synced = bytearray(self.data), self.synced
        made.sectors = {sector: list(ages) for sector, ages in self.sectors.items()}
        made.sizes = list(self.sizes)
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
    """Copies files and folders after a kill, or with ``choose`` after a power cut.

    Links stay links: whoever is copied twice is copied once.
    """

    def __init__(
        self, names_of: Callable[[Folder], dict[str, Node]], choose: Choose | None = None
    ) -> None:
        self._names_of = names_of
        self._choose = choose
        self._known: dict[int, Node] = {}

    def folder(self, node: Folder) -> Folder:
        """The copy of a folder, with all below it."""
        made = self._known.get(node.number)
        if made is None:
            made = self._known[node.number] = Folder(node.number, modified_ns=node.modified_ns)
            made.names = {name: self.node(below) for name, below in self._names_of(node).items()}
            durable = node.synced if self._choose is None else self._names_of(node)
            made.synced = {name: self.node(below) for name, below in durable.items()}
        assert isinstance(made, Folder)
        return made

    def node(self, node: Node) -> Node:
        if isinstance(node, Folder):
            return self.folder(node)
        if node.number not in self._known:
            self._known[node.number] = node.copy(self._choose)
        return self._known[node.number]
