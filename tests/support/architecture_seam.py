"""The rule of the I/O seam: files, locks and the clock are touched in one place only."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.support.architecture_rules import Problem

BANNED_MODULES = frozenset(
    "ctypes dbm fcntl fileinput glob linecache mmap posix shelve shutil sqlite3 tempfile".split()
)

# Everything else of `os` touches files, processes or the machine.
ALLOWED_OS = frozenset(
    "PathLike cpu_count environ fsdecode fsencode fspath getenv getpid getppid linesep name path "
    "sep strerror urandom".split()
)

# The functions of `os.path` that only look at the text.
ALLOWED_OS_PATH = frozenset(
    "basename commonpath commonprefix dirname isabs join normcase normpath sep split splitext "
    "splitroot".split()
)

BANNED_NAMES = frozenset(
    {f"time.{name}" for name in "time monotonic perf_counter process_time sleep".split()}
    | {f"time.{name}_ns" for name in "time monotonic perf_counter process_time".split()}
    | {"time.clock_gettime", "time.clock_gettime_ns"}
    | {f"datetime.datetime.{name}" for name in ("now", "utcnow", "today")}
    | {"datetime.date.today", "codecs.open", "io.open", "io.open_code", "io.FileIO"}
    | {f"pathlib.{name}" for name in ("Path", "PosixPath", "WindowsPath")}
    | {f"pyarrow.{name}" for name in "OSFile MemoryMappedFile memory_map create_memory_map".split()}
    | {f"pyarrow.{name}" for name in "input_stream output_stream fs parquet dataset".split()}
    | {f"numpy.{name}" for name in "memmap fromfile load save savez savez_compressed".split()}
    | {f"numpy.{name}" for name in "loadtxt savetxt genfromtxt".split()}
)

# Methods of a path that only a path has; the seam itself may offer the same names.
PATH_METHODS = frozenset(
    "exists hardlink_to is_dir is_file is_symlink iterdir lstat read_bytes read_text rglob "
    "symlink_to tofile touch write_bytes write_text".split()
)


def file_access(source: str) -> list[Problem]:
    """Outside the seam no name of the standard library, pyarrow or numpy that does I/O is used."""
    tree = ast.parse(source)
    found = {*_imported(tree), *_used(tree, _aliases(tree))}
    return sorted(found)


def _imported(tree: ast.AST) -> Iterator[Problem]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.partition(".")[0] in BANNED_MODULES or _is_banned(name):
                yield _problem(node.lineno, name)


def _used(tree: ast.AST, aliases: dict[str, str]) -> Iterator[Problem]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "open" and "open" not in aliases:
            yield _problem(node.lineno, "open")
        elif isinstance(node, ast.Attribute):
            name = _dotted(node, aliases)
            if name and _is_banned(name):
                yield _problem(node.lineno, name)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            receiver = ast.unparse(node.func.value)
            if node.func.attr in PATH_METHODS and not receiver.endswith("vfs"):
                yield _problem(node.lineno, f"{receiver}.{node.func.attr}")


def _is_banned(name: str) -> bool:
    module, _, attribute = name.partition(".")
    if module == "os" and attribute:
        head, _, rest = attribute.partition(".")
        if head == "path" and rest:
            return rest.partition(".")[0] not in ALLOWED_OS_PATH
        return head not in ALLOWED_OS
    parts = name.split(".")
    return any(".".join(parts[:end]) in BANNED_NAMES for end in range(1, len(parts) + 1))


def _aliases(tree: ast.AST) -> dict[str, str]:
    """Maps each imported name to what it stands for: ``pa`` to ``pyarrow``."""
    aliases = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.partition(".")[0]
                aliases[alias.asname or root] = alias.name if alias.asname else root
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return aliases


def _dotted(node: ast.expr, aliases: dict[str, str]) -> str:
    """Returns the full name an attribute chain stands for, or "" if it starts elsewhere."""
    if isinstance(node, ast.Name):
        return aliases.get(node.id, "")
    if isinstance(node, ast.Attribute):
        start = _dotted(node.value, aliases)
        return f"{start}.{node.attr}" if start else ""
    return ""


def _problem(line: int, name: str) -> Problem:
    return Problem(line, f"{name} touches files or the clock: go through storage_core/vfs")
