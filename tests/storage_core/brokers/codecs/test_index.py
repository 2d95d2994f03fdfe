"""The brokers' sparse indexes: what can be true of them, and nothing else."""

from __future__ import annotations

import struct

import numpy as np

from storage_core.brokers.codecs.index import (
    encode_index,
    parse_broker_index,
    parse_rustlog_index,
)
from storage_core.format.sparse_index import SparseIndex


def pairs(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">QQ", *entry) for entry in entries)


def test_broker_index_ends_at_zeros_disorder_and_the_logs_end() -> None:
    good = ((40, 4100), (81, 8300))
    for tail in ((0, 0), (80, 9000), (90, 8300), (90, 10_000), (2**63, 9000)):
        found = parse_broker_index(pairs(*good, tail, (99, 9999)) + b"torn", 10_000)
        assert found.offsets.tolist() == [40, 81]
        assert found.positions.tolist() == [4100, 8300]
    assert len(parse_broker_index(bytes(10 << 20), 10_000).offsets) == 0
    assert len(parse_broker_index(b"", 10_000).offsets) == 0
    assert encode_index(SparseIndex(np.array([40, 81]), np.array([4100, 8300]))) == pairs(*good)


def test_rustlog_index_begins_at_position_zero() -> None:
    found = parse_rustlog_index(pairs((1000, 0), (1100, 51200)), 60_000)
    assert found.positions.tolist() == [0, 51200]
    assert len(parse_rustlog_index(pairs((1000, 0)), 0).offsets) == 0
