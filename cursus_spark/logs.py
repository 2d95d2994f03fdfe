"""The logger of the connector. Its lines have time, level and name even if nobody set up logging.

Spark's Python workers set up no logging. Python then prints the bare text of a warning, among the
lines of other programs. ``CURSUS_LOG_LEVEL`` is the lowest level that is printed there.
"""

from __future__ import annotations

import logging
import os
import sys

_NAMES = ("cursus_spark", "storage_core")
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _WithoutSetup(logging.Handler):
    """Prints to stderr, as Python does, as long as no other handler takes the record."""

    def emit(self, record: logging.LogRecord) -> None:
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            if any(not isinstance(handler, _WithoutSetup) for handler in logger.handlers):
                return
            logger = logger.parent if logger.propagate else None
        sys.stderr.write(self.format(record) + "\n")


def logger() -> logging.Logger:
    """The logger of the connector; that of the engine has the same format in Spark's processes."""
    for name in _NAMES:
        found = logging.getLogger(name)
        if not any(isinstance(handler, _WithoutSetup) for handler in found.handlers):
            level = _level()
            handler = _WithoutSetup(level)
            if level < logging.WARNING:
                found.setLevel(level)
            handler.setFormatter(logging.Formatter(_FORMAT))
            found.addHandler(handler)
    return logging.getLogger(_NAMES[0])


def _level() -> int:
    """WARNING, unless the environment names another level."""
    found = logging.getLevelName(os.environ.get("CURSUS_LOG_LEVEL", "").strip().upper())
    return found if isinstance(found, int) else logging.WARNING
