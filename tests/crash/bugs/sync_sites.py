"""Every place of the engine that syncs a file or a folder, found in its source.

A site is named by the function that makes the call and by what it calls, never by a file or a
line: ``Catalog.create > fsync_dir``, or with the steps of ``storage_core/io`` that many functions
share, ``Ledger.record > replace > replace_file > fsync``. So code may move to another file without
a change here. A number tells several calls of the same in one function apart. Only where two files
have a function of the same name does the name of the file stand in front: ``files.create > fsync``.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

import storage_core
from tests.crash.explorer.recording import MemoryVfs
from tests.support.faulty_vfs import FaultyVfs

_ROOT = Path(storage_core.__file__).parent
_SYNCS = ("fsync", "fsync_dir")
_SHARED = _ROOT / "io"
"""The functions of this folder are not sites: each of their callers is."""
Line = tuple[str, int]


class Call(NamedTuple):
    """A call that may sync: where it stands, what it calls, and the lines it takes."""

    function: str
    called: str
    lines: range


def _sources() -> Iterator[Path]:
    for path in sorted(_ROOT.rglob("*.py")):
        if path.relative_to(_ROOT).parts[0] not in ("vfs", "cli"):
            yield path


def _calls(path: Path) -> Iterator[Call]:
    """All calls of a file that do not say ``sync=False``, in the order of the source."""
    tree = ast.parse(path.read_text())
    shared = _shared_names(tree, inside=path.is_relative_to(_SHARED))

    def below(node: ast.AST, function: str) -> Iterator[Call]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                yield from below(child, f"{function}.{child.name}".lstrip("."))
                continue
            if isinstance(child, ast.Call) and (called := _called(child, shared)):
                lines = range(child.lineno, (child.end_lineno or child.lineno) + 1)
                yield Call(function, called, lines)
            yield from below(child, function)

    return below(tree, "")


def _shared_names(tree: ast.Module, *, inside: bool) -> dict[str, str]:
    """What a file has of the shared folder, functions and modules: by its name here, its own name.

    A file inside that folder has its own functions, too.
    """
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            if inside or _SHARED.name in (node.module or "").split("."):
                names |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif inside and isinstance(node, ast.FunctionDef):
            names[node.name] = node.name
    return names


def _called(call: ast.Call, shared: Mapping[str, str]) -> str:
    """The name of the sync or of the shared function that is called; empty if it is neither."""
    if not _syncs(call):
        return ""
    if isinstance(call.func, ast.Name):
        return shared.get(call.func.id, "")
    if isinstance(call.func, ast.Attribute):
        of = call.func.value
        is_shared = isinstance(of, ast.Name) and of.id in shared
        return call.func.attr if is_shared or call.func.attr in _SYNCS else ""
    return ""


def _syncs(call: ast.Call) -> bool:
    never = ("sync", False)
    return not any((k.arg, getattr(k.value, "value", None)) == never for k in call.keywords)


@cache
def _chains() -> dict[str, list[str]]:
    """What each shared function leads to, as ``replace_file > fsync``."""
    calls = [call for path in _sources() if path.is_relative_to(_SHARED) for call in _calls(path)]

    def chains(called: str) -> list[str]:
        if called in _SYNCS:
            return [called]
        below = [c.called for c in calls if c.function == called != c.called]
        return [f"{called} > {chain}" for name in below for chain in chains(name)]

    return {name: chains(name) for name in (*_SYNCS, *(call.function for call in calls))}


@cache
def _places() -> tuple[dict[Line, str], tuple[str, ...]]:
    """The name of each line that syncs, and all sites."""
    found = [
        (path, call)
        for path in _sources()
        if not path.is_relative_to(_SHARED)
        for call in _calls(path)
        if _chains().get(call.called)
    ]
    files: dict[str, set[Path]] = {}
    for path, call in found:
        files.setdefault(call.function, set()).add(path)
    often = Counter((path, call.function, call.called) for path, call in found)
    seen = Counter[tuple[Path, str, str]]()
    lines: dict[Line, str] = {}
    sites: list[str] = []
    for path, call in found:
        same = (path, call.function, call.called)
        seen[same] += 1
        place = f"{path.stem}." if len(files[call.function]) > 1 else ""
        place += call.function + (f" {seen[same]}" if often[same] > 1 else "")
        lines |= {(str(path), line): place for line in call.lines}
        sites += [f"{place} > {chain}" for chain in _chains()[call.called]]
    return lines, tuple(sites)


def every_site() -> tuple[str, ...]:
    """All sites of the engine."""
    return _places()[1]


def site_of(kind: str) -> str:
    """The site that a sync under way comes from; empty if it is none of the engine's."""
    steps, lines = [kind], _places()[0]
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(f"{_SHARED}/"):
            if frame.f_code.co_name != steps[0]:
                steps.insert(0, frame.f_code.co_name)
        elif path.startswith(f"{_ROOT}/"):
            place = lines.get((path, frame.f_lineno))
            return " > ".join([place, *steps]) if place else ""
        frame = frame.f_back
    return ""


def left_out(*sites: str) -> Callable[[pytest.MonkeyPatch], None]:
    """The bug of one site or of several: their syncs are not there."""
    kinds = {site.rpartition(" > ")[2] for site in sites}

    def change(patch: pytest.MonkeyPatch) -> None:
        _watch(patch, kinds, lambda kind: site_of(kind) not in sites)

    return change


def come_to(sites: set[str]) -> Callable[[pytest.MonkeyPatch], None]:
    """Not a bug: notes all sites that are come to."""

    def note(kind: str) -> bool:
        sites.add(site_of(kind))
        return True

    def change(patch: pytest.MonkeyPatch) -> None:
        _watch(patch, _SYNCS, note)

    return change


def _watch(patch: pytest.MonkeyPatch, kinds: Iterable[str], is_made: Callable[[str], bool]) -> None:
    for owner in (MemoryVfs, FaultyVfs):
        for kind in kinds:
            patch.setattr(owner, kind, _asked(getattr(owner, kind), kind, is_made))


def _asked(original: Any, kind: str, is_made: Callable[[str], bool]) -> Any:
    def sync(self: Any, what: Any) -> None:
        if is_made(kind):
            original(self, what)

    return sync
