"""All commands together, and how their errors are shown."""

from __future__ import annotations

import sys
from typing import Any, TextIO, cast

import click

from .._version import __version__
from ..errors import StorageError
from .common import output
from .completion import completion
from .inspect.cat import cat
from .inspect.dump import dump
from .inspect.ledger import ledger
from .inspect.overview import describe, topics
from .inspect.tail import tail
from .maintain.health import check, repair, scrub
from .maintain.maintain import maintain
from .maintain.pending import pending
from .maintain.retention import gc, retain
from .maintain.rewrite import compact, merge, recompress, roll
from .maintain.skip import skip
from .metrics.command import metrics
from .report.command import report
from .write.append import append
from .write.convert import convert
from .write.groups import groups
from .write.topics import alter, create, delete

_INTERRUPTED = 130
_SHARED = ("layout", "source_layout", "internal_topics", "isolation", "storage", "quiet")

SECTIONS: dict[str, tuple[click.Command, ...]] = {
    "Inspect": (topics, describe, cat, tail, dump, ledger, metrics, report),
    "Write": (create, alter, delete, append, groups, convert),
    "Maintain": (
        check,
        repair,
        skip,
        pending,
        maintain,
        scrub,
        gc,
        retain,
        roll,
        compact,
        merge,
        recompress,
    ),
    "Shell": (completion,),
}


class _NullStream:
    """Standard output after the reader of a pipe has closed it."""

    closed = False

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass


class CursusGroup(click.Group):
    """Lists commands by section; shows an error of the store as one line, never a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.commands)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        width = max(map(len, self.commands))
        limit = formatter.width - 6 - width
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl(
                    [
                        ((each.name or "").ljust(width), each.get_short_help_str(limit))
                        for each in commands
                    ]
                )

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except StorageError as error:
            output.error(str(error), error.code)
            ctx.exit(output.PROBLEMS)
        except BrokenPipeError:
            # `cursus cat … | head`: without this Python complains again when it exits.
            sys.stdout = cast(TextIO, _NullStream())
            ctx.exit(output.OK)
        except OSError as error:
            output.error(_refused(error), "IO")
            ctx.exit(output.PROBLEMS)
        except KeyboardInterrupt:
            ctx.exit(_INTERRUPTED)


@click.group(
    cls=CursusGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
    Exit codes:
      0  success
      1  a problem was found, something is missing, or nothing was changed
      2  wrong usage
    """,
)
@click.version_option(__version__, prog_name="cursus")
def cli() -> None:
    """Inspect, write and maintain a log directory.

    PATH is the log directory, such as /data/log, or a URL, such as s3://bucket/log.

    cursus COMMAND --help shows the arguments and options of a command.
    """


for _commands in SECTIONS.values():
    for _command in _commands:
        output.quiet_option(_command)
        # Help shows a command's own options first.
        _command.params.sort(key=lambda parameter: parameter.name in _SHARED)
        cli.add_command(_command)


def _refused(error: OSError) -> str:
    """What the operating system refused, and what to look at."""
    if error.filename is None or not error.strerror:
        return str(error)
    return (
        f"The operating system refused {str(error.filename)!r}: {error.strerror}. Check that it "
        "exists and that this user may use it."
    )
