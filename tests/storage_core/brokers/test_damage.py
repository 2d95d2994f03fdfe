"""Damaged files: every record before the damage, then an error that says where; nothing wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storage_core import Store
from storage_core.errors import DamagedLogError
from tests.support.brokers.broker_directories import (
    BROKER,
    CURSUS,
    KINDS,
    RUSTLOG,
    RUSTLOG12,
    TOPIC,
    Kind,
    Outcome,
    read,
)
from tests.support.brokers.broker_directories import message as broker_message
from tests.support.stores import errors, overwrite


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


# Where positions are offsets, a file that lost whole records looks like a shorter one.
based = pytest.mark.parametrize("kind", KINDS[2:], ids=lambda kind: str(kind.name))


def check(store: Store, values: list[bytes], position: int | None = None) -> Outcome:
    """Read twice, by ``read`` and by ``check``; both must stop at the same place."""
    found = read(store)
    assert found.records == list(enumerate(values))
    assert found.error is not None
    assert found.error.offset == len(values)
    assert f"offset {len(values)}" in str(found.error)
    if position is not None:
        assert found.error.position == position
        assert f"byte {position}" in str(found.error)
    (problem,) = errors(store)
    assert (problem.code, problem.offset) == ("LOG_DAMAGED", len(values))
    assert problem.path == found.error.path
    return found


def write_files(root: Path, kind: Kind, files: dict[int, bytes]) -> None:
    for number, data in files.items():
        file = kind.file(root, number)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


def test_bad_length_in_the_middle_of_a_sealed_segment(tmp_path: Path, kind: Kind) -> None:
    first, second = kind.write(tmp_path, [[b"a", b"b", b"c"], [b"d"]])
    position = len(kind.encode([b"a"], 0))

    def break_length(data: bytearray) -> None:
        data[position] = 0xFF

    overwrite(first, break_length)
    found = check(kind.open(tmp_path), [b"a"], position)
    assert found.error is not None
    assert found.error.path == str(first.relative_to(tmp_path))
    assert str(found.error.path) in str(found.error)
    if not kind.ordinal:
        assert read(kind.open(tmp_path), start=3).values == [b"d"]
    second.unlink()
    check(kind.open(tmp_path), [b"a"], position)


def test_bad_length_far_after_the_first_chunk(tmp_path: Path, kind: Kind) -> None:
    values = [b"%07d" % at * 20 for at in range(9000)]
    (file, *_) = kind.write(tmp_path, [values, [b"z"]])
    position = len(kind.encode(values[:7000], 0))

    def break_length(data: bytearray) -> None:
        data[position : position + 4] = b"\xff\xff\xff\xff"

    overwrite(file, break_length)
    check(kind.open(tmp_path), values[:7000], position)


def test_torn_bytes_at_the_end_of_a_sealed_segment(tmp_path: Path, kind: Kind) -> None:
    first, _ = kind.write(tmp_path, [[b"a", b"b"], [b"c"]])
    position = first.stat().st_size
    first.write_bytes(first.read_bytes() + kind.encode([b"torn"], 2)[:-1])
    check(kind.open(tmp_path), [b"a", b"b"], position)


@based
def test_a_sealed_segment_that_was_cut_short(tmp_path: Path, kind: Kind) -> None:
    first, _ = kind.write(tmp_path, [[b"a", b"b"], [b"c"]])
    os.truncate(first, len(kind.encode([b"a"], 0)))
    check(kind.open(tmp_path), [b"a"])


def test_a_missing_segment_is_named_and_none_is_said_to_reach_over_it(
    tmp_path: Path, kind: Kind
) -> None:
    first, second, third = kind.write(tmp_path, [[b"a", b"b"], [b"c"], [b"d"]])
    second.unlink()
    store = kind.open(tmp_path)
    found = check(store, [b"a", b"b"])
    assert found.error is not None
    before, missing, after = (str(file.relative_to(tmp_path)) for file in (first, second, third))
    assert (found.error.path, found.error.position) == (missing, None)
    ends = [(segment.base, segment.end) for segment in store.segments(TOPIC, 0)]
    if kind.ordinal:
        # What is left would get the offsets of what is gone.
        assert f"{missing} is missing, so the records from offset 2 on are unknown" in str(
            found.error
        )
        assert ends == [(0, 2)]
        with pytest.raises(DamagedLogError, match="is missing, so the records from offset 2"):
            store.append(TOPIC, 0, [b"e"])
        return
    assert str(found.error) == (
        f"{TOPIC}-0: offsets 2 to 2 are missing: {before} ends at offset 2, and the next file is "
        f"{after}. Restore {missing} from a copy, or read from offset 3. In a native store "
        "cursus skip gives up only these records."
    )
    assert ends == [(0, 2), (3, 4)]
    assert read(store, start=3).values == [b"d"]


@based
def test_a_segment_that_runs_into_the_next_one(tmp_path: Path, kind: Kind) -> None:
    first, _ = kind.write(tmp_path, [[b"a", b"b"], [b"c"]])
    position = first.stat().st_size
    first.write_bytes(kind.encode([b"a", b"b", b"C"], 0))
    check(kind.open(tmp_path), [b"a", b"b"], position)


@based
@pytest.mark.parametrize(
    ("order", "sound"),
    [((0, 2, 3, 4, 1, 5), 1), ((0, 1, 2, 2, 3), 3), ((0, 1, 0, 1), 2), ((1, 2), 0), ((0, 2), 1)],
    ids=["disorder", "repeated", "restarted", "misnamed", "gap"],
)
@pytest.mark.parametrize("closed", [False, True], ids=["active", "closed"])
def test_offsets_that_do_not_follow(
    tmp_path: Path, kind: Kind, order: tuple[int, ...], sound: int, closed: bool
) -> None:
    data = b"".join(kind.encode([b"%d" % offset], offset) for offset in order)
    files = {0: data, 6: kind.encode([b"6"], 6)} if closed else {0: data}
    write_files(tmp_path, kind, files)
    values = [b"%d" % offset for offset in order[:sound]]
    check(kind.open(tmp_path), values, len(kind.encode(values, 0)))


@based
def test_disorder_far_from_the_end_is_no_silent_end(tmp_path: Path, kind: Kind) -> None:
    values = [b"%06d" % at * 30 for at in range(6000)]
    data = kind.encode(values[:3000], 0) + kind.encode(values[:3000], 0)
    write_files(tmp_path, kind, {0: data})
    check(kind.open(tmp_path), values[:3000])


def test_a_misnamed_segment_of_the_broker(tmp_path: Path) -> None:
    write_files(tmp_path, BROKER, {0: BROKER.encode([b"a"], 0), 6: BROKER.encode([b"b"], 1)})
    check(BROKER.open(tmp_path), [b"a"])


def test_a_body_that_ends_inside_a_field(tmp_path: Path) -> None:
    broken = broker_message(1, b"b")
    broken = (len(broken) - 4 - 1).to_bytes(4, "big") + broken[4:-1]
    first = BROKER.encode([b"a"], 0)
    write_files(tmp_path, BROKER, {0: first + broken + BROKER.encode([b"c"], 2)})
    found = check(BROKER.open(tmp_path), [b"a"], len(first))
    assert "ends inside a field" in str(found.error)


def test_zeros_at_the_end_of_a_broker_file_are_what_a_crash_leaves(tmp_path: Path) -> None:
    for kind in (BROKER, RUSTLOG, RUSTLOG12):
        root = tmp_path / kind.name
        *_, last = kind.write(root, [[b"a"], [b"b", b"c"]])
        last.write_bytes(last.read_bytes() + bytes(100_001))
        store = kind.open(root)
        assert read(store) == ([(0, b"a"), (1, b"b"), (2, b"c")], None)
        assert errors(store) == []
        last.write_bytes(last.read_bytes() + b"\1")
        found = read(store)
        assert (found.values, found.error is None) == ([b"a", b"b", b"c"], False)


def test_zeros_are_empty_records_of_cursus(tmp_path: Path) -> None:
    (file,) = CURSUS.write(tmp_path, [[b"a"]])
    file.write_bytes(file.read_bytes() + bytes(10))
    assert read(CURSUS.open(tmp_path)).values == [b"a", b"", b""]


def test_two_files_that_begin_at_one_offset(tmp_path: Path) -> None:
    RUSTLOG.write(tmp_path, [[b"a"]])
    RUSTLOG12.write(tmp_path, [[b"b"]])
    store = RUSTLOG.open(tmp_path)
    with pytest.raises(DamagedLogError, match="two files begin at offset 0"):
        store.read(TOPIC, 0)
    assert [problem.code for problem in errors(store)] == ["LOG_DAMAGED"]


def test_nothing_is_appended_after_damage(tmp_path: Path, kind: Kind) -> None:
    first, _ = kind.write(tmp_path, [[b"a", b"b"], [b"c"]])
    last = kind.file(tmp_path, 1 if kind.ordinal else 2)
    last.write_bytes(last.read_bytes() + b"\xff" * 40)
    before = last.read_bytes()
    with pytest.raises(DamagedLogError, match="cannot be appended after damage"):
        kind.open(tmp_path).append(TOPIC, 0, [b"d"])
    assert last.read_bytes() == before
    assert first.exists()
