"""The state word in a partition's lock file."""

from __future__ import annotations

from storage_core.format.lock_state import (
    CLEAN,
    DIRTY,
    NEVER_USED,
    SIZE,
    SYNC_FAILED,
    PartitionState,
    pack,
    unpack,
)
from tests.support.stores import T0, flips

STATE = PartitionState(
    pid=4242,
    condition=CLEAN,
    boot_id=bytes(range(16)),
    generation=9,
    active_base=100,
    active_size=4096,
    end_offset=250,
    recovery_point=250,
    created_us=T0,
    last_append_us=T0 + 1,
)
BYTES = bytes.fromhex(
    "00000000000010924352534c01000000000102030405060708090a0b0c0d0e0f"
    "00000000000000090000000000000064000000000000100000000000000000fa"
    "00000000000000fa00060a24181e400000060a24181e400100000000135a9ca0"
)


def test_state_word_has_these_bytes() -> None:
    assert pack(STATE).hex() == BYTES.hex()
    assert len(BYTES) == SIZE


def test_state_word_survives_a_round_trip() -> None:
    for condition in (CLEAN, DIRTY, SYNC_FAILED):
        state = STATE._replace(condition=condition)
        assert unpack(pack(state)) == state


def test_every_bit_flip_counts_as_dirty() -> None:
    for bit, flipped in flips(BYTES):
        assert unpack(flipped) == NEVER_USED, bit


def test_short_long_and_empty_words_count_as_dirty() -> None:
    assert NEVER_USED.condition == DIRTY
    for data in (b"", BYTES[:-1], BYTES + b"\0", bytes(SIZE)):
        assert unpack(data) == NEVER_USED
