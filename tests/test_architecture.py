"""The shape of the code base, kept by machine: folders, the I/O seam, sizes, errors.

A folder is a concept and imports only from the folders above it in the lists below. Inside a folder
the order is free, but without cycles.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator

import pytest

from tests.support import architecture_rules as rules
from tests.support.architecture_rules import Module, Problem
from tests.support.architecture_seam import file_access
from tests.support.paths import ROOT

# Lowest first: a folder, or a module at the top, and why it is a place of its own.
STORAGE_CORE = {
    "_version": "the version, which the build reads without importing anything else",
    "lazy": "names and modules imported at their first use, to keep Spark tasks quick to start",
    "errors": "every error raised on purpose: one root, a stable code each",
    "arguments": "what users pass to public functions: checked, and read where it is a text",
    "types": "small values that pass between folders: offset ranges, reports, findings",
    "vfs": "the only place that touches files, locks and the clock",
    "layouts": "the kinds of log directory: names, detection by file names, what each can do",
    "config": "every setting, its limits, YAML and environment",
    "io": "multi-step file operations that survive a crash between any two steps; locks",
    "format.numbers": "numbers between Arrow and numpy, without pandas",
    "schema": "the columns of typed topics: schema versions, their evolution, rows, keys",
    "predicate": "the where of a read: parsed, bound to columns, tested on rows and statistics",
    "format": "bytes on disk: columns, frames, sparse indexes, file names, the lock word",
    "metadata": "the store's small files: topics, identity, checkpoint, high watermark, groups",
    "segments": "the segment files of one partition: listed, written, sealed, read, truncated",
    "log": "the writing side of one partition: lock, recover, append, sync, publish",
    "commit": "staged records of many tasks become visible in one step, or not at all",
    "maintenance": "retention, compaction, merge, recompress, delete_records, scrub",
    "checks": "finding every problem of a store without changing it",
    "engine": "what a kind of log directory offers to the store, and the native kind",
    "brokers.codecs": "the brokers' rows and messages, many at a time",
    "brokers": "the log directories of existing brokers, as a second engine",
    "kafka.codecs": "Kafka's record batches, indexes and checkpoints, many at a time",
    "kafka": "the log directories of a Kafka broker, which are only read",
    "objects": "stores of objects: a commit log without locks, as a third engine",
    "store": "the public Store, and the choice of its engine",
    "handlers": "single records in, futures of offsets out",
    "conversion": "copying a directory of any layout into any other that can hold it",
    "cli.common": "what commands share: arguments, output, text forms",
    "cli.inspect": "commands that show what is in a store and change nothing",
    "cli.metrics": "a store in numbers for Prometheus, printed or served",
    "cli.report": "the report as an HTML page",
    "cli.write": "commands that write topics, records, offsets or a new store",
    "cli.maintain": "commands that check, repair, delete and rewrite segments",
    "cli": "all commands together, and how their errors are shown",
    "__main__": "python -m storage_core",
}

CURSUS_SPARK = {
    "compat": "names that only some releases of PySpark have",
    "errors": "the one error of the connector, and how errors of the engine become it",
    "logs": "the logger of the connector",
    "session": "what a Spark session is asked: Python of its tasks, known sources, what it hides",
    "worker": "what a Python worker of Spark does when it gets work: it leaves out two waits",
    "schema": "the columns of a topic as Spark and Arrow see them",
    "typed": "typed topics: Spark's types and the columns of a topic, in both directions",
    "options": "one table of options, parsed once on the driver",
    "store": "the store of a query, opened on the driver and in every task",
    "read": "batch reads: ranges, splits per segment, tasks",
    "write": "batch writes: rows to topic-partitions, staged by tasks, committed by the driver",
    "stream": "the Structured Streaming source and sink",
    "datasource": "what Spark asks of a data source, as a table of contents; registration",
}

FOLDERS = {"storage_core": STORAGE_CORE, "cursus_spark": CURSUS_SPARK}

# What both packages do alike, and what is no business of users.
SHARED_MODULES = [
    "storage_core.lazy",
    "storage_core.format.numbers",
    "storage_core.format.typed_columns",
    "storage_core.format.selection",
    "storage_core.arguments",
    "storage_core.layouts.registry",
    "storage_core.predicate.binder",
    "storage_core.predicate.bound",
    "storage_core.predicate.parser",
    "storage_core.schema.conform",
    "storage_core.schema.evolution",
    "storage_core.schema.fields",
    "storage_core.types",
]

FILE_LINES = 500
FUNCTION_LINES = 50
CONFTEST_LINES = 120
TOP_FILES, FOLDER_FILES = 12, 24


def load_modules(package: str) -> list[Module]:
    """Reads every module of a package from the working tree."""
    modules = []
    for path in sorted((ROOT / package).rglob("*.py")):
        if "autoload" in path.parts:  # a package of its own: installed as pyspark_cursus
            continue
        parts = path.relative_to(ROOT / package).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        modules.append(Module(package, name, is_package, path.read_text(encoding="utf-8")))
    return modules


MODULES = {package: load_modules(package) for package in FOLDERS}
ALL_MODULES = [module for modules in MODULES.values() for module in modules]


def report(
    rule: Callable[[Module], list[Problem]], modules: Iterable[Module] = ALL_MODULES
) -> list[str]:
    """Applies a rule to modules and returns the problems in words, with their places."""
    return [
        f"{file_name(module)}:{problem.line}: {problem.text}"
        for module in modules
        for problem in rule(module)
    ]


def file_name(module: Module) -> str:
    parts = [module.package, *filter(None, module.name.split("."))]
    return "/".join(parts) + ("/__init__.py" if module.is_package else ".py")


def outside_seam() -> Iterator[Module]:
    for module in MODULES["storage_core"]:
        if module.name.partition(".")[0] != "vfs":
            yield module


@pytest.mark.parametrize("package", FOLDERS)
def test_every_module_belongs_to_a_listed_folder(package: str) -> None:
    where = f"{package.upper()} in tests/test_architecture.py"
    names = [module.name for module in MODULES[package]]
    assert rules.unlisted_modules(names, FOLDERS[package], where) == []
    assert [
        folder
        for folder in FOLDERS[package]
        if not (ROOT / package / folder.replace(".", "/")).is_dir()
        and not (ROOT / package / f"{folder.replace('.', '/')}.py").is_file()
    ] == []


@pytest.mark.parametrize("package", FOLDERS)
def test_folders_import_one_way(package: str) -> None:
    folders, names = FOLDERS[package], [module.name for module in MODULES[package]]
    modules = MODULES[package]
    assert report(lambda module: rules.upward_imports(module, folders, names), modules) == []


@pytest.mark.parametrize("package", FOLDERS)
def test_imports_never_go_in_a_circle(package: str) -> None:
    assert rules.import_cycles(MODULES[package]) == []


def test_folders_hold_few_files() -> None:
    paths = [file_name(module) for module in ALL_MODULES]
    for folder in ("benchmarks", "tests"):
        paths += [path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("*.py")]
    assert rules.crowded_folders(paths, {"storage_core": TOP_FILES}, FOLDER_FILES) == []


def test_storage_core_knows_nothing_of_spark() -> None:
    banned = ("pyspark", "cursus_spark", "pyspark_cursus")
    found = report(
        lambda module: rules.foreign_imports(module, banned=banned, top_level_only={}),
        MODULES["storage_core"],
    )
    assert found == []


def test_cursus_spark_uses_only_public_names_of_storage_core() -> None:
    names = {module.name for module in MODULES["storage_core"]}
    found = report(
        lambda module: rules.foreign_imports(
            module,
            top_level_only={"storage_core": names},
            allowed=SHARED_MODULES,
        ),
        MODULES["cursus_spark"],
    )
    assert found == []


def test_no_function_imports_our_own_code() -> None:
    assert report(lambda module: rules.function_level_imports(module.source)) == []


def test_init_files_hold_no_logic() -> None:
    packages = [module for module in ALL_MODULES if module.is_package]
    assert report(lambda module: rules.init_logic(module.source), packages) == []


def test_type_checkers_see_what_is_imported_at_first_use() -> None:
    assert report(rules.lazy_twins) == []


def test_files_and_the_clock_are_touched_only_in_the_seam() -> None:
    assert report(lambda module: file_access(module.source), outside_seam()) == []


def test_files_are_short() -> None:
    assert report(lambda module: rules.long_file(module.source, FILE_LINES)) == []


def test_functions_are_short() -> None:
    assert report(lambda module: rules.long_functions(module.source, FUNCTION_LINES)) == []


def test_conftests_are_short() -> None:
    found = {
        str(path.relative_to(ROOT)): problems
        for path in (ROOT / "tests").rglob("conftest.py")
        if (problems := rules.long_file(path.read_text(encoding="utf-8"), CONFTEST_LINES))
    }
    assert found == {}


def test_public_errors_are_defined_in_one_file() -> None:
    others = [module for module in ALL_MODULES if module.name != "errors"]
    assert report(lambda module: rules.stray_errors(module.source), others) == []


def test_errors_share_one_root_and_have_unique_codes() -> None:
    errors = importlib.import_module("storage_core.errors")
    classes = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and value.__module__ == errors.__name__
    ]
    assert classes
    assert rules.error_classes(classes, errors.StorageError) == []
