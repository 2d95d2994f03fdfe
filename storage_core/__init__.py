"""storage_core: a durable, partitioned commit log in a directory. No broker, no server."""

from ._version import __version__
from .config import StoreConfig
from .errors import StorageError
from .handler import DiskHandler, ReadResult
from .manager import DiskManager
from .records import OffsetRange, Problem, RecoveryReport, SegmentInfo
from .store import Store

__all__ = [
    "DiskHandler",
    "DiskManager",
    "OffsetRange",
    "Problem",
    "ReadResult",
    "RecoveryReport",
    "SegmentInfo",
    "StorageError",
    "Store",
    "StoreConfig",
    "__version__",
]
