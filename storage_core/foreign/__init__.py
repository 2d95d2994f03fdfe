"""The brokers' log directories: cursus and RustLog, read as they are and appended to."""

from .engine import ForeignEngine
from .isolation import IsolationLevel
from .recognise import LOOKED_FOR, find_layout, recognise_foreign

__all__ = [
    "ForeignEngine",
    "IsolationLevel",
    "LOOKED_FOR",
    "find_layout",
    "recognise_foreign",
]
