"""CRC-32C of bytes: ``crc32c(data, before=0)``.

The package ``crc32c`` asks at its import for its own version, which takes a fifth of the time that
a Spark task needs for all imports. So only its extension module is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType


def _extension() -> ModuleType:
    package = find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    found = PathFinder.find_spec("crc32c._crc32c", places)
    if found is None or found.loader is None:  # a release of the package with other files
        return import_module("crc32c")
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


crc32c: Callable[..., int] = _extension().crc32c
