"""``maintain``: all maintenance that the settings ask for, once or at intervals."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click

from ...handlers.background import Maintainer
from ..common import arguments, output
from ..common.signals import until_stopped


@click.command()
@arguments.with_place
@click.option(
    "--every", "every_ms", type=arguments.duration_option, metavar="DURATION",
    help="Again after this time, such as 1h, until SIGINT or SIGTERM.",
)  # fmt: skip
@click.option(
    "--scrub-every", "scrub_ms", type=arguments.duration_option, metavar="DURATION",
    help="Also verify all checksums, at this interval (at scrub_bytes_per_second). Default: "
    "scrub_interval_ms.",
)  # fmt: skip
@click.pass_context
def maintain(
    ctx: click.Context, place: arguments.Place, every_ms: int | None, scrub_ms: int | None
) -> None:
    """Run all maintenance that the settings ask for.

    Retention, compaction, merge and cold compression of every topic, and garbage collection in a
    store of objects. Asks nothing. Prints what was done on standard error. A step that fails is
    reported, and the others go on. Exit code 1 if a step failed; with --every a signal ends it
    with 0.
    """
    wanted = {"maintenance_interval_ms": every_ms, "scrub_interval_ms": scrub_ms}
    given = {name: value for name, value in wanted.items() if value is not None}
    place.config = place.config.override(given)
    with place.open() as store, until_stopped() as stopped, _lines():
        maintainer = Maintainer(store, stopped)
        if every_ms is None:
            maintainer.run_once()
            if stopped.is_set():
                output.error("stopped before the end. What was done stays; run it again.")
                ctx.exit(output.PROBLEMS)
        else:
            output.note(f"maintaining {store.path} every {every_ms / 1000:g} s")
            maintainer.run(at_once=True)
            output.note("stopped")
    if maintainer.failures and every_ms is None:
        ctx.exit(output.PROBLEMS)


@contextmanager
def _lines() -> Iterator[None]:
    """The log of the engine as lines on standard error, each with its time in UTC."""
    handler = logging.StreamHandler()
    shown = logging.Formatter("%(asctime)sZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    shown.converter = time.gmtime
    handler.setFormatter(shown)
    log = logging.getLogger("storage_core")
    level, propagate = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.WARNING if output.is_quiet() else logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = propagate
