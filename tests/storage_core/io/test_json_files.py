"""Metadata files: one spelling, one checksum, nothing hostile."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_core.errors import DamagedMetadataError
from storage_core.io import json_files as metafile
from tests.support.faulty_vfs import faulty
from tests.support.stores import flips, refused

BYTES = b"""{
  "b": [
    1,
    "\\u00fc"
  ],
  "crc32c": "cc1400f3",
  "format": 1
}
"""
FIELDS = {"format": 1, "b": [1, "ü"]}


def test_file_has_these_bytes() -> None:
    assert metafile.dump(FIELDS) == BYTES
    assert metafile.load(BYTES, "x") == FIELDS


@pytest.mark.row(16)
def test_every_bit_flip_is_detected() -> None:
    for bit, flipped in flips(BYTES):
        assert refused(DamagedMetadataError, metafile.load, flipped, "x"), bit


def test_every_truncation_is_detected() -> None:
    for size in range(len(BYTES)):
        with pytest.raises(DamagedMetadataError):
            metafile.load(BYTES[:size], "x")


@pytest.mark.row(29)
@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"null",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": 1e999}',
        b'{"a": ' + b"9" * 10_000 + b"}",
        b'{"a": 1, "a": 2}',
        b"\xff\xfe",
        b'{"format": 1}',
        b" " * (metafile.MAX_BYTES + 1),
    ],
    ids=range(13),
)
def test_hostile_json_is_refused(text: bytes) -> None:
    with pytest.raises(DamagedMetadataError) as caught:
        metafile.load(text, "meta/x.json")
    assert caught.value.path == "meta/x.json"


@pytest.mark.row(29)
def test_half_a_character_is_refused_and_a_whole_one_is_not() -> None:
    with pytest.raises(DamagedMetadataError, match="not valid Unicode"):
        metafile.load(metafile.dump({"name": "\ud800"}), "x")
    assert metafile.load(metafile.dump({"name": "🎉"}), "x") == {"name": "🎉"}


def test_same_contents_spelled_differently_are_refused() -> None:
    with pytest.raises(DamagedMetadataError):
        metafile.load(BYTES.replace(b"  ", b"    "), "x")


def test_missing_file_is_none_and_a_written_one_is_read_back(tmp_path: Path) -> None:
    vfs = faulty(tmp_path)
    assert metafile.read(vfs, "x.json") is None
    metafile.replace(vfs, "x.json", FIELDS)
    assert metafile.read(vfs, "x.json") == FIELDS


def test_field_of_another_type_is_refused() -> None:
    assert metafile.field(FIELDS, "format", int, "x") == 1
    for fields in ({}, {"format": "1"}, {"format": True}, {"format": None}):
        with pytest.raises(DamagedMetadataError, match="format"):
            metafile.field(fields, "format", int, "x")
