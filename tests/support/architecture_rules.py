"""The rules of the architecture test: pure functions from source text to problems."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeGuard

Folders = Mapping[str, str]
"""Folders and top-level modules of a package, lowest first, each with the reason it exists."""

OWN_PACKAGES = ("storage_core", "cursus_spark", "pyspark_cursus")


class Problem(NamedTuple):
    """One broken rule, and the line it stands on."""

    line: int
    text: str


class Module(NamedTuple):
    """A module by its name inside its package: ``vfs.posix``, or ``""`` for the package itself."""

    package: str
    name: str
    is_package: bool
    source: str


class _Import(NamedTuple):
    line: int
    module: str
    names: tuple[str, ...]


def folder_of(name: str, folders: Folders) -> str | None:
    """The listed folder or top-level module that a module belongs to; None if it is not listed."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        if (folder := ".".join(parts[:end])) in folders:
            return folder
    return None


def upward_imports(module: Module, folders: Folders, known: Iterable[str]) -> list[Problem]:
    """A module imports from its own folder and from those listed before it, never from later ones.

    Args:
        module: the module to look at.
        folders: folders and top-level modules, lowest first, with the reason each exists.
        known: the names of all modules of the package.
    """
    height = {name: level for level, name in enumerate(folders)}
    own = folder_of(module.name, folders)
    if own is None:
        return []
    problems = []
    for line, target in _own_imports(module, {*known, *folders, ""}):
        found = folder_of(target, folders)
        if not target or (found is not None and height[found] > height[own]):
            text = f"imports {_shown(target)}, but {own} is listed before {found or 'it'}"
            problems.append(Problem(line, text))
    return problems


def unlisted_modules(names: Iterable[str], folders: Folders, where: str) -> list[Problem]:
    """Every module belongs to a listed folder, or is listed itself."""
    return [
        Problem(1, f'module "{name}" is in no listed folder: add its folder to {where}')
        for name in sorted(set(names))
        if name and folder_of(name, folders) is None
    ]


