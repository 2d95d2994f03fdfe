"""Every command that maintains a store, on a typed topic."""

from __future__ import annotations

import json
from pathlib import Path

from storage_core import Store
from tests.support.cli_runner import TOPIC, done


def test_every_maintenance_command_takes_a_typed_topic(tmp_path: Path) -> None:
    path, other = tmp_path / "log", tmp_path / "other"
    words = ("--key-columns", "user", "--set", "cleanup_policy=compact")
    done("create", path, TOPIC, "--schema", "id BIGINT NOT NULL, user STRING", *words)
    for start in range(0, 80, 20):
        rows = [json.dumps({"id": start + n, "user": f"u{n}"}) for n in range(20)]
        done("append", path, TOPIC, "--json", given="\n".join(rows))
        with Store.open(path) as store:
            store.roll(TOPIC, 0)
    done("append", path, TOPIC, "--json", given='{"id": 80, "user": "last"}')
    done("scrub", path)
    done("compact", path, "--yes", "--min-dirty-ratio", 0)
    done("recompress", path, "--yes", "--compression", "zstd")
    done("merge", path, "--yes", "--below", "1MiB")
    done("retain", path, TOPIC, "--before", 70, "--yes")
    done("repair", path, "--yes")
    done("check", path, "--strict")
    done("groups", path, "readers", "--topic", TOPIC, "--reset-to", "75", "--yes")
    (lag,) = done("groups", path, "readers", "--json").json
    assert (lag["committed"], lag["lag"]) == (75, 6)
    done("ledger", path)
    done("pending", path)
    assert done("skip", path, TOPIC).out == ""
    left = [row["id"] for row in done("cat", path, TOPIC, "--json").objects]
    assert left == list(range(70, 81))
    done("convert", path, other)
    assert [row["id"] for row in done("cat", other, TOPIC, "--json").objects] == left
    done("delete", path, TOPIC, "--yes")
    assert done("topics", path, "--json").json == []
