"""Tables and messages for people, JSON for programs, progress bars only on a terminal."""

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
"""Exit codes: success; a problem, a missing thing or a declined question; wrong usage."""


_QUIET = "cursus.quiet"


def console() -> Console:
    """Standard output; outside a terminal so wide that no line wraps."""
    width = None if sys.stdout.isatty() else 10_000
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True, width=width)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table: styled on a terminal, else aligned columns.

    A heading that starts with ``>`` aligns right and its cells never wrap: they are numbers. A
    heading may have two lines on a terminal.
    """
    right = [name.startswith(">") for name in columns]
    heads = [name.removeprefix(">") for name in columns]
    cells = [list(row) for row in rows]
    if sys.stdout.isatty():
        shown = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for head, is_right in zip(heads, right, strict=True):
            shown.add_column(
                head, justify="right" if is_right else "left", overflow="fold", no_wrap=is_right
            )
        for row in cells:
            shown.add_row(*(Text(cell) for cell in row))
        Console(highlight=False).print(shown)
        return
    heads = [head.replace("\n", " ") for head in heads]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    for row in [heads, *cells]:
        places = zip(row, widths, right, strict=True)
        line = [text.rjust(width) if end else text.ljust(width) for text, width, end in places]
        click.echo("  ".join(line).rstrip())


def line(text: str = "", style: str = "") -> None:
    """Print one line."""
    console().print(Text(text, style=style))


def show_json(value: Any) -> None:
    """Print a value as JSON: indented on a terminal, one line in a pipe."""
    indent = 2 if sys.stdout.isatty() else None
    click.echo(json.dumps(value, indent=indent, ensure_ascii=False, default=str))


def quiet_option(command: click.Command) -> click.Command:
    """Add ``--quiet`` to a command: ``note`` then prints nothing."""

    def remember(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        ctx.meta[_QUIET] = value

    return click.option(
        "--quiet", "-q", is_flag=True, expose_value=False, callback=remember,
        help="Do not say what was done. Errors are printed.",
    )(command)  # fmt: skip


def note(text: str) -> None:
    """Say on standard error what was done, or that there was nothing to do."""
    if not is_quiet():
        click.echo(text, err=True)


def is_quiet() -> bool:
    """Whether ``--quiet`` was passed."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_QUIET))


def error(text: str, code: str | None = None) -> None:
    """Print one error line on standard error."""
    where = "" if code is None else f"[{code}] "
    click.echo(f"cursus: {where}{' '.join(text.split())}", err=True)


def confirmed(question: str, yes: bool) -> bool:
    """Ask before something is changed. Without an answer nothing is changed."""
    if yes:
        return True
    try:
        if click.confirm(question, err=True):
            return True
    except click.Abort:
        click.echo(err=True)
    error("nothing was changed. Pass --yes to skip the question.")
    return False


def progress_bar() -> Progress:
    """A bar on standard error, if that is a terminal."""
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


def spinner(what: str) -> Progress:
    """A progress display for work of unknown length."""
    shown = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    shown.add_task(what, total=None)
    return shown
