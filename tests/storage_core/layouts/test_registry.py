"""The registry of layouts: everything that lists layouts, or says what they can do, agrees."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import pytest

from cursus_spark.options.table import BY_LOWER_NAME
from storage_core import LAYOUT_NAMES, Store, StoreConfig
from storage_core.cli.app import cli
from storage_core.errors import (
    ConfigError,
    LayoutNotFoundError,
    NotWritableError,
    UnsupportedColumnError,
)
from storage_core.layouts.registry import LAYOUTS, READ_ONLY, Layout, layout_at_url
from tests.support.paths import ROOT

COLUMNS = {"key": b"k", "value": b"v", "headers": {"producer": b"p"}, "timestamp": 1}
LISTED = list(LAYOUTS.values())
WRITTEN = [layout for layout in LISTED if layout.name not in READ_ONLY]


def table_rows(document: str, header: str) -> list[list[str]]:
    """The cells of the rows of the table whose header begins so, header first."""
    lines = (ROOT / document).read_text().splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith(header))
    rows = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return [rows[0], *rows[2:]]


def names_in(text: str) -> list[str]:
    """The layouts that a text names in code, in its order."""
    return [name for name in re.findall(r"`([\w-]+)`", text) if name in LAYOUT_NAMES]


def made(path: Path, layout: Layout) -> Store:
    store = Store.open(path, layout=layout.name, create=True)
    store.create_topic("t")
    return store


@pytest.mark.parametrize("layout", WRITTEN, ids=lambda layout: str(layout.name))
def test_each_layout_can_be_made_and_is_recognised(tmp_path: Path, layout: Layout) -> None:
    with made(tmp_path, layout) as store:
        assert store.layout == layout.name
    with Store.open(tmp_path) as store:
        assert store.layout == layout.name


@pytest.mark.parametrize("layout", READ_ONLY)
def test_what_only_its_broker_writes_is_not_made(tmp_path: Path, layout: str) -> None:
    with pytest.raises(NotWritableError, match=f"layout {layout} is only read"):
        Store.open(tmp_path / "new", layout=layout, create=True)
    assert not (tmp_path / "new").exists()


def test_errors_name_every_layout_and_its_files(tmp_path: Path) -> None:
    with pytest.raises(LayoutNotFoundError, match=", ".join(LAYOUT_NAMES)):
        Store.open(tmp_path, layout="pulsar")
    with pytest.raises(LayoutNotFoundError) as caught:
        Store.open(tmp_path)
    assert all(f"{each.files} ({each.name})" in str(caught.value) for each in LISTED)


def test_setting_command_line_and_option_take_the_same_names() -> None:
    for name in LAYOUT_NAMES:
        assert StoreConfig(layout=name).layout == name
        assert BY_LOWER_NAME["layout"].parse("layout", name) == name
    with pytest.raises(ConfigError):
        StoreConfig(layout="pulsar")
    for command in cli.commands.values():
        for parameter in command.params:
            if parameter.name in ("layout", "source_layout"):
                assert isinstance(parameter.type, click.Choice)
                assert tuple(parameter.type.choices) == LAYOUT_NAMES


@pytest.mark.parametrize("layout", WRITTEN, ids=lambda layout: str(layout.name))
@pytest.mark.parametrize("column", ["key", "headers", "timestamp"])
def test_columns_are_stored_or_refused(tmp_path: Path, layout: Layout, column: str) -> None:
    arguments = {"key": "keys", "headers": "headers", "timestamp": "timestamps"}
    with made(tmp_path, layout) as store:
        given = {arguments[column]: [COLUMNS[column]]}
        if column not in layout.columns:
            with pytest.raises(UnsupportedColumnError, match=column):
                store.append("t", 0, [b"v"], **given)
            return
        store.append("t", 0, [b"v"], **given)
        (batch,) = store.read("t", 0, start=0)
        assert batch.column(column).null_count == 0


@pytest.mark.parametrize("layout", WRITTEN, ids=lambda layout: str(layout.name))
def test_operations_work_or_are_refused(tmp_path: Path, layout: Layout) -> None:
    with made(tmp_path, layout) as store:
        store.append("t", 0, [b"v"])
        store.roll("t", 0)
        store.append("t", 0, [b"v"])
        runs: tuple[tuple[Callable[[], object], bool], ...] = (
            (lambda: store.delete_records("t", {0: 1}), layout.delete_records is not None),
            (lambda: store.compact("t", policy="compact", min_dirty_ratio=0), layout.compact),
            (lambda: store.merge("t"), layout.rewrite),
            (lambda: store.recompress("t", compression="zstd"), layout.rewrite),
        )
        for run, works in runs:
            if works:
                run()
            else:
                with pytest.raises(ConfigError, match=f"layout {layout.name}"):
                    run()


@pytest.mark.parametrize("layout", WRITTEN, ids=lambda layout: str(layout.name))
def test_old_files_go_or_that_is_refused(tmp_path: Path, layout: Layout) -> None:
    made(tmp_path, layout).close()
    with Store.open(tmp_path, config=StoreConfig(retention_bytes=0)) as store:
        store.append("t", 0, [b"v"])
        store.roll("t", 0)
        store.append("t", 0, [b"v"])
        if layout.retain is None:
            with pytest.raises(ConfigError, match=f"layout {layout.name}"):
                store.retain("t")
        else:
            assert store.retain("t") == {("t", 0): [0]}


def test_the_readme_says_what_a_record_has() -> None:
    header, *rows = table_rows("README.md", "| layout |")
    assert [names_in(row[0]) for row in rows] == [[each.name] for each in LISTED]
    last = header.index("a record has")
    for row, layout in zip(rows, LISTED, strict=True):
        words = re.findall(r"\w+", row[last])
        assert {word for word in words if word in COLUMNS} == set(layout.columns)
        assert ("our readers" in row[header.index("batch write")]) == (
            layout.atomic_for == "our readers"
        )


def test_the_page_of_maintenance_says_what_each_layout_can_do() -> None:
    header, *rows = table_rows("docs/lifecycle.md", "| | native |")
    assert sorted(header[1:]) == sorted(LAYOUTS)
    shown = {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in rows}

    def refused(operation: str) -> list[str]:
        (cells,) = [cells for name, cells in shown.items() if f"`{operation}`" in name]
        return sorted(name for name, cell in cells.items() if re.match(r"no\b", cell))

    def without(values: Sequence[object]) -> list[str]:
        return sorted(each.name for each, value in zip(LISTED, values, strict=True) if not value)

    assert refused("retain") == without([each.retain for each in LISTED])
    assert refused("delete_records") == without([each.delete_records for each in LISTED])
    assert refused("compact") == without([each.compact for each in LISTED])
    assert refused("merge") == refused("recompress") == without([each.rewrite for each in LISTED])
    (scrub,) = [cells for name, cells in shown.items() if "`scrub`" in name]
    assert scrub == {each.name: each.scrub for each in LISTED}
    (retain,) = [cells for name, cells in shown.items() if "`retain`" in name]
    by_files = [name for name, cell in retain.items() if "files' times" in cell]
    assert sorted(by_files) == sorted(each.name for each in LISTED if each.retain == "file times")


def comparisons_with_layouts(source: str) -> list[int]:
    """The lines where something called layout is compared, or its name is looked for in a list."""
    kinds = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], kinds):
            sides = (node.left, *node.comparators)
            names = [getattr(side, "attr", getattr(side, "id", "")) for side in sides]
            if any(name.endswith("layout") for name in names):
                found.append(node.lineno)
    return found


def test_only_the_choice_of_an_engine_knows_layouts_by_name() -> None:
    """Others ask for an ability, so that a new layout is a folder and a line of the table."""
    assert comparisons_with_layouts('if store.layout == "native":\n    pass') == [1]
    assert comparisons_with_layouts("x = layout not in OURS") == [1]
    assert comparisons_with_layouts("LAYOUTS[store.layout].rolls and layout.frames is None") == []
    allowed = {ROOT / "storage_core/store/open_directory.py"}
    modules = [*(ROOT / "storage_core").rglob("*.py"), *(ROOT / "cursus_spark").rglob("*.py")]
    assert [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted(modules)
        if path not in allowed and path.parent.name != "layouts"
        for line in comparisons_with_layouts(path.read_text(encoding="utf-8"))
    ] == []


def test_abilities_fit_together() -> None:
    for layout in LISTED:
        assert (
            layout.stores_all == (set(layout.columns) == set(COLUMNS)) or layout.name in READ_ONLY
        )
        assert layout.tells_end or not layout.identity
        assert layout.rolls == (layout.frames != "slices")
        assert (layout.groups is None) or layout.name in READ_ONLY
    assert layout_at_url(StoreConfig().layout) == "auto"
    assert layout_at_url("objects") == "objects"


def test_the_page_of_the_command_line_lists_all_layouts() -> None:
    lines = (ROOT / "docs" / "cli.md").read_text().splitlines()
    rows = [names_in(line) for line in lines if line.startswith("| `--layout`")]
    assert list(LAYOUT_NAMES) in rows
