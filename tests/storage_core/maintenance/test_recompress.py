"""Another codec for sealed segments: every record as it was, in other bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from storage_core import Store
from storage_core.config import CODECS
from storage_core.errors import ConfigError
from storage_core.format.frame_scan import segment_frames
from tests.support.brokers.broker_directories import BROKER
from tests.support.store_lives import contents, in_segments, numbered
from tests.support.stores import T0, TOPIC


def codecs(store: Store) -> list[set[str]]:
    """The codecs of every segment's frames."""
    return [
        {CODECS[frame.header.codec] for frame in segment_frames(store.vfs, info.path, info.base)}
        for info in store.segments(TOPIC, 0)
    ]


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_there_and_back_the_contents_stay(tmp_path: Path, codec: Literal["lz4", "zstd"]) -> None:
    store = in_segments(tmp_path, numbered(3, each=40, size=400), frame_records=16)
    before = contents(store)
    (smaller,) = store.recompress(TOPIC, compression=codec)
    assert (smaller.segments_before, smaller.done) == (3, True)
    assert smaller.bytes_after < smaller.bytes_before / 2
    assert codecs(store) == [{codec}] * 3 + [{"none"}]
    assert contents(store) == before
    assert store.check() == []
    assert store.recompress(TOPIC, compression=codec) == []
    (larger,) = store.recompress(TOPIC)
    assert larger.bytes_after > smaller.bytes_before * 0.9
    assert codecs(store) == [{"none"}] * 4
    assert contents(store) == before
    assert store.check() == []


def test_a_dry_run_estimates_what_is_saved(tmp_path: Path) -> None:
    store = in_segments(tmp_path, numbered(2, each=40, size=400))
    (guess,) = store.recompress(TOPIC, compression="zstd", level=9, dry_run=True)
    assert codecs(store) == [{"none"}] * 3
    (real,) = store.recompress(TOPIC, compression="zstd", level=9)
    assert not guess.done
    assert guess.bytes_before == real.bytes_before
    assert abs(guess.bytes_after - real.bytes_after) < real.bytes_after


def test_a_higher_level_is_smaller(tmp_path: Path) -> None:
    sizes = []
    for level in (1, 19):
        store = in_segments(tmp_path / str(level), numbered(1, each=3000, keys=999, size=30))
        (report,) = store.recompress(TOPIC, compression="zstd", level=level)
        sizes.append(report.bytes_after)
    assert sizes[1] < sizes[0]


def test_only_segments_of_old_records_if_asked_for(tmp_path: Path) -> None:
    store = Store.open(tmp_path, create=True)
    store.create_topic(TOPIC)
    for stamp in (T0, store.vfs.now_us()):
        store.append(TOPIC, 0, [b"x" * 500], timestamps=[stamp])
        store.roll(TOPIC, 0)
    store.append(TOPIC, 0, [b"active"])
    (report,) = store.recompress(TOPIC, compression="zstd", older_than_ms=3_600_000)
    assert report.segments_before == 1
    assert codecs(store) == [{"zstd"}, {"none"}, {"none"}]


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_a_topic_compresses_what_is_appended_to_it(tmp_path: Path, codec: str) -> None:
    store = in_segments(tmp_path, numbered(1), compression=codec, compression_level=7)
    assert codecs(store) == [{codec}, {codec}]
    assert store.recompress(TOPIC) == []


def test_a_broker_directory_has_no_codecs(tmp_path: Path) -> None:
    BROKER.write(tmp_path, [[b"a"], [b"b"]])
    store = Store.open(tmp_path)
    with pytest.raises(ConfigError, match="only in native stores"):
        store.recompress(compression="zstd")
    with pytest.raises(ConfigError, match="only in native stores"):
        store.merge()
