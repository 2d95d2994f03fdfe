"""Conversions of partitions whose records are all gone: no offset is given twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_core import OffsetRange, Store, convert
from storage_core.errors import UnsupportedColumnError
from tests.support.stores import TOPIC, errors, make_store, values


@pytest.mark.parametrize("layout", ["native", "cursus-broker", "rustlog"])
def test_a_partition_whose_records_are_gone_counts_on_where_it_was(
    tmp_path: Path, layout: str
) -> None:
    source = make_store(tmp_path / "from", partitions=2, retention_hold_groups="nobody")
    source.append(TOPIC, 0, [b"a"])
    source.append(TOPIC, 1, [b"x"] * 10)
    source.alter_topic(TOPIC, retention_hold_groups=None)
    source.delete_records(TOPIC, {1: 10})
    source.alter_topic(TOPIC, retention_hold_groups="nobody")
    for _ in range(2):
        assert [found.offsets for found in convert(source, tmp_path / "to", layout=layout)] == [
            OffsetRange(0, 1),
            OffsetRange(10, 10),
        ]
        with Store.open(tmp_path / "to") as target:
            assert target.offsets(TOPIC, 1) == OffsetRange(10, 10)
    with Store.open(tmp_path / "to") as target:
        assert target.append(TOPIC, 1, [b"next"]).start == 10
        assert values(target, 1) == [b"next"]
        assert errors(target) == []


def test_a_layout_that_counts_from_zero_refuses_a_partition_whose_records_are_gone(
    tmp_path: Path,
) -> None:
    source = make_store(tmp_path / "from", partitions=2)
    source.append(TOPIC, 0, [b"a"])
    source.append(TOPIC, 1, [b"x"] * 10)
    source.delete_records(TOPIC, {1: 10})
    with pytest.raises(UnsupportedColumnError, match="offset 0 is not in the source"):
        convert(source, tmp_path / "to", layout="cursus")
    with Store.open(tmp_path / "to", layout="cursus") as target:
        assert values(target) == []
    convert(source, tmp_path / "to", layout="cursus", renumber=True)
