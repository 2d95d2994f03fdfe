"""Names and modules that are imported at their first use.

Spark starts a Python process for a task, and the task waits for every module that this process
imports. A task that reads or writes uses less than half of the package. An ``if TYPE_CHECKING``
block beside each use imports the same names for type checkers; the architecture test compares both.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


class LazyModule:
    """Stands for a module and imports it when one of its attributes is used."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


def lazy_names(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package whose public names are imported at first use.

    Args:
        package: ``__name__`` of the package.
        modules: By each module's name inside the package, its public names in one text.
    """
    home = {name: module for module, names in modules.items() for name in names.split()}

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{home[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home})

    return load, list_names
