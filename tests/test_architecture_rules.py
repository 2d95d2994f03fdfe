"""Each rule of the architecture test fires on bad code, and keeps quiet on good code."""

from __future__ import annotations

import pytest

from tests.support import architecture_rules as rules
from tests.support.architecture_rules import Module
from tests.support.architecture_seam import file_access

FOLDERS = {"errors": "one root", "vfs": "the seam", "log": "appending", "cli.common": "", "cli": ""}
KNOWN = [
    "",
    "errors",
    "vfs",
    "vfs.base",
    "vfs.posix",
    "log",
    "log.tail",
    "cli.common.text",
    "cli.app",
]


LAZY_INIT = """
if TYPE_CHECKING:
    from .log import A, b
else:
    __getattr__, __dir__ = lazy_names(__name__, {"log": "A b"})
"""
LAZY_MODULE = """
if TYPE_CHECKING:
    from ..log import tail as end
else:
    end = LazyModule("storage_core.log.tail")
"""


def module(name: str, source: str, *, package: str = "storage_core") -> Module:
    return Module(package, name, is_package=name in ("", "vfs", "log"), source=source)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("errors", "from storage_core.log import Log"),
        ("errors", "from storage_core import log"),
        ("errors", "import storage_core.log"),
        ("errors", "import storage_core"),
        ("errors", "from storage_core import Store"),
        ("errors", "from . import log"),
        ("errors", "from .log import Log"),
        ("vfs.base", "from ..log import Log"),
        ("vfs.base", "from ..log.tail import Tail"),
        ("vfs", "from ..log import Log"),
        ("cli.common.text", "from ..app import main"),
        ("log", "if TYPE_CHECKING:\n    from storage_core import Store"),
        ("log", "def f():\n    from .. import Store"),
    ],
)
def test_upward_imports_are_found(name: str, source: str) -> None:
    assert rules.upward_imports(module(name, source), FOLDERS, KNOWN)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("log", "import os\nfrom storage_core.vfs.posix import PosixVfs"),
        ("log", "from storage_core import errors"),
        ("log.tail", "from ..vfs import Vfs, base"),
        ("log.tail", "from . import other"),
        ("vfs.posix", "from . import base\nfrom ..errors import StorageError"),
        ("vfs", "from .base import Vfs\nfrom .posix import PosixVfs"),
        ("cli.app", "from .common.text import shown"),
        ("", "from .log import Log\nfrom .vfs import Vfs"),
    ],
)
def test_downward_imports_are_allowed(name: str, source: str) -> None:
    assert rules.upward_imports(module(name, source), FOLDERS, KNOWN) == []


def test_module_without_a_folder_is_named_with_the_place_to_add_it() -> None:
    found = rules.unlisted_modules(["", "log.tail", "objects.s3"], FOLDERS, "FOLDERS in here.py")
    (problem,) = found
    assert "objects.s3" in problem.text
    assert "FOLDERS in here.py" in problem.text


def test_cycles_are_found_however_long() -> None:
    circle = [
        module("log.a", "from .b import x"),
        module("log.b", "from ..vfs.c import x"),
        module("vfs.c", "from storage_core.log import a"),
    ]
    (problem,) = rules.import_cycles(circle)
    assert "log.a -> log.b -> vfs.c -> log.a" in problem.text
    assert rules.import_cycles(circle[:2]) == []


def test_crowded_folders_are_found() -> None:
    paths = ["core/a.py", "core/b.py", "core/io/c.py", "core/io/d.py", "core/io/e.py"]
    (problem,) = rules.crowded_folders(paths, {"core": 2}, 2)
    assert "core/io has 3 files" in problem.text
    assert rules.crowded_folders(paths, {"core": 2}, 3) == []
    assert rules.crowded_folders(paths, {"core": 1}, 3)


@pytest.mark.parametrize(
    "source",
    [
        "import pyspark",
        "import pyspark.sql as sql",
        "from pyspark.sql import SparkSession",
        "def f():\n    import pyspark",
    ],
)
def test_banned_package_is_found(source: str) -> None:
    found = rules.foreign_imports(module("log", source), banned=["pyspark"], top_level_only={})
    assert found


