"""Reading a damaged log: all records before the damage, then an error that says where it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_core.errors import DamagedLogError
from tests.support.stores import TOPIC, make_store, overwrite, reopen, segment, values


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
