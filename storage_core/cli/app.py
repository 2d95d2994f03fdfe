"""The command and its subcommands, and what becomes of errors."""

from __future__ import annotations

import sys
from typing import Any, TextIO, cast

import click

from .._version import __version__
from ..errors import StorageError
from .common import screen
from .completion import completion
from .inspect.cat import cat
from .inspect.dump import dump
from .inspect.tail import tail
from .maintain import check as care
from .maintain import rewrite as upkeep
from .maintain.retain import retain
from .report.command import report
from .write import topics as topic
from .write.append import append
from .write.convert import convert
from .write.groups import groups

_INTERRUPTED = 130


class _Deaf:
    """Standard output when nobody reads it any more."""

    closed = False

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass


class CursusGroup(click.Group):
    """Lists commands in the order of use; an error of the store is one line, never a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except StorageError as error:
            screen.complain(str(error), error.code)
            ctx.exit(screen.PROBLEMS)
        except BrokenPipeError:
            # Whoever read us has seen enough; Python would complain once more when it exits.
            sys.stdout = cast(TextIO, _Deaf())
            ctx.exit(screen.OK)
        except OSError as error:
            screen.complain(str(error), "IO")
            ctx.exit(screen.PROBLEMS)
        except KeyboardInterrupt:
            ctx.exit(_INTERRUPTED)


@click.group(
    cls=CursusGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 something is wrong, missing or was not done, 2 wrong usage.",
)
@click.version_option(__version__, prog_name="cursus")
def cli() -> None:
    """Look into a log directory, feed it and look after it."""


for _command in (
    topic.topics,
    topic.describe,
    topic.create,
    topic.alter,
    topic.delete,
    append,
    cat,
    tail,
    dump,
    care.check,
    care.repair,
    retain,
    upkeep.compact,
    upkeep.merge,
    upkeep.recompress,
    upkeep.scrub,
    groups,
    convert,
    report,
    completion,
):
    cli.add_command(_command)
