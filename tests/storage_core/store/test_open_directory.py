"""Paths that are no directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_core import LayoutNotFoundError, Store
from storage_core.layouts.registry import LAYOUT_NAMES


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A directory with a file and a link to itself."""
    (tmp_path / "file").write_bytes(b"mine")
    (tmp_path / "loop").symlink_to("loop")
    return tmp_path


@pytest.mark.parametrize("create", [False, True], ids=["open", "create"])
@pytest.mark.parametrize("layout", LAYOUT_NAMES)
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("file", "is a file or inside one, not a directory"),
        ("file/log", "is a file or inside one, not a directory"),
        ("loop", "symbolic links form a loop"),
        ("loop/log", "symbolic links form a loop"),
    ],
)
def test_a_path_that_is_no_directory_is_named_and_left_alone(
    odd: Path, path: str, reason: str, layout: str, create: bool
) -> None:
    with pytest.raises(LayoutNotFoundError) as caught:
        Store.open(odd / path, layout=layout, create=create)
    assert str(caught.value).startswith(str(odd / path))
    assert reason in str(caught.value)
    assert (odd / "file").read_bytes() == b"mine"
