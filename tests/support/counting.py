"""Counts calls of a class or a module while a test runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def counting(counted: Counter[str], name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which adds one to the count of a name whenever it is called."""

    def call(*arguments: Any, **named: Any) -> Any:
        counted[name] += 1
        return method(*arguments, **named)

    return call


def count_calls(monkeypatch: pytest.MonkeyPatch, of: type, names: Iterable[str]) -> Counter[str]:
    """The calls of methods of a class, by their names, from now on."""
    counted: Counter[str] = Counter()
    for name in names:
        monkeypatch.setattr(of, name, counting(counted, name, getattr(of, name)))
    return counted
