"""``compact``, ``merge`` and ``recompress``: rewrite sealed segments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ...config import CODECS, Compression
from ...maintenance.report import UpkeepReport
from ...store.maintenance import StoreMaintenance
from ...store.store import Store
from ..common import arguments, output
from .maintenance_reports import MaintenanceBar, show_reports

Reports = list[UpkeepReport]


@click.command()
@arguments.with_store
@arguments.optional_topic
@click.option(
    "--min-dirty-ratio",
    type=click.FloatRange(0, 1),
    metavar="RATIO",
    help="Compact if at least this share of the log is new; 0: any new record. "
    "Default: the topic's min_cleanable_dirty_ratio.",
)
@click.option(
    "--policy",
    type=click.Choice(["compact", "delete,compact"]),
    help="Cleanup policy, for broker layouts: they store no topic settings.",
)
@arguments.dry_run
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
    """Keep only the latest record of each key.

    Compacts the sealed segments of TOPIC, or of all topics whose cleanup_policy says so. Shows
    what it would remove, then asks. Records without a key stay, and no offset changes.
    """

    def work(**given: Any) -> Reports:
        return store.compact(topic, min_dirty_ratio=min_dirty_ratio, policy=policy, **given)

    _run(ctx, store, work, "Remove these records permanently?", **how)


@click.command()
@arguments.with_store
@arguments.optional_topic
@click.option(
    "--below",
    "below_bytes",
    type=arguments.size_option,
    metavar="BYTES",
    help="Merge segments smaller than this (64MiB works too). Default: half of segment_bytes.",
)
@arguments.dry_run
@arguments.yes
@arguments.as_json
@click.pass_context
def merge(
    ctx: click.Context, /, store: Store, topic: str | None, below_bytes: int | None, **how: bool
) -> None:
    """Merge small sealed segments into larger ones.

    Merges the segments of TOPIC, or of all topics. No record and no offset changes.
    """

    def work(**given: Any) -> Reports:
        return store.merge(topic, below_bytes=below_bytes, **given)

    _run(ctx, store, work, "Merge these segments?", **how)


@click.command()
@arguments.with_store
@arguments.optional_topic
@click.option(
    "--compression",
    type=click.Choice(CODECS),
    help="The codec. Default: the topic's compression.",
)
@click.option("--level", type=click.IntRange(1, 22), metavar="N", help="Compression level of zstd.")
@click.option(
    "--older-than-ms",
    type=arguments.duration_option,
    metavar="MS",
    help="Only segments whose latest record is older than this (7d works too).",
)
@arguments.dry_run
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
    """Rewrite sealed segments with another codec.

    Rewrites the segments of TOPIC, or of all topics. No record and no offset changes.
    """

    def work(**given: Any) -> Reports:
        return store.recompress(
            topic, compression=compression, level=level, older_than_ms=older_than_ms, **given
        )

    _run(ctx, store, work, "Rewrite these segments?", **how)


def _run(
    ctx: click.Context,
    store: StoreMaintenance,
    work: Callable[..., Reports],
    question: str,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Show what the operation would do, ask, run it, and show what it did."""
    if dry_run or not yes:
        with MaintenanceBar() as bar:
            planned = work(dry_run=True, progress=bar.show)
        if dry_run or not as_json:
            show_reports(planned, as_json)
        if dry_run:
            return
        if not any(report.segments_before or not report.done for report in planned):
            if as_json:
                show_reports([], as_json)
            output.note(f"Nothing to do in {store.path}.")
            return
        if not output.confirmed(question, yes):
            ctx.exit(output.PROBLEMS)
    with MaintenanceBar() as bar:
        reports = work(progress=bar.show)
    show_reports(reports, as_json)
    if not all(report.done for report in reports):
        ctx.exit(output.PROBLEMS)
