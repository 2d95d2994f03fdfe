"""Reading a damaged log: all records before the damage, then an error that says where it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_core.errors import DamagedLogError
from tests.support.stores import TOPIC, errors, make_store, overwrite, reopen, segment, values


def test_records_before_the_damage_are_read_and_the_damage_is_placed(tmp_path: Path) -> None:
    store = make_store(tmp_path, 2)
    for number in range(5):
        store.append(TOPIC, 0, [b"%d" % number])
        store.append(TOPIC, 1, [b"%d" % number])
    frame = segment(tmp_path).stat().st_size // 5
    overwrite(segment(tmp_path), lambda data: data.__setitem__(3 * frame + 100, 0xFF))
    reader = reopen(tmp_path)
    batches = reader.read(TOPIC, 0)
    assert next(batches).column("value").to_pylist() == [b"0", b"1", b"2"]
    with pytest.raises(DamagedLogError) as caught:
        next(batches)
    error = caught.value
    assert (error.topic, error.partition, error.offset) == (TOPIC, 0, 3)
    assert error.position == 3 * frame
    assert error.path == "topics/t/0/segments/00000000000000000000.log"
    assert values(reader, start=4) == [b"4"]
    assert len(values(reader, 1)) == 5


@pytest.mark.parametrize("byte", [4, 100], ids=["header", "body"])
@pytest.mark.parametrize("later", [(), (25,)], ids=["alone", "before a broken header"])
def test_of_several_damages_the_first_is_reported(
    tmp_path: Path, byte: int, later: tuple[int, ...]
) -> None:
    """Frames are checked some at a time: a header that is damaged later is seen earlier."""
    broken = 20
    store = make_store(tmp_path, fsync="none")
    for number in range(40):
        store.append(TOPIC, 0, [b"%d" % number])
    store.roll(TOPIC, 0)
    frame = segment(tmp_path).stat().st_size // 40

    def damage(data: bytearray) -> None:
        data[broken * frame + byte] ^= 0xFF
        for number in later:
            data[number * frame] ^= 0xFF

    overwrite(segment(tmp_path), damage)
    found: list[int] = []
    batches = reopen(tmp_path).read(TOPIC, 0, columns=("offset",))
    with pytest.raises(DamagedLogError) as caught:
        found.extend(offset for batch in batches for offset in batch.column(0).to_pylist())
    assert found == list(range(broken))
    assert (caught.value.offset, caught.value.position) == (broken, broken * frame)


def test_a_missing_segment_is_named_and_none_is_said_to_reach_over_it(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    for number in range(4):
        store.append(TOPIC, 0, [b"%d" % number] * 3)
        store.roll(TOPIC, 0)
    store.close()
    whole = reopen(tmp_path).segments(TOPIC, 0)
    assert whole == reopen(tmp_path).segments(TOPIC, 0, by_names=True)
    segment(tmp_path, 3).unlink()
    reader = reopen(tmp_path)
    found = reader.segments(TOPIC, 0)
    assert [(each.base, each.end) for each in found] == [(0, 3), (6, 9), (9, 12)]
    by_names = reader.segments(TOPIC, 0, by_names=True)
    assert [(each.base, each.end) for each in by_names] == [(0, 6), (6, 9), (9, 12)]
    reads = {
        "all": reader.read(TOPIC, 0),
        "inside": reader.read(TOPIC, 0, 4),
        "planned": reader.read_slices(TOPIC, 0, [(by_names[0], 0, 6)]),
    }
    before, missing, after = (f"topics/t/0/segments/{base:020d}.log" for base in (0, 3, 6))
    for name, batches in reads.items():
        with pytest.raises(DamagedLogError) as caught:
            list(batches)
        assert str(caught.value) == (
            f"t-0: offsets 3 to 5 are missing: {before} ends at offset 3, and the next file is "
            f"{after}. Restore {missing} from a copy, or read from offset 6. In a native store "
            "cursus skip gives up only these records."
        ), name
        assert (caught.value.path, caught.value.offset) == (missing, 3)
    assert values(reader, start=6) == [b"2"] * 3 + [b"3"] * 3
    assert any("offsets 3 to 5 are missing" in problem.message for problem in errors(reader))