@pytest.mark.parametrize(
    ("source", "bad"),
    [
        ("import storage_core", False),
        ("from storage_core import Store, StorageError", False),
        ("import storage_core.errors", True),
        ("from storage_core.vfs import base", True),
        ("from storage_core import vfs", True),
        ("def f():\n    from storage_core.testing import faults", True),
        ("from storage_core.lazy import lazy_names", False),
    ],
)
def test_only_the_top_level_of_another_package_is_allowed(source: str, bad: bool) -> None:
    found = rules.foreign_imports(
        module("reader", source, package="cursus_spark"),
        top_level_only={"storage_core": ["errors", "vfs", "vfs.base"]},
        allowed=["storage_core.lazy"],
    )
    assert bool(found) == bad


@pytest.mark.parametrize(
    ("source", "bad"),
    [
        ("from storage_core import Store\nimport os", False),
        ("def f():\n    import pyspark\n    import json", False),
        ("def f():\n    from storage_core import Store", True),
        ("def f():\n    import storage_core.log", True),
        ("async def f():\n    from cursus_spark.options import Options", True),
        ("class C:\n    def f(self):\n        if self:\n            from . import log", True),
    ],
)
def test_own_imports_inside_functions_are_found(source: str, bad: bool) -> None:
    assert bool(rules.function_level_imports(source)) == bad


@pytest.mark.parametrize(
    ("source", "bad"),
    [
        ("", False),
        ('"""Text."""', False),
        ('"""Text."""\nfrom .log import A, b\n__all__ = ["A", "b"]', False),
        ('from .log import A\n__all__: list[str] = ["A"]', False),
        ("from .log import A", True),
        ('from .log import A, b\n__all__ = ["b", "A"]', True),
        ('from .log import A\n__all__ = ["A", "A"]', True),
        ('from .log import A\n__all__ = ["A"] + log.__all__', True),
        ('from .log import A\n__all__ = [A]\n"text"', True),
        ("x = 1", True),
        ("def f():\n    return 1", True),
        ("try:\n    import lz4\nexcept ImportError:\n    pass", True),
        (f'{LAZY_INIT}\n__all__ = ["A", "b"]', False),
        (LAZY_INIT.replace("lazy_names", "other_names"), True),
        (LAZY_INIT.replace("    from .log", "    x = 1\n    from .log"), True),
        (LAZY_INIT.replace("TYPE_CHECKING", "sys.argv"), True),
    ],
)
def test_logic_in_init_is_found(source: str, bad: bool) -> None:
    assert bool(rules.init_logic(source)) == bad


@pytest.mark.parametrize(
    ("name", "source", "bad"),
    [
        ("", LAZY_INIT, False),
        ("", LAZY_INIT.replace('"A b"', '"A"'), True),
        ("", LAZY_INIT.replace("import A, b", "import A"), True),
        ("", LAZY_INIT.replace('"log"', '"log.tail"'), True),
        ("vfs.base", LAZY_MODULE, False),
        ("vfs.base", LAZY_MODULE.replace("log.tail", "log.head"), True),
        ("vfs.base", LAZY_MODULE.replace("as end", "as start"), True),
        ("vfs.base", LAZY_MODULE.replace("else", "    from ..log.tail import Tail\nelse"), False),
        ("vfs.base", "if TYPE_CHECKING:\n    from ..log import tail", False),
    ],
)
def test_lazy_import_unlike_its_checked_twin_is_found(name: str, source: str, bad: bool) -> None:
    assert bool(rules.lazy_twins(module(name, source))) == bad


