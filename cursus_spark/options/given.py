"""The options of one query by their names in the table, unknown ones refused.

Spark's keys come in any case, mostly lower; messages show the names of the table. An option that
means nothing in a query is ignored with a warning, as the Kafka source does: a temporary view is
read and written with the same options.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import CursusError, cursus_error, shown
from .offsets import load_json
from .table import BY_LOWER_NAME, Use, options_for

# What Spark itself puts beside the user's options; the second line only in CREATE TABLE.
_SPARK_KEYS = frozenset(
    "paths checkpointlocation queryname "
    "provider owner location comment collation external is_managed_location".split()
)
_INSERT_HINT = (
    " (Options given in CREATE TABLE do not reach INSERT; use INSERT INTO t WITH "
    "(path = '...', topic = '...').)"
)
_SELECT_HINT = " For a catalog table: SELECT ... FROM t WITH (path = '...', subscribe = '...')."

_log = logging.getLogger(__name__)


class GivenOptions:
    """The options of one query by their names in the table."""

    def __init__(self, raw: Mapping[str, str], use: Use, elsewhere: tuple[str, ...] = ()) -> None:
        check_known(raw, use)
        self.use = use
        self._texts = {}
        for key, text in raw.items():
            option = BY_LOWER_NAME.get(key.lower())
            if option is None or text is None:
                continue
            if use in option.uses or option.name in elsewhere:
                self._texts[option.name] = str(text)
            else:
                places = " and ".join(option.uses)
                _log.warning("Option '%s' is ignored: it is for %s.", option.name, places)
        self._take_paths(raw)

    def __contains__(self, name: str) -> bool:
        return name in self._texts

    def text(self, name: str) -> str:
        """The text of an option that was given."""
        return self._texts[name]

    def value(self, name: str, default: Any = None) -> Any:
        """The parsed value of an option, or the default."""
        if name not in self._texts:
            return default
        return BY_LOWER_NAME[name.lower()].parse(name, self._texts[name])

    def path(self) -> str:
        """The directory of the log, which every query needs."""
        if "path" not in self._texts:
            writing = "write" in self.use
            verb = "save" if self.use == "write" else "start" if writing else "load"
            hint = _INSERT_HINT if writing else _SELECT_HINT
            raise cursus_error(
                "OPTION_MISSING",
                f"Option 'path' must be specified: the directory of the log. Use .{verb}"
                f'("/data/log") or .option("path", "/data/log").{hint}',
            )
        return str(self.value("path"))

    def _take_paths(self, raw: Mapping[str, str]) -> None:
        # load([...]) arrives as JSON under another key.
        found = [text for key, text in raw.items() if key.lower() == "paths"]
        if not found:
            return
        try:
            paths = load_json(found[0])
        except ValueError:
            paths = []
        if not isinstance(paths, list) or len(paths) != 1 or not isinstance(paths[0], str):
            raise cursus_error(
                "OPTION_INVALID",
                f"A cursus query reads one directory, got {shown(found[0])}. Use union for more.",
            )
        self._texts["path"] = paths[0]


def check_known(raw: Mapping[str, str], use: Use) -> None:
    """Refuse keys that are neither ours nor Spark's own, with the nearest name as a hint.

    Args:
        raw: All options, with keys in any case.
        use: What they are for, to suggest only names that would mean something.
    """
    keys = {key.lower() for key in raw}
    for key in raw:
        lower = key.lower()
        if lower in BY_LOWER_NAME or lower in _SPARK_KEYS or lower.startswith("option."):
            continue
        # In CREATE TABLE each option has a twin; what has none is from TBLPROPERTIES.
        if "provider" in keys and f"option.{lower}" not in keys:
            continue
        raise _unknown(key, [option.name for option in options_for(use)])


def _unknown(key: str, names: Iterable[str]) -> CursusError:
    spelled = {name.lower(): name for name in names}
    near = difflib.get_close_matches(key.lower(), spelled, n=1)
    if key.lower().startswith("kafka."):
        hint = "There is no broker: set 'path' to the directory of the log."
    elif near:
        hint = f"Did you mean '{spelled[near[0]]}'?"
    else:
        hint = f"Known options: {', '.join(spelled.values())}."
    return cursus_error("OPTION_UNKNOWN", f"Unknown option '{key}'. {hint}")
