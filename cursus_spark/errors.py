"""The one error of the connector, and how errors of the engine become it.

Spark prints the text of a Python exception inside its own exception. For a mistyped option the user
needs one line, not a traceback through our code; for a bug the traceback. So every error that a
user can cause is a ``CursusError``: ``[CURSUS_<CONDITION>] <what>. <what to do>.`` A file that the
operating system refuses is such an error. All other exceptions pass unchanged.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from storage_core import StorageError

_SHOWN_CHARACTERS = 200
# Modules that come with the package. A Python that has only a part of them cannot serve Spark.
_DEPENDENCIES = ("storage_core", "cursus_spark", "pyarrow", "numpy", "crc32c", "yaml", "sqlglot")


class CursusError(Exception):
    """An error that a user can cause and correct: one line that starts with its condition."""

    # Python prints the module before the name of a class, except for builtins.
    __module__ = "builtins"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle through a function: ``__module__`` does not say where the class is."""
        return _rebuild, (str(self),)

    @property
    def condition(self) -> str:
        """The condition without its prefix, such as ``TOPIC_NOT_FOUND``."""
        found = re.match(r"\[CURSUS_([A-Z_]+)\]", str(self))
        return found[1] if found else ""


def cursus_error(condition: str, message: str) -> CursusError:
    """Build the error for a condition such as ``OPTION_INVALID``, on one line."""
    return CursusError(f"[CURSUS_{condition}] {' '.join(message.splitlines())}")


def shown(value: object) -> str:
    """A user's value in quotes, without control characters and cut to a readable length."""
    text = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(value)
    )
    if len(text) > _SHOWN_CHARACTERS:
        text = text[:_SHOWN_CHARACTERS] + "…"
    return f"'{text}'"


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn errors of the engine into one-line errors. Also usable as a decorator.

    In a generator use ``with`` inside it: a decorator would end before the first item.
    """
    try:
        yield
    except CursusError:
        _hide_traceback()
        raise
    except StorageError as error:
        _hide_traceback()
        raise cursus_error(error.code, str(error)) from None
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _DEPENDENCIES:
            raise
        _hide_traceback()
        missing = [name for name in _DEPENDENCIES if find_spec(name) is None]
        why = f"does not have {', '.join(missing)}" if missing else f"cannot be used: {error}"
        raise python_unusable(sys.executable, why) from None
    except OSError as error:
        if error.filename is None:
            raise
        _hide_traceback()
        raise cursus_error(
            "IO",
            f"The operating system refused {shown(error.filename)}: {error.strerror} (errno "
            f"{error.errno}). Check that it exists and that this user may use it.",
        ) from None


def python_unusable(python: str, why: str, better: str | None = None) -> CursusError:
    """The error for a Python that Spark starts; ``better`` is one that can do what it cannot."""
    named = "PYSPARK_PYTHON" in os.environ
    return cursus_error(
        "PYTHON_UNUSABLE",
        f"Spark runs tasks with '{python}'"
        f"{'' if named else ', because PYSPARK_PYTHON is not set'}, which {why}. Set "
        f"PYSPARK_PYTHON{f'={better}' if better else ' to a Python that has all'} before Spark "
        "starts, or install cursus-spark there.",
    )


def _hide_traceback() -> None:
    # Spark's worker reads the variable when it reports the exception, and exits after that. In any
    # other process the variable would stay set after the error.
    if is_worker():
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"


def is_worker() -> bool:
    """Whether this process runs tasks or plans for Spark. PySpark 4.1 sets no variable for it."""
    if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
        return True
    program = getattr(sys.modules.get("__main__"), "__spec__", None)
    return program is not None and program.name.startswith("pyspark.")


def _rebuild(text: str) -> CursusError:
    return CursusError(text)
