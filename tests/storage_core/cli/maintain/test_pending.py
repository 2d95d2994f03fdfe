"""``pending``: interrupted commits in a broker's directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_core import Store
from tests.storage_core.brokers.test_foreign_records import (
    BEFORE,
    CONFIG,
    LAYOUTS,
    OURS,
    THEIRS,
    interrupted,
)
from tests.support.cli_runner import done, run
from tests.support.stores import values


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_commit_is_shown_and_finished(tmp_path: Path, layout: str) -> None:
    root = interrupted(tmp_path, layout)
    (shown,) = done("pending", root, "--layout", layout, "--json").json
    assert (shown["app"], shown["version"]) == ("app", 1)
    assert [part["records"] for part in shown["records"]] == [len(OURS), len(OURS)]
    assert shown["id"] in done("pending", root, "--layout", layout).out
    done("pending", root, "--layout", layout, "--finish", shown["id"], "--yes")
    assert done("pending", root, "--layout", layout, "--json").json == []
    with Store.open(root, layout=layout, config=CONFIG) as store:
        found = values(store, 1)
    assert sorted(found) == sorted([*BEFORE, *OURS, *THEIRS])


def test_a_commit_is_given_up_only_when_asked(tmp_path: Path) -> None:
    root = interrupted(tmp_path, "rustlog")
    (shown,) = done("pending", root, "--json").json
    run("pending", root, "--give-up", shown["id"])
    assert len(done("pending", root, "--json").json) == 1
    done("pending", root, "--give-up", shown["id"], "--yes")
    assert done("pending", root, "--json").json == []
    assert run("pending", root, "--finish", "a", "--give-up", "b").code == 2
