"""``compact``, ``merge``, ``recompress``, ``scrub``: what becomes of closed segments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import click

from ...config import Compression
from ...maintenance.report import UpkeepProgress, UpkeepReport
from ...store.maintenance import LifecycleStore
from ...store.store import Store
from ..common import arguments, screen
from ..common.wording import number, plural, size

_dry_run = click.option("--dry-run", "-n", is_flag=True, help="Only show what would be done.")
Reports = list[UpkeepReport]


@click.command()
@arguments.with_store
@arguments.optional_topic
@click.option(
    "--min-dirty-ratio",
    type=click.FloatRange(0, 1),
    metavar="PART",
    help="Instead of the topic's min_cleanable_dirty_ratio; 0: whatever is new.",
)
@click.option(
    "--policy",
    type=click.Choice(["compact", "delete,compact"]),
    help="For directories that keep no settings of topics.",
)
@_dry_run
@arguments.yes
@arguments.as_json
@click.pass_context
def compact(
    ctx: click.Context,
    /,
    store: Store,
    topic: str | None,
    min_dirty_ratio: float | None,
    policy: Any,
    **how: bool,
) -> None:
    """Of the records of each key keep the last, in TOPIC or in all topics that are compacted.

    Shows first what would go, then asks. Records without a key stay, and so do all offsets.
    """

    def work(**given: Any) -> Reports:
        return store.compact(topic, min_dirty_ratio=min_dirty_ratio, policy=policy, **given)

    _operate(ctx, store, work, "Remove these records for good?", **how)


@click.command()
@arguments.with_store
@arguments.optional_topic
@click.option(
    "--below",
    "below_bytes",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="What counts as small; half of segment_bytes by default.",
)
@_dry_run
@arguments.yes
@arguments.as_json
@click.pass_context
def merge(
    ctx: click.Context, /, store: Store, topic: str | None, below_bytes: int | None, **how: bool
) -> None:
    """Merge small closed segments of TOPIC, or of all topics, into full ones.

    No record or offset changes.
    """

    def work(**given: Any) -> Reports:
        return store.merge(topic, below_bytes=below_bytes, **given)

    _operate(ctx, store, work, "Merge them now?", **how)


@click.command()
@arguments.with_store
@arguments.optional_topic
@click.option(
    "--compression",
    type=click.Choice(["none", "lz4", "zstd"]),
    help="The codec; the topic's own by default.",
)
@click.option("--level", type=click.IntRange(1, 22), metavar="N", help="Of zstd.")
@click.option(
    "--older-than-ms",
    type=click.IntRange(min=0),
    metavar="MS",
    help="Only segments whose newest record is older.",
)
@_dry_run
@arguments.yes
@arguments.as_json
@click.pass_context
def recompress(
    ctx: click.Context,
    /,
    store: Store,
    topic: str | None,
    compression: Compression | None,
    level: int | None,
    older_than_ms: int | None,
    **how: bool,
) -> None:
    """Put closed segments of TOPIC, or of all topics, under another codec.

    No record or offset changes.
    """

    def work(**given: Any) -> Reports:
        return store.recompress(
            topic, compression=compression, level=level, older_than_ms=older_than_ms, **given
        )

    _operate(ctx, store, work, "Write them anew now?", **how)


@click.command()
@arguments.with_store
@arguments.optional_topic
@click.option(
    "--rate",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Bytes per second; scrub_bytes_per_second by default.",
)
@arguments.as_json
@click.pass_context
def scrub(
    ctx: click.Context, store: Store, topic: str | None, rate: int | None, as_json: bool
) -> None:
    """Verify every checksum of the closed segments of TOPIC, or of all topics. Changes nothing.

    Exit code 1 if there is an error.
    """
    with _Bar() as bar:
        reports = store.scrub(topic, bytes_per_second=rate, progress=bar.show)
    problems = [problem for report in reports for problem in report.problems]
    if as_json:
        screen.show_json([_object(report) for report in reports])
    elif problems:
        screen.table(
            ["severity", "code", "problem"],
            [[found.severity, found.code, found.message] for found in problems],
        )
    read = size(sum(report.bytes_before for report in reports))
    screen.note(f"{read} read, {plural(len(problems), 'problem')}")
    if any(problem.severity == "error" for problem in problems):
        ctx.exit(screen.PROBLEMS)


def _operate(
    ctx: click.Context,
    store: LifecycleStore,
    work: Callable[..., Reports],
    question: str,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Show what would be done, ask, do it, and show what was done."""
    if dry_run or not yes:
        with _Bar() as bar:
            planned = work(dry_run=True, progress=bar.show)
        if dry_run or not as_json:
            show(planned, as_json)
        if dry_run:
            return
        if not any(report.segments_before or not report.done for report in planned):
            if as_json:
                show([], as_json)
            screen.note(f"Nothing to do in {store.path}.")
            return
        if not screen.confirmed(question, yes):
            ctx.exit(screen.PROBLEMS)
    with _Bar() as bar:
        reports = work(progress=bar.show)
    show(reports, as_json)
    if not all(report.done for report in reports):
        ctx.exit(screen.PROBLEMS)


def show(reports: Sequence[UpkeepReport], as_json: bool) -> None:
    """What was done, or would be."""
    if as_json:
        screen.show_json([_object(report) for report in reports])
    elif reports:
        screen.table(
            ["topic", ">partition", ">segments", ">size", ">saved", ">records gone", "note"],
            [
                [
                    report.topic,
                    str(report.partition),
                    f"{report.segments_before} → {report.segments_after}",
                    f"{size(report.bytes_before)} → {size(report.bytes_after)}",
                    _signed(report.saved_bytes),
                    number(report.records_removed),
                    report.note or "–",
                ]
                for report in reports
            ],
        )


def _signed(count: int) -> str:
    return f"-{size(-count)}" if count < 0 else size(count)


def _object(report: UpkeepReport) -> dict[str, Any]:
    return {**asdict(report), "saved_bytes": report.saved_bytes}


class _Bar:
    """A bar that follows an operation from partition to partition."""

    def __init__(self) -> None:
        self._shown = screen.progress()
        self._task = self._shown.add_task("", total=None)

    def __enter__(self) -> _Bar:
        self._shown.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._shown.stop()

    def show(self, now: UpkeepProgress) -> None:
        self._shown.update(
            self._task,
            completed=now.done_bytes,
            total=max(now.total_bytes, now.done_bytes, 1),
            description=f"{now.action} {now.topic}-{now.partition}",
        )
