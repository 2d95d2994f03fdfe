"""The one error of the connector, and how errors of the engine become it.

Spark prints the text of a Python exception inside its own. A user who mistyped an option wants one
line there, not a traceback through our code; a bug wants its traceback. So what a user can cause is
a ``CursusError`` of the form ``[CURSUS_<CONDITION>] <what>. <what to do>.``, and all else is left
alone. A file that the operating system refuses is of the first kind.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from storage_core import StorageError

_SHOWN_CHARACTERS = 200


class CursusError(Exception):
    """What a user can cause and put right, in one line that starts with its condition."""

    # Python prints the module before the name of every class but those of builtins.
    __module__ = "builtins"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle through a function, because the class is not found where it says it is."""
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
    """A user's value in quotes, cut to a readable length and free of control characters."""
    text = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(value)
    )
    if len(text) > _SHOWN_CHARACTERS:
        text = text[:_SHOWN_CHARACTERS] + "…"
    return f"'{text}'"


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn errors of the engine into one-line errors; a context manager, and so a decorator.

    In a generator use it inside, with ``with``: a decorator would only see the generator made.
    """
    try:
        yield
    except CursusError:
        _hide_traceback()
        raise
    except StorageError as error:
        _hide_traceback()
        raise cursus_error(error.code, str(error)) from None
    except OSError as error:
        if error.filename is None:
            raise
        _hide_traceback()
        raise cursus_error(
            "IO",
            f"The operating system refused {shown(error.filename)}: {error.strerror} (errno "
            f"{error.errno}). Check that it exists and that this user may use it.",
        ) from None


def _hide_traceback() -> None:
    # Read by the worker when it reports the exception. It exits after that, so nothing leaks into
    # the next task; anywhere else the variable would outlive the error.
    if _is_worker():
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"


def _is_worker() -> bool:
    """Whether this process runs tasks or plans for Spark. PySpark 4.1 does not say it outright."""
    if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
        return True
    program = getattr(sys.modules.get("__main__"), "__spec__", None)
    return program is not None and program.name.startswith("pyspark.")


def _rebuild(text: str) -> CursusError:
    return CursusError(text)
