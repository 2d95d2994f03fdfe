"""Replace functions of the engine in a test, wherever the engine imported them.

``by`` names the functions or classes that call one, never the file that they stand in: so code may
move without a change to the tests.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType, ModuleType
from typing import Any

import pytest

import storage_core

Patch = Callable[[pytest.MonkeyPatch], None]


def nothing(*_: Any, **__: Any) -> None:
    """A step left out."""


def without(owner: type, name: str, instead: Any = nothing) -> Patch:
    """A method that is replaced, or left out."""
    return lambda patch: patch.setattr(owner, name, instead)


def replaced(original: Any, instead: Any = nothing, by: tuple[Any, ...] = ()) -> Patch:
    """A function that is replaced, or left out: for all its callers, or only for ``by``."""

    def change(patch: pytest.MonkeyPatch) -> None:
        new = _for_callers(original, instead, frozenset(_codes(by))) if by else instead
        places = [
            (module, name)
            for module in engine_modules()
            for name, value in vars(module).items()
            if value is original
        ]
        assert places, f"the engine has no {original!r}"
        for module, name in places:
            patch.setattr(module, name, new)

    return change


def _for_callers(original: Any, instead: Any, callers: frozenset[CodeType]) -> Any:
    def chosen(*arguments: Any, **named: Any) -> Any:
        is_caller = sys._getframe(1).f_code in callers
        return (instead if is_caller else original)(*arguments, **named)

    return chosen


def _codes(callers: tuple[Any, ...]) -> Iterator[CodeType]:
    """The code of functions, of all methods of classes, and of what is defined inside them."""
    for caller in callers:
        if isinstance(caller, type):
            yield from _codes(tuple(vars(caller).values()))
        elif isinstance(caller, property):
            yield from _codes((caller.fget, caller.fset))
        elif isinstance(caller, CodeType):
            yield caller
            yield from _codes(tuple(c for c in caller.co_consts if isinstance(c, CodeType)))
        else:
            # A context manager or another decorator may stand around the function that calls.
            function = getattr(caller, "__wrapped__", getattr(caller, "__func__", caller))
            if code := getattr(function, "__code__", None):
                yield from _codes((code,))


@cache
def engine_modules() -> tuple[ModuleType, ...]:
    """All modules of the engine.

    All are imported now: one that is first imported beside a bug would keep it.
    """
    names = (found.name for found in pkgutil.walk_packages(storage_core.__path__, "storage_core."))
    engine = (importlib.import_module(name) for name in names if not name.endswith("__main__"))
    return (storage_core, *engine)
