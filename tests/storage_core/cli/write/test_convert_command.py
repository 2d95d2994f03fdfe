"""``convert`` from every layout, through the command."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from storage_core import Store
from tests.support.cli_runner import LAYOUTS, TOPIC, done, made, run, timed, values_of


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_becomes_native(tmp_path: Path, layout: str) -> None:
    made(tmp_path / "from", layout, values=4, partitions=2)
    answer = done("convert", tmp_path / "from", tmp_path / "to", "--json")
    assert [(row["partition"], row["end"], row["copied"]) for row in answer.json] == [
        (0, 4, 4), (1, 4, 4)
    ]  # fmt: skip
    assert done("describe", tmp_path / "to", "--json").json["layout"] == "native"
    assert values_of(tmp_path / "to") == values_of(tmp_path / "from")
    again = done("convert", tmp_path / "from", tmp_path / "to")
    assert again.lines[1].split() == [TOPIC, "0", "0", "4", "0"]


def test_what_the_target_cannot_hold_is_dropped_only_on_request(tmp_path: Path) -> None:
    timed(tmp_path / "from")
    words = ["convert", tmp_path / "from", tmp_path / "to", "--layout", "rustlog"]
    refused = run(*words)
    assert refused.code == 1
    assert refused.err.startswith("cursus: [COLUMN_UNSUPPORTED] ")
    dropped = [word for name in ("key", "headers", "timestamp") for word in ("--drop", name)]
    done(*words, "--topic", TOPIC, *dropped)
    assert values_of(tmp_path / "to") == values_of(tmp_path / "from")


def test_typed_topics_stay_typed_or_become_json(tmp_path: Path) -> None:
    with Store.open(tmp_path / "from", create=True) as store:
        store.create_topic(TOPIC, schema=pa.schema([("id", pa.int64())]), key_columns=["id"])
        store.append_table(TOPIC, pa.table({"id": [1, 2]}))
    done("convert", tmp_path / "from", tmp_path / "typed")
    assert Store.open(tmp_path / "typed").schema(TOPIC) == store.schema(TOPIC)
    words = ["convert", tmp_path / "from", tmp_path / "to", "--layout", "cursus-broker"]
    refused = run(*words)
    assert refused.err.startswith("cursus: [COLUMN_UNSUPPORTED] ")
    assert "--typed-as json" in refused.err
    done(*words, "--typed-as", "json")
    assert values_of(tmp_path / "to") == ['{"id":1}', '{"id":2}']
