"""``pending``: interrupted commits, and the decision about one that no writer may finish."""

from __future__ import annotations

import click

from ...store.store import Store
from ..common import arguments, output
from ..common.formatting import number, plural


@click.command()
@arguments.with_store
@click.option("--finish", metavar="ID", help="Append the rest of this commit after other records.")
@click.option("--give-up", metavar="ID", help="Drop this commit. What it appended stays.")
@arguments.yes
@arguments.as_json
def pending(
    store: Store, finish: str | None, give_up: str | None, yes: bool, as_json: bool
) -> None:
    """Show interrupted commits.

    The next writer finishes each of them. In a broker's directory another program may have
    appended where a commit goes on. Writers then refuse with FOREIGN_RECORDS until you decide.
    """
    if finish is not None and give_up is not None:
        raise click.UsageError("give --finish or --give-up, not both.")
    if finish is not None:
        if output.confirmed(f"Append the rest of commit {finish}?", yes):
            store.finish_commit(finish)
            output.note(f"commit {finish} is finished")
    elif give_up is not None:
        if output.confirmed(f"Drop commit {give_up}?", yes):
            store.give_up_commit(give_up)
            output.note(f"commit {give_up} is dropped; its version can be committed again")
    else:
        _show(store, as_json)


def _show(store: Store, as_json: bool) -> None:
    found = store.pending_commits()
    if as_json:
        output.show_json(
            [
                {
                    "id": commit.transaction,
                    "job": commit.job,
                    "app": commit.app,
                    "version": commit.version,
                    "records": [
                        {"topic": topic, "partition": partition, "records": records}
                        for (topic, partition), records in commit.records.items()
                    ],
                }
                for commit in found
            ]
        )
        return
    if found:
        output.table(
            ["id", "app", "version", "partition", "records"],
            [
                [commit.transaction, commit.app, str(commit.version), f"{topic}-{partition}",
                 number(records)]
                for commit in found
                for (topic, partition), records in commit.records.items()
            ],
        )  # fmt: skip
    output.note(f"{plural(len(found), 'pending commit')}")