def import_cycles(modules: Sequence[Module]) -> list[Problem]:
    """No module leads back to itself, however many imports lie between."""
    names = {module.name for module in modules}
    graph = {
        module.name: sorted({target for _, target in _own_imports(module, names)} & names)
        for module in modules
        if module.name
    }
    problems, done = [], set[str]()

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            circle = " -> ".join([*path[path.index(name) :], name])
            problems.append(Problem(1, f"imports go in a circle: {circle}"))
        elif name not in done:
            for target in graph.get(name, ()):
                visit(target, (*path, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())
    return problems


def crowded_folders(paths: Iterable[str], limits: Mapping[str, int], most: int) -> list[Problem]:
    """A folder holds few enough files to be read as a list.

    Args:
        paths: all files, such as ``storage_core/io/locks.py``.
        limits: the limit of some folders.
        most: the limit of all others.
    """
    counts = Counter(path.rpartition("/")[0] for path in paths)
    return [
        Problem(1, f"{folder} has {count} files, at most {limits.get(folder, most)}: group them")
        for folder, count in sorted(counts.items())
        if count > limits.get(folder, most)
    ]


def foreign_imports(
    module: Module,
    *,
    banned: Sequence[str] = (),
    top_level_only: Mapping[str, Iterable[str]],
    allowed: Sequence[str] = (),
) -> list[Problem]:
    """Some packages are not imported at all, others only by their public top level.

    Args:
        module: the module to look at.
        banned: packages it must not import.
        top_level_only: packages it may import names from, each with its submodules.
        allowed: submodules it may import all the same.
    """
    problems = []
    for imported in _imports(module):
        root, _, rest = imported.module.partition(".")
        if root in banned:
            problems.append(Problem(imported.line, f"imports {root}"))
        elif root in top_level_only and imported.module not in allowed:
            submodules = set(top_level_only[root])
            if rest or submodules.intersection(imported.names):
                text = f"imports a submodule of {root}: only its public names are allowed"
                problems.append(Problem(imported.line, text))
    return problems


def function_level_imports(source: str) -> list[Problem]:
    """Our own packages are imported at the top of a file, where a cycle cannot hide."""
    problems: dict[int, Problem] = {}
    for function in _functions(ast.parse(source)):
        for node in ast.walk(function):
            if isinstance(node, ast.Import):
                roots = [alias.name.partition(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                relative = OWN_PACKAGES[0] if node.level else ""
                roots = [relative or (node.module or "").partition(".")[0]]
            else:
                continue
            if any(root in OWN_PACKAGES for root in roots):
                text = f"{function.name}() imports our own code: do it at the top"
                problems[node.lineno] = Problem(node.lineno, text)
    return list(problems.values())


def init_logic(source: str) -> list[Problem]:
    """An ``__init__.py`` holds a docstring, imports and a sorted ``__all__``, nothing else.

    One exception: imports may stand under ``if TYPE_CHECKING``, with ``lazy_names`` as the other
    branch; ``lazy_twins`` compares the two.
    """
    problems = []
    names: list[str] | None = None
    reexports = False
    for position, node in enumerate(ast.parse(source).body):
        if isinstance(node, ast.Import | ast.ImportFrom):
            reexports |= getattr(node, "module", None) != "__future__"
        elif _is_all(node):
            names = _literal_names(node)
            if names is None:
                problems.append(Problem(node.lineno, "__all__ is not a list of string literals"))
            elif names != sorted(set(names)):
                text = "__all__ is not sorted, or repeats a name"
                problems.append(Problem(node.lineno, text))
        elif not (_is_lazy_table(node) or (position == 0 and _is_text(node))):
            problems.append(Problem(node.lineno, "__init__.py holds logic: move it to a module"))
    if reexports and names is None and not problems:
        problems.append(Problem(1, "__init__.py imports names but has no __all__"))
    return problems


def lazy_twins(module: Module) -> list[Problem]:
    """What ``if TYPE_CHECKING`` imports is what the other branch imports at its first use.

    Type checkers see the first branch only, and the program runs the second.
    """
    problems = []
    for node in ast.walk(ast.parse(module.source)):
        if not _is_type_checking(node) or not node.orelse:
            continue
        checked = {
            (alias.asname or alias.name, f"{_absolute(module, each)}.{alias.name}")
            for each in node.body
            if isinstance(each, ast.ImportFrom)
            for alias in each.names
        }
        lazy = set(_lazy_bindings(module, node.orelse))
        unlike = lazy - checked
        if _is_lazy_table(node):  # elsewhere names may be imported for annotations alone
            unlike |= checked - lazy
        for name, path in sorted(unlike):
            text = f"{name} from {path} is in one branch of TYPE_CHECKING only"
            problems.append(Problem(node.lineno, text))
    return problems


def long_file(source: str, limit: int) -> list[Problem]:
    """A file has at most ``limit`` lines."""
    count = len(source.splitlines())
    return [Problem(count, f"{count} lines, at most {limit}: split it")] if count > limit else []


def long_functions(source: str, limit: int) -> list[Problem]:
    """A function has at most ``limit`` lines from ``def`` to its end, docstring not counted."""
    problems = []
    for function in _functions(ast.parse(source)):
        count = _lines(function)
        if _is_text(function.body[0]):
            count -= _lines(function.body[0])
        if count > limit:
            text = f"{function.name}() has {count} lines, at most {limit}: split it"
            problems.append(Problem(function.lineno, text))
    return problems


def stray_errors(source: str) -> list[Problem]:
    """Public exception classes are defined in ``errors.py`` and nowhere else."""
    problems = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            bases = [ast.unparse(base) for base in node.bases]
            if any(base.endswith(("Error", "Exception", "Warning")) for base in bases):
                problems.append(Problem(node.lineno, f"{node.name} belongs in errors.py"))
    return problems


def error_classes(classes: Iterable[type], root: type) -> list[Problem]:
    """Error classes share one root, are named and documented as such, and have unique codes."""
    problems = []
    owner: dict[str, str] = {}
    for cls in classes:
        code = cls.__dict__.get("code")
        wrong = []
        if not issubclass(cls, root):
            wrong.append(f"does not derive from {root.__name__}")
        if not cls.__name__.endswith("Error"):
            wrong.append('does not end in "Error"')
        if not (cls.__dict__.get("__doc__") or "").strip():
            wrong.append("has no docstring")
        if not isinstance(code, str) or not code:
            wrong.append("has no code of its own")
        elif owner.setdefault(code, cls.__name__) != cls.__name__:
            wrong.append(f"has the code {code!r} of {owner[code]}")
        problems += [Problem(1, f"{cls.__name__} {text}") for text in wrong]
    return problems


def _own_imports(module: Module, known: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yields line and name of each module of the same package that is imported."""
    modules = set(known)
    for imported in _imports(module):
        root, _, base = imported.module.partition(".")
        if root != module.package:
            continue
        inside = {f"{base}.{name}".lstrip(".") for name in imported.names}
        submodules = inside & modules
        for name in sorted(submodules):
            yield imported.line, name
        if len(submodules) < len(imported.names) or not imported.names:
            yield imported.line, base


def _imports(module: Module) -> Iterator[_Import]:
    """Yields every import of a module, at any depth, relative ones made absolute."""
    for node in ast.walk(ast.parse(module.source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield _Import(node.lineno, alias.name, ())
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            yield _Import(node.lineno, _absolute(module, node), names)


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    """The full name of the module that a ``from`` imports names of."""
    home = [module.package, *filter(None, module.name.split("."))]
    if not module.is_package:
        home.pop()
    parent = home[: len(home) - node.level + 1] if node.level else []
    return ".".join([*parent, *filter(None, [node.module])])


def _is_type_checking(node: ast.AST) -> TypeGuard[ast.If]:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _lazy_bindings(module: Module, nodes: Iterable[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Yields each name that ``storage_core.lazy`` binds, and the full name of what it means."""
    for node in nodes:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        function = ast.unparse(node.value.func)
        if function == "lazy_names":
            for home, names in ast.literal_eval(node.value.args[1]).items():
                for name in names.split():
                    yield name, f"{module.package}.{home}.{name}"
        elif function == "LazyModule":
            yield ast.unparse(node.targets[0]), ast.literal_eval(node.value.args[0])


def _is_lazy_table(node: ast.stmt) -> bool:
    return (
        _is_type_checking(node)
        and all(isinstance(each, ast.ImportFrom) for each in node.body)
        and len(node.orelse) == 1
        and ast.unparse(node.orelse[0]).startswith("__getattr__, __dir__ = lazy_names(__name__, {")
    )


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _is_all(node: ast.stmt) -> bool:
    if isinstance(node, ast.Assign):
        return [ast.unparse(target) for target in node.targets] == ["__all__"]
    return isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "__all__"


def _literal_names(node: ast.stmt) -> list[str] | None:
    value = getattr(node, "value", None)
    if not isinstance(value, ast.List | ast.Tuple):
        return None
    names = [item.value for item in value.elts if isinstance(item, ast.Constant)]
    texts = [name for name in names if isinstance(name, str)]
    return texts if len(texts) == len(value.elts) else None


def _shown(name: str) -> str:
    return f'"{name}"' if name else "the package itself"