@pytest.mark.parametrize(
    "source",
    [
        "open('x')",
        "opener = open",
        "with open('x') as file:\n    pass",
        "import io\nio.open('x')",
        "from io import FileIO",
        *(f"import os\nos.{name}(x)" for name in ("open", "fsync", "rename", "replace", "unlink")),
        *(f"import os\nos.{name}(x)" for name in ("remove", "link", "symlink", "stat", "lstat")),
        *(f"import os\nos.{name}(x)" for name in ("scandir", "listdir", "mkdir", "makedirs")),
        *(f"import os\nos.{name}(x)" for name in ("rmdir", "truncate", "ftruncate", "chmod")),
        *(f"import os\nos.{name}(x)" for name in ("pread", "pwrite", "pwritev", "write", "read")),
        *(f"import os\nos.{name}(x)" for name in ("close", "sendfile", "posix_fadvise", "walk")),
        *(f"import os\nos.path.{name}(x)" for name in ("exists", "getsize", "isdir", "realpath")),
        "import os as system\nsystem.fsync(1)",
        "from os import fsync",
        "from os import path as p\np.exists('x')",
        "from os.path import exists",
        "import os.path\nos.path.isfile('x')",
        "call = os.fsync\nimport os",
        *(f"import {name}" for name in ("mmap", "fcntl", "shutil", "tempfile", "glob", "ctypes")),
        "from shutil import rmtree",
        "def f():\n    import fcntl",
        "from pathlib import Path",
        "import pathlib\npathlib.Path('x').stat()",
        *(f"path.{name}()" for name in ("read_text", "write_bytes", "exists", "iterdir", "touch")),
        *(f"import time\ntime.{name}()" for name in ("time", "time_ns", "monotonic", "sleep")),
        "from time import sleep",
        "from datetime import datetime\ndatetime.now()",
        "import datetime as dt\ndt.datetime.utcnow()",
        "import pyarrow as pa\npa.memory_map('x')",
        "import pyarrow.parquet",
        "import numpy as np\nnp.memmap('x')",
        "array.tofile('x')",
    ],
)
def test_file_access_outside_the_seam_is_found(source: str) -> None:
    assert file_access(source)


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.fspath(x), os.getpid(), os.environ['x'], os.PathLike",
        "import os\nos.environ.get('x')\nos.path.join('a', os.path.basename('b'))",
        "from os import fspath\nfrom os.path import join",
        "import threading\nthreading.Event().wait(1)",
        "from pathlib import PurePosixPath",
        "class Store:\n    @classmethod\n    def open(cls):\n        return cls()\nStore.open()",
        "self._vfs.exists(name), vfs.read_bytes(name), vfs.open(name)",
        "vfs.clock.sleep(1), vfs.clock.time()",
        "'a'.replace('b', 'c')",
        "import dataclasses\ndataclasses.replace(x)",
        "import datetime\ndatetime.datetime.fromtimestamp(0)",
        "import pyarrow as pa\npa.ipc.read_record_batch(buffer, schema)",
        "import io\nio.BytesIO()",
    ],
)
def test_pure_code_is_allowed_outside_the_seam(source: str) -> None:
    assert file_access(source) == []


def test_long_file_is_found() -> None:
    assert rules.long_file("x = 1\n" * 11, 10)
    assert rules.long_file("x = 1\n" * 10, 10) == []


@pytest.mark.parametrize("head", ["def f():", "async def f():", "class C:\n  def f(self):"])
def test_long_function_is_found(head: str) -> None:
    assert rules.long_functions(head + "\n    x = 1" * 10, 10)
    assert rules.long_functions(head + "\n    x = 1" * 9, 10) == []


def test_docstring_does_not_make_a_function_long() -> None:
    docstring = '\n    """Text.' + "\n" * 20 + '    """'
    assert rules.long_functions("def f():" + docstring + "\n    x = 1" * 9, 10) == []
    assert rules.long_functions("def f():" + docstring + "\n    x = 1" * 10, 10)


@pytest.mark.parametrize(
    ("source", "bad"),
    [
        ("class TornError(StorageError):\n    pass", True),
        ("class Stop(Exception):\n    pass", True),
        ("class TornError(errors.StorageError):\n    pass", True),
        ("class _Stop(Exception):\n    pass", False),
        ("class Log(Base):\n    pass", False),
    ],
)
def test_public_error_outside_its_file_is_found(source: str, bad: bool) -> None:
    assert bool(rules.stray_errors(source)) == bad


class RootError(Exception):
    """The root."""

    code = "ROOT"


def _error(name: str, base: type = RootError, **body: object) -> type:
    return type(name, (base,), {"__doc__": "When it is raised.", "code": "TORN", **body})


@pytest.mark.parametrize(
    ("cls", "expected"),
    [
        (_error("TornError", Exception), "does not derive from RootError"),
        (_error("Torn"), 'does not end in "Error"'),
        (_error("TornError", __doc__=None), "has no docstring"),
        (_error("TornError", code=""), "has no code of its own"),
        (_error("TornError", code=None), "has no code of its own"),
        (_error("TornError", code="ROOT"), "has the code 'ROOT' of RootError"),
        (type("TornError", (RootError,), {"__doc__": "When."}), "has no code of its own"),
    ],
)
def test_wrong_error_class_is_found(cls: type, expected: str) -> None:
    (problem,) = rules.error_classes([RootError, cls], RootError)
    assert problem.text == f"{cls.__name__} {expected}"


def test_right_error_classes_are_allowed() -> None:
    assert rules.error_classes([RootError, _error("TornError")], RootError) == []
