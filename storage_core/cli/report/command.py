"""``report``: one HTML page about a store."""

from __future__ import annotations

import sys
from typing import TextIO

import click

from ...store.store import Store
from ..common import arguments
from ..common import output as terminal
from ..common.formatting import plural
from ..inspect.store_facts import facts_of_topics
from .page import page
from .statistics import gather


@click.command()
@arguments.with_store
@click.option(
    "--output", "-o", type=arguments.LocalFile("w", encoding="utf-8", lazy=True), default="-",
    help="File to write. Default: standard output.",
)  # fmt: skip
@click.option(
    "--sample", type=click.IntRange(min=1), default=1_000_000, show_default=True, metavar="N",
    help="Measure the sizes of at most N records of each partition.",
)  # fmt: skip
@click.option(
    "--no-check", is_flag=True, help="Do not check the store for problems, which reads every byte."
)
@arguments.isolation
def report(store: Store, output: TextIO, sample: int, no_check: bool) -> None:
    """Write an HTML page about the store.

    The page shows topics, segments, rates, record sizes, compression, lag and problems. It is one
    file without scripts and loads nothing from the network.
    """
    if output.name == "-" and sys.stdout.isatty():
        raise click.UsageError("The page would fill the terminal. Pass --output report.html.")
    total = sum(topic.size for topic in facts_of_topics(store)) or 1
    with terminal.progress_bar() as bar:
        task = bar.add_task("reading", total=2 * total)

        def advance(what: str, done: int) -> None:
            bar.update(task, description=what, advance=done)

        found = gather(store, sample=sample, check=not no_check, advance=advance)
    output.write(page(found))
    topics, problems = len(found.topics), len(found.problems or ())
    terminal.note(f"{plural(topics, 'topic')}, {plural(problems, 'problem')}")
