"""Every place of the engine that syncs a file or a folder, found in its source.

A site is named by what calls what, never by a line: ``catalog.Catalog.create > fsync_dir``, or with
the steps that many share ``ledger.Ledger.record > replace > replace_file > fsync``. A number tells
several calls of the same in one function apart.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import storage_core
from tests.crash.recording import MemoryVfs
from tests.support.faulty_vfs import FaultyVfs

_ROOT = Path(storage_core.__file__).parent
_SYNCS = ("fsync", "fsync_dir")
_SHARED = ("durable.py", "metafile.py")
"""Their functions are not sites: who calls them is."""
Line = tuple[str, int]


def _modules() -> Iterator[tuple[Path, str]]:
    for path in sorted(_ROOT.rglob("*.py")):
        below = path.relative_to(_ROOT)
        if below.parts[0] not in ("vfs", "cli"):
            yield path, ".".join(below.with_suffix("").parts)


def _calls(node: ast.AST, name: str = "") -> Iterator[tuple[str, ast.Call]]:
    """All calls below, each with the function it stands in."""
    for below in ast.iter_child_nodes(node):
        if isinstance(below, ast.FunctionDef | ast.ClassDef):
            yield from _calls(below, f"{name}.{below.name}" if name else below.name)
        else:
            if isinstance(below, ast.Call):
                yield name, below
            yield from _calls(below, name)


def _called(call: ast.Call) -> str:
    """The last name of what is called, with its module if it is ``metafile``."""
    if isinstance(call.func, ast.Attribute):
        of = call.func.value
        prefix = "metafile." if isinstance(of, ast.Name) and of.id == "metafile" else ""
        return prefix + call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _syncs(call: ast.Call) -> bool:
    never = ("sync", False)
    return not any((k.arg, getattr(k.value, "value", None)) == never for k in call.keywords)


@cache
def _shared() -> dict[str, list[str]]:
    """What each shared function leads to, as ``replace_file > fsync``."""
    found: dict[str, list[str]] = {}
    trees = [ast.parse((_ROOT / name).read_text()) for name in _SHARED]
    calls = [pair for tree in trees for pair in _calls(tree)]

    def chains(function: str) -> list[str]:
        made = []
        for name, call in calls:
            called = _called(call)
            if name == function and called in _SYNCS:
                made.append(f"{function} > {called}")
            elif name == function and called in names - {function} and _syncs(call):
                made += [f"{function} > {chain}" for chain in chains(called)]
        return made

    names = {name for name, _ in calls}
    for name in names:
        if made := chains(name):
            found[name] = made
    found["metafile.replace"] = found.pop("replace")
    return found


@cache
def _places() -> tuple[dict[Line, str], tuple[str, ...]]:
    """The name of each line that syncs, and all sites."""
    lines: dict[Line, str] = {}
    sites: list[str] = []
    for path, module in _modules():
        if path.name in _SHARED:
            continue
        found = [
            (name, _called(call), call)
            for name, call in _calls(ast.parse(path.read_text()))
            if (_called(call) in _SYNCS or _called(call) in _shared()) and _syncs(call)
        ]
        often = Counter(pair[:2] for pair in found)
        seen = Counter[tuple[str, str]]()
        for name, called, call in found:
            seen[name, called] += 1
            number = f" {seen[name, called]}" if often[name, called] > 1 else ""
            place = f"{module}.{name}{number}"
            for line in range(call.lineno, (call.end_lineno or call.lineno) + 1):
                lines[str(path), line] = place
            sites += [f"{place} > {chain}" for chain in _shared().get(called, [called])]
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
        if path.startswith(str(_ROOT)):
            name = frame.f_code.co_name
            if not path.endswith(_SHARED):
                place = lines.get((path, frame.f_lineno))
                return " > ".join([place, *steps]) if place else ""
            if name != steps[0]:
                steps.insert(0, name)
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
