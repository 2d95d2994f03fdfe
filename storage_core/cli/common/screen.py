"""What the command says: tables for people, JSON for programs, progress only on a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

OK, PROBLEMS, USAGE = 0, 1, 2
"""Exit codes: done; something is wrong, missing or was not done; the words were not understood."""


def console() -> Console:
    """Standard output. Wide enough for any line where nobody looks."""
    width = None if sys.stdout.isatty() else 10_000
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True, width=width)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table: with lines and colours on a terminal, else aligned columns. ``>`` aligns right."""
    right = [name.startswith(">") for name in columns]
    heads = [name.removeprefix(">") for name in columns]
    cells = [list(row) for row in rows]
    if sys.stdout.isatty():
        shown = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for head, is_right in zip(heads, right, strict=True):
            shown.add_column(head, justify="right" if is_right else "left", overflow="fold")
        for row in cells:
            shown.add_row(*(Text(cell) for cell in row))
        Console(highlight=False).print(shown)
        return
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    for row in [heads, *cells]:
        places = zip(row, widths, right, strict=True)
        line = [text.rjust(width) if end else text.ljust(width) for text, width, end in places]
        click.echo("  ".join(line).rstrip())


def line(text: str = "", style: str = "") -> None:
    """One line of output."""
    console().print(Text(text, style=style))


def show_json(value: Any) -> None:
    """A whole answer as JSON: indented on a terminal, one line in a pipe."""
    indent = 2 if sys.stdout.isatty() else None
    click.echo(json.dumps(value, indent=indent, ensure_ascii=False, default=str))


def note(text: str) -> None:
    """A word about what was done, for people only."""
    if sys.stderr.isatty():
        click.echo(text, err=True)


def complain(text: str, code: str | None = None) -> None:
    """One line on standard error."""
    where = "" if code is None else f"[{code}] "
    click.echo(f"cursus: {where}{' '.join(text.split())}", err=True)


def confirmed(question: str, yes: bool) -> bool:
    """Ask before something is changed. Nobody there to answer means no."""
    if yes:
        return True
    try:
        if click.confirm(question, err=True):
            return True
    except click.Abort:
        click.echo(err=True)
    complain("nothing was changed. Pass --yes to go on without a question.")
    return False


def progress() -> Progress:
    """A bar on standard error; invisible unless that is a terminal."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )


def waiting(what: str) -> Progress:
    """The same for work whose length nobody knows."""
    shown = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    shown.add_task(what, total=None)
    return shown
