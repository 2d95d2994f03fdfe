"""``report``: one page about a store."""

from __future__ import annotations

from typing import TextIO

import click

from ...store.store import Store
from ..common import arguments, screen
from ..inspect.overview import look_at_topics
from .facts import gather
from .page import page


@click.command()
@arguments.with_store
@click.option(
    "--output", "-o", type=click.File("w", encoding="utf-8", lazy=True), default="-",
    help="The file; standard output by default.",
)  # fmt: skip
@click.option(
    "--sample", type=click.IntRange(min=1), default=1_000_000, show_default=True, metavar="N",
    help="Look at the sizes of so many records of each partition.",
)  # fmt: skip
@click.option("--no-check", is_flag=True, help="Do not read every byte to look for problems.")
@arguments.isolation
def report(store: Store, output: TextIO, sample: int, no_check: bool) -> None:
    """Write a page about the store: topics, segments, rates, sizes, compression, lag, problems.

    One self-contained HTML file, without scripts, that opens anywhere.
    """
    total = sum(topic.size for topic in look_at_topics(store)) or 1
    with screen.progress() as bar:
        task = bar.add_task("looking", total=2 * total)

        def tell(what: str, done: int) -> None:
            bar.update(task, description=what, advance=done)

        found = gather(store, sample=sample, check=not no_check, tell=tell)
    output.write(page(found))
    screen.note(f"{len(found.topics)} topics, {len(found.problems or ())} problems")
