"""What a person decides of an interrupted commit that no writer may finish.

In a broker's directory another program may append while a commit is interrupted. Its records stand
where the commit goes on, so no writer cuts or overwrites them. Either the rest of the commit is
appended after them, or the commit is dropped; what it had appended already stays in both cases.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

from ..errors import InvalidCommitError
from ..vfs import Vfs
from .commit_state import CommitState
from .intents import Intent
from .participants import Fingerprints
from .protocol import Committer
from .staging_gc import drop_staging


def finish_commit(
    state: CommitState, committer: Committer[Any], fingerprints: Fingerprints, transaction: str
) -> None:
    """Append the rest of a commit after the records of other programs.

    The rest gets an intent of its own before anything is appended. A crash after that leaves an
    ordinary interrupted commit, which the next writer finishes.
    """
    intent = _find(state, transaction)
    with committer.locked(intent) as is_pending:
        if not is_pending:
            return
        alive = {(part.topic, part.partition) for part in committer.alive(intent)}
        rest = replace(
            intent,
            transaction=str(uuid.uuid4()),
            partitions=tuple(
                fingerprints.rebased(part)
                for part in intent.partitions
                if (part.topic, part.partition) in alive
            ),
            replaces=intent.transaction,
        )
        committer.decide(rest)
    committer.roll_forward(rest)


def give_up_commit(
    vfs: Vfs, state: CommitState, committer: Committer[Any], transaction: str
) -> None:
    """Drop a commit: its version is not recorded, and its staging is deleted."""
    intent = _find(state, transaction)
    with committer.locked(intent) as is_pending:
        if is_pending:
            state.intents.remove(intent)
            drop_staging(vfs, state.staging, intent.job)


def _find(state: CommitState, transaction: str) -> Intent:
    pending = state.intents.pending()
    for intent in pending:
        if intent.transaction == transaction:
            return intent
    known = ", ".join(intent.transaction for intent in pending) or "none"
    raise InvalidCommitError(f"no commit {transaction!r} is pending. Pending are: {known}.")
