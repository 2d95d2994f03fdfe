"""The shape of the code base, kept by machine: layers, the I/O seam, sizes, errors.

A new module gets a place in the lists below: above everything it imports, and with nothing of
its own layer among its imports. A listed module need not exist yet.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests import architecture_rules as rules
from tests.architecture_rules import Module, Problem
from tests.architecture_seam import file_access

# Lowest first. A package such as "vfs" stands for its __init__.py.
STORAGE_CORE_LAYERS = [
    (
        "_version",
        "cache",
        "errors",
        "key_digest",
        "message",
        "partitioner",
        "records",
        "spread",
        "state",
        "vfs.base",
    ),
    ("bounds",),
    ("columns", "faults", "flusher", "index", "naming", "pending", "vfs.portable"),
    ("comparing", "key_table", "rows", "vfs.linux"),
    ("broker_cursor", "broker_index", "even_rows", "vfs.posix"),
    ("lanes",),
    ("broker_records", "vfs"),
    ("broker_headers", "broker_ordinal", "transactions"),
    ("config", "durable", "listing", "source", "upkeep"),
    ("broker_encode", "frame", "frame_queue", "metafile", "retention", "watermark", "write_queue"),
    (
        "checkpoint",
        "clean_marks",
        "frame_encode",
        "frame_records",
        "identity",
        "layouts.base",
        "topicfile",
    ),
    ("chain", "foreign.names", "layouts.native", "rewriting", "sealed_log"),
    ("foreign.layout", "foreign.row_end", "foreign.summaries", "foreign.transaction_file"),
    ("batches", "catalog", "dirt", "groups", "layouts", "ledger", "opening", "staging"),
    (
        "foreign.catalog",
        "foreign.chunks",
        "foreign.joined",
        "foreign.recognise",
        "foreign.retention",
    ),
    ("commit_parts", "inspection", "reader", "rewinding", "segment"),
    ("intents", "unsynced"),
    ("foreign.isolation", "foreign.segment", "recovery", "segment_reader"),
    ("check", "foreign.segments", "tail"),
    ("apply", "commit_host", "foreign.compaction", "scrubbing", "state_check", "sweeping"),
    ("commit_steps",),
    ("committer",),
    ("engine", "foreign.files", "log"),
    ("foreign.log", "maintenance", "read_store", "replacing"),
    (
        "compaction",
        "conversion_progress",
        "deleting",
        "foreign.footing",
        "foreign.upkeep",
        "lifecycle",
        "merging",
        "recompressing",
    ),
    ("native_upkeep",),
    ("foreign.engine", "native_engine"),
    ("foreign",),
    ("directory",),
    ("store",),
    ("convert", "maintainer", "partition_writer"),
    ("handler",),
    ("manager",),
    ("cli.report_style", "cli.screen", "cli.when", "cli.wording"),
    ("cli.arguments", "cli.overview", "cli.record_text"),
    ("cli.picture", "cli.printing", "cli.report_facts"),
    (
        "cli.append_command",
        "cli.care_commands",
        "cli.cat_command",
        "cli.convert_command",
        "cli.upkeep_commands",
    ),
    ("cli.completion_command", "cli.dump_command", "cli.report_charts", "cli.topic_commands"),
    ("cli.group_command", "cli.report_page", "cli.retain_command", "cli.tail_command"),
    ("cli.report_command",),
    ("cli.app",),
    ("cli.entry",),
    ("cli",),
    ("__main__",),
]

CURSUS_SPARK_LAYERS = [
    ("compat", "errors", "rate_limit"),
    ("schema", "offsets", "splitting", "layout_rows"),
    ("option_parsing", "stream_position"),
    ("option_table",),
    ("given_options",),
    ("options",),
    ("ranges", "routing"),
    ("planning", "stream_look", "trigger", "write_task"),
    ("commit", "read_task", "stream_state"),
    ("stream_batch",),
    ("reader", "stream_reader", "writer", "stream_writer"),
    ("datasource",),
    ("registration",),
]

LAYERS = {"storage_core": STORAGE_CORE_LAYERS, "cursus_spark": CURSUS_SPARK_LAYERS}

FILE_LINES = 300
FUNCTION_LINES = 50
CONFTEST_LINES = 120

ROOT = Path(__file__).resolve().parent.parent


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


MODULES = {package: load_modules(package) for package in LAYERS}
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


@pytest.mark.parametrize("package", LAYERS)
def test_every_module_has_one_layer(package: str) -> None:
    layers = LAYERS[package]
    where = f"{package.upper()}_LAYERS in tests/test_architecture.py"
    names = [module.name for module in MODULES[package]]
    assert rules.unlisted_modules(names, layers, where) == []
    assert rules.repeated_modules(layers) == []


def test_imports_go_one_way() -> None:
    assert report(lambda module: rules.upward_imports(module, LAYERS[module.package])) == []


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
        lambda module: rules.foreign_imports(module, top_level_only={"storage_core": names}),
        MODULES["cursus_spark"],
    )
    assert found == []


def test_no_function_imports_our_own_code() -> None:
    assert report(lambda module: rules.function_level_imports(module.source)) == []


def test_init_files_hold_no_logic() -> None:
    packages = [module for module in ALL_MODULES if module.is_package]
    assert report(lambda module: rules.init_logic(module.source), packages) == []


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
