"""The bytes of a ``watermark`` file: two slots, of which one is always whole."""

from __future__ import annotations

from uuid import UUID

import pytest

from storage_core.metadata.slots import Slots, Watermark, pack, pack_slot, position, unpack
from tests.support.stores import flips

UUID_BYTES = UUID("0123456789abcdef0123456789abcdef").bytes
ENDS = (7, 0, 1 << 40)
_SLOT = (
    "43525357" "03000000" "00000003" "00000000" "00000000000000{:02x}"
    "0123456789abcdef0123456789abcdef"
    "0000000000000007" "0000000000000000" "0000010000000000" "{}"
)  # fmt: skip
SLOTS = [bytes.fromhex(_SLOT.format(*each)) for each in ((4, "a2bf37ad"), (5, "1b56d25d"))]
BYTES = SLOTS[0].ljust(4096, b"\0") + SLOTS[1].ljust(4096, b"\0")
EARLIER = bytes.fromhex(
    "4352535701000000000000030123456789abcdef0123456789abcdef"
    "000000000000000700000000000000000000010000000000878b8a97"
)
EARLIER_TYPED = bytes.fromhex(
    "4352535702000000000000030123456789abcdef0123456789abcdef00000005"
    "000000000000000700000000000000000000010000000000f00dd27a"
)


def test_watermark_has_these_bytes() -> None:
    assert pack(Watermark(UUID_BYTES, ENDS), 3).hex() == BYTES.hex()
    assert unpack(BYTES) == Slots(Watermark(UUID_BYTES, ENDS), 5, has_both_slots=True, half=4096)


@pytest.mark.parametrize(("data", "schema"), [(EARLIER, None), (EARLIER_TYPED, 5)])
def test_files_of_earlier_releases_are_read(data: bytes, schema: int | None) -> None:
    watermark = Watermark(UUID_BYTES, ENDS, schema)
    assert unpack(data) == Slots(watermark, 0, has_both_slots=True, half=0)
    for bit, flipped in flips(data):
        assert unpack(flipped) is None, bit
    for size in range(len(data)):
        assert unpack(data[:size]) is None


@pytest.mark.parametrize("schema", [None, 3], ids=["records", "typed"])
def test_every_bit_flip_of_a_slot_leaves_the_other_one(schema: int | None) -> None:
    older, newer = Watermark(UUID_BYTES, (6, 0), schema), Watermark(UUID_BYTES, ENDS, schema)
    slots = [pack_slot(older, 8), pack_slot(newer, 9)]
    for number, left in ((0, newer), (1, older)):
        for bit, flipped in flips(slots[number]):
            torn = [*slots]
            torn[number] = flipped
            found = unpack(b"".join(slot.ljust(4096, b"\0") for slot in torn))
            assert found is not None, bit
            assert (found.watermark, found.has_both_slots) == (left, False), bit


def test_every_truncation_is_detected() -> None:
    whole = unpack(BYTES)
    assert whole is not None
    for size in (*range(120), *range(4000, 4300), *range(8000, 8192)):
        found = unpack(BYTES[:size])
        assert found is None or not found.has_both_slots, size


def test_slots_have_blocks_of_their_own_and_turns() -> None:
    for partitions in (1, 506, 507, 5000):
        data = pack(Watermark(UUID_BYTES, (1,) * partitions), 0)
        found = unpack(data)
        assert found is not None
        assert found.half * 2 == len(data)
        assert found.half % 4096 == 0
        assert position(8, found.half) == 0
        assert position(9, found.half) == found.half


def test_partition_beyond_the_list_ends_at_zero() -> None:
    assert Watermark(UUID_BYTES, (7,)).end(0) == 7
    assert Watermark(UUID_BYTES, (7,)).end(5) == 0
