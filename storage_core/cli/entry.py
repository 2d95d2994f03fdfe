"""The command's entry point, which also works without click and rich."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NoReturn

_needed = ("click", "rich")
_run: Callable[..., Any] | None = None
_missing = ""

try:
    from .app import cli

    _run = cli.main
except ModuleNotFoundError as error:
    _missing = (error.name or "").partition(".")[0]
    if _missing not in _needed:
        raise


def main() -> NoReturn:
    """Run the command with this process's arguments, and exit."""
    if _run is None:
        sys.stderr.write(
            f"cursus: {_missing} is not installed. Run: pip install cursus-spark[cli]\n"
        )
        sys.exit(2)
    _run(prog_name="cursus")
    sys.exit(0)
