"""``metrics``: print a store's numbers once, or serve them to Prometheus."""

from __future__ import annotations

import threading

import click

from ...store.store import Store
from ..common import arguments, output
from ..common.signals import until_stopped
from .exposition import exposition
from .measures import Measures
from .server import MetricsServer, is_loopback, parse_address


def _address(text: str) -> tuple[str, int]:
    try:
        return parse_address(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command()
@arguments.with_store
@click.option(
    "--serve", "address", type=_address, metavar="ADDRESS:PORT",
    help="Serve them at http://ADDRESS:PORT/metrics until SIGINT or SIGTERM; port 0 takes a free "
    "one.",
)  # fmt: skip
@click.option(
    "--allow-remote", is_flag=True,
    help="Serve at an address that other machines reach. Everybody who reaches it sees the names "
    "of topics and groups.",
)  # fmt: skip
@click.pass_context
def metrics(
    ctx: click.Context, store: Store, address: tuple[str, int] | None, allow_remote: bool
) -> None:
    """Print sizes, offsets, rates, lag and leftovers for Prometheus.

    Reads names, sizes, small files and indexes, never all records. Exit code 1 if a topic or group
    cannot be read; the others are printed.
    """
    measures = Measures(store)
    if address is None:
        click.echo(exposition(measures.collect()), nl=False)
        for error in measures.errors:
            output.error(str(error), error.code)
        if measures.errors:
            ctx.exit(output.PROBLEMS)
        return
    if not allow_remote and not is_loopback(address[0]):
        raise click.UsageError(
            f"--serve {address[0]} is no loopback address, so other machines may reach it. Use "
            "127.0.0.1, or pass --allow-remote."
        )
    _serve(store, measures, address)


def _serve(store: Store, measures: Measures, address: tuple[str, int]) -> None:
    def text() -> str:
        return exposition(measures.collect())

    with until_stopped() as stopped, MetricsServer(address, text, store.vfs.monotonic) as server:
        thread = threading.Thread(target=server.serve_forever, name="cursus-metrics", daemon=True)
        thread.start()
        try:
            output.note(f"serving {server.url}")
            stopped.wait()
        finally:
            server.shutdown()
            thread.join()
