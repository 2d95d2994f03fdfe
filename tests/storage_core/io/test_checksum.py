"""CRC-32C without the rest of its package."""

from __future__ import annotations

import importlib.machinery

import crc32c as package
import pytest

from storage_core.io import checksum


@pytest.mark.parametrize("data", [b"", b"123456789", bytes(range(256)) * 99])
def test_the_checksum_is_that_of_the_package(data: bytes) -> None:
    assert checksum.crc32c(data) == package.crc32c(data)
    assert checksum.crc32c(memoryview(data)[3:], checksum.crc32c(data[:3])) == package.crc32c(data)


def test_the_checksum_of_the_standard() -> None:
    assert checksum.crc32c(b"123456789") == 0xE3069283


def test_a_package_with_other_files_is_imported_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        importlib.machinery.PathFinder, "find_spec", classmethod(lambda *_, **__: None)
    )
    assert checksum._extension() is package
