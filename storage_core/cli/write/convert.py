"""``convert``: copy a log directory into another layout."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.progress import Progress as Bar
from rich.progress import TaskID

from ...arguments import store_url
from ...config import StoreConfig
from ...conversion.convert import Converted
from ...conversion.convert import convert as convert_store
from ...conversion.progress import Progress
from ...conversion.topic_copy import TypedAs
from ...store.store import Store
from ...types import IsolationLevel
from ..common import arguments, output
from ..common.formatting import number


@click.command()
@click.argument("source", type=arguments.PLACE)
@click.argument("target", type=arguments.PLACE)
@click.option(
    "--topic", "-t", "topics", multiple=True, metavar="TOPIC",
    help="Only this topic; may be repeated.",
)  # fmt: skip
@arguments.layout_option("--layout", "Layout of a new TARGET", auto="means native")
@arguments.layout_option("--source-layout", "Layout of SOURCE", auto="detect it")
@click.option(
    "--renumber", is_flag=True, help="Number the records from 0 instead of keeping their offsets."
)
@click.option("--drop", multiple=True, type=click.Choice(["key", "headers", "timestamp"]),
              help="Do not copy this column; may be repeated.")  # fmt: skip
@click.option(
    "--typed-as", type=click.Choice(["json"]),
    help="Make records topics of typed topics: values and keys are JSON.",
)  # fmt: skip
@arguments.isolation
@arguments.storage
@arguments.as_json
def convert(
    source: str,
    target: str,
    topics: tuple[str, ...],
    layout: str,
    source_layout: str,
    renumber: bool,
    drop: tuple[str, ...],
    typed_as: TypedAs | None,
    isolation: IsolationLevel,
    storage: tuple[str, ...],
    as_json: bool,
) -> None:
    """Copy a log directory into another layout.

    Copies the topics of SOURCE into TARGET, which is created if it is missing, then compares both.
    Offsets are kept, and typed topics keep their columns. After an interruption, run the same
    command again to continue.
    """
    options = arguments.storage_options(storage)
    of_source = None if store_url(source) is None else options
    with (
        Store.open(source, layout=source_layout, isolation=isolation, storage=of_source) as store,
        output.progress_bar() as bar,
    ):
        done = convert_store(
            store,
            target,
            topics=topics or None,
            layout=layout,
            renumber=renumber,
            drop=drop,
            typed_as=typed_as,
            config=StoreConfig.from_environment(),
            storage=options,
            progress=_Bars(bar).update,
        )
    _show(done, as_json)


def _show(done: Sequence[Converted], as_json: bool) -> None:
    rows = [(each.topic, each.partition, each.offsets, each.copied) for each in done]
    if as_json:
        output.show_json(
            [
                {
                    "topic": topic,
                    "partition": partition,
                    "start": offsets.start,
                    "end": offsets.end,
                    "copied": copied,
                }
                for topic, partition, offsets, copied in rows
            ]
        )
        return
    output.table(
        ["topic", ">partition", ">start", ">end", ">copied"],
        [
            [topic, str(partition), number(offsets.start), number(offsets.end), number(copied)]
            for topic, partition, offsets, copied in rows
        ],
    )


class _Bars:
    """A bar for each phase: check, copy, verify."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._tasks: dict[str, TaskID] = {}

    def update(self, now: Progress) -> None:
        """Show the progress of a phase."""
        if now.phase not in self._tasks:
            self._tasks[now.phase] = self._bar.add_task(now.phase, total=now.total_records)
        self._bar.update(
            self._tasks[now.phase],
            completed=now.records,
            total=now.total_records,
            description=f"{now.phase} {now.topic}-{now.partition}",
        )
