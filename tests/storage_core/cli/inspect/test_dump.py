"""``dump``: what stands in the files, sound or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_core import Store
from tests.support.cli_runner import LAYOUTS, TOPIC, done, made, run, timed
from tests.support.stores import overwrite


def kinds(path: Path, *words: object) -> list[str]:
    return [entry["kind"] for entry in run("dump", path, TOPIC, "--json", *words).objects]


def log_file(path: Path, base: int = 0) -> Path:
    return path / "topics" / TOPIC / "0" / "segments" / f"{base:020}.log"


def frames_and_index(path: Path) -> Path:
    with Store.open(path, create=True) as store:
        store.create_topic(TOPIC, index_interval_bytes=64, compression="zstd")
        for number in range(3):
            store.append(TOPIC, 0, [b"a", f"{number}".encode() * 300], keys=[b"k", None])
        store.roll(TOPIC, 0)
        store.append(TOPIC, 0, [b"last"])
    return path


def test_dump_shows_frames_and_index_entries(tmp_path: Path) -> None:
    frames_and_index(tmp_path)
    entries = done("dump", tmp_path, TOPIC, "--json").objects
    frames = [entry for entry in entries if entry["kind"] == "frame"]
    assert [frame["offset"] for frame in frames] == [0, 2, 4, 6]
    assert frames[0]["columns"] == ["key", "value"]
    assert (frames[0]["compression"], frames[0]["records"]) == ("zstd", 2)
    assert frames[0]["body_bytes"] < frames[0]["raw_bytes"]
    offsets = [e for e in entries if e["kind"] == "index_entry" and e["index"] == "offset"]
    assert [(e["offset"], e["position"]) for e in offsets] == [
        (frame["offset"], frame["position"]) for frame in frames[1:3]
    ]
    states = [(e["base"], e["index"], e["state"]) for e in entries if e["kind"] == "index"]
    assert states == [
        (0, "offset", "sealed"),
        (0, "time", "sealed"),
        (6, "offset", "missing"),
        (6, "time", "missing"),
    ]
    text = done("dump", tmp_path, TOPIC, "--records").out
    assert "base 0, sealed" in text
    assert "base 6, active" in text
    assert "frame position=0 length=" in text
    assert '"value": "last"' in text


def test_dump_can_be_narrowed(tmp_path: Path) -> None:
    frames_and_index(tmp_path)
    assert kinds(tmp_path, "--segment", 6) == ["segment", "frame", "index", "index"]
    assert "index_entry" not in kinds(tmp_path, "--no-index")
    records = done("dump", tmp_path, TOPIC, "--records", "--json").objects
    assert sum(entry["kind"] == "record" for entry in records) == 7
    assert run("dump", tmp_path, TOPIC, "-p", 1).code == 1


def test_damage_is_a_problem_and_a_torn_tail_is_not(tmp_path: Path) -> None:
    frames_and_index(tmp_path)
    overwrite(log_file(tmp_path, 6), lambda data: data.extend(b"torn"))
    torn = run("dump", tmp_path, TOPIC)
    assert torn.code == 0
    assert "torn tail at byte" in torn.out
    overwrite(log_file(tmp_path), lambda data: data.__setitem__(100, data[100] ^ 1))
    answer = run("dump", tmp_path, TOPIC)
    assert answer.code == 1
    assert "PROBLEM [LOG_DAMAGED]" in answer.out
    assert "problem" in kinds(tmp_path)


def test_dump_needs_no_watermark(tmp_path: Path) -> None:
    timed(tmp_path)
    (tmp_path / "topics" / TOPIC / "watermark").write_bytes(b"?")
    answer = run("dump", tmp_path, TOPIC, "--json")
    frames = [entry for entry in answer.objects if entry["kind"] == "frame"]
    assert [frame["records"] for frame in frames] == [10]


@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_the_files_of_brokers_show_their_records(tmp_path: Path, layout: str) -> None:
    made(tmp_path, layout, values=3)
    entries = done("dump", tmp_path, TOPIC, "--json").objects
    assert entries[0]["kind"] == "segment"
    assert [e["value"] for e in entries if e["kind"] == "record"] == [
        "value-0", "value-1", "value-2"
    ]  # fmt: skip
    assert '"value": "value-2"' in done("dump", tmp_path, TOPIC).out


def test_damage_in_a_brokers_file_is_a_problem(tmp_path: Path) -> None:
    made(tmp_path, "rustlog", values=3)
    (file,) = tmp_path.rglob("*.log")
    overwrite(file, lambda data: data.__setitem__(11, 9))
    assert "problem" in kinds(tmp_path)
    assert run("dump", tmp_path, TOPIC).code == 1
