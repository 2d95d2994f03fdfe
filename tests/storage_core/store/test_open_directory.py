"""Paths that are no directories, and paths with a scheme."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from storage_core import DiskManager, LayoutNotFoundError, Store, StoreConfig, convert
from storage_core.errors import ConfigError
from storage_core.layouts.registry import LAYOUT_NAMES
from tests.support.cli_runner import TOPIC, done, run
from tests.support.stores import make_store


@pytest.fixture
def root(tmp_path: Path) -> Path:
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
    root: Path, path: str, reason: str, layout: str, create: bool
) -> None:
    with pytest.raises(LayoutNotFoundError) as caught:
        Store.open(root / path, layout=layout, create=create)
    assert str(caught.value).startswith(str(root / path))
    assert reason in str(caught.value)
    assert (root / "file").read_bytes() == b"mine"


ELSEWHERE = ["hdfs://host:9/log", "dbfs:/mnt/log", "wasbs://box@host/log", "ftp:///log"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, where a path that is taken literally would show up."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("path", [*ELSEWHERE, Path("hdfs://bucket/log")])
@pytest.mark.parametrize("create", [False, True], ids=["open", "create"])
def test_a_scheme_that_is_not_supported_is_refused(
    here: Path, path: str | Path, create: bool
) -> None:
    scheme = str(path).partition(":")[0]
    with pytest.raises(LayoutNotFoundError, match=rf"{scheme}:// is not supported\. Mount the"):
        Store.open(path, create=create)
    assert list(here.iterdir()) == []


def test_every_way_to_a_store_refuses_other_schemes(here: Path) -> None:
    elsewhere = "hdfs://host/log"
    source = make_store(here / "source").path
    with pytest.raises(LayoutNotFoundError, match="hdfs:// is not supported"):
        DiskManager(StoreConfig(log_dir=elsewhere)).get_handler("t", 0)
    for pair in ((source, elsewhere), (elsewhere, here / "target")):
        with pytest.raises(LayoutNotFoundError, match="hdfs:// is not supported"):
            convert(*pair)
    for words in (
        ["create", elsewhere, TOPIC],
        ["topics", elsewhere],
        ["convert", source, elsewhere],
    ):
        answer = run(*words)
        assert answer.code == 1
        assert answer.err.startswith("cursus: [LAYOUT_NOT_FOUND] hdfs://host/log is not a path of")
    for words in (["report", source, "-o", elsewhere], ["append", source, "t", "-i", elsewhere]):
        answer = run(*words)
        assert (answer.code, "hdfs:// is not supported" in " ".join(answer.err.split())) == (
            2,
            True,
        )
    assert [each.name for each in here.iterdir()] == ["source"]


def test_a_file_uri_is_the_path_it_names(here: Path) -> None:
    log = here / "my log"
    for uri in (f"file://{log}", f"file:{log}", f"FILE://localhost{log}", Path(f"file://{log}")):
        assert Store.open(uri, create=True).path == str(log)
    done("create", f"file://{log}", TOPIC)
    assert Store.open("my log").topics() == [TOPIC]
    done("report", f"file://{log}", "-o", f"file://{here}/page.html")
    assert (here / "page.html").is_file()
    with pytest.raises(LayoutNotFoundError, match=r"names the host 'data'.*Write file:///data/log"):
        Store.open("file://data/log", create=True)
    assert sorted(each.name for each in here.iterdir()) == ["my log", "page.html"]


@pytest.mark.parametrize("path", ["", " ", "a\0b", b"/data", None, 3])
def test_what_is_no_path_is_refused(here: Path, path: str) -> None:
    with pytest.raises(LayoutNotFoundError, match="is not a path"):
        Store.open(path, create=True)
    assert list(here.iterdir()) == []


def test_a_colon_in_a_name_is_a_colon(here: Path) -> None:
    assert Store.open("log:2026", create=True).path == str(here / "log:2026")


def test_a_url_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    wanted = r"needs the package obstore.*its extra \[objects\].*pip install '\.\[objects\]'"
    with pytest.raises(ConfigError, match=wanted):
        Store.open("s3://bucket/log")
    assert "[objects]" in run("describe", "s3://bucket/log").err
