"""storage_core: a durable, partitioned commit log in a directory. No broker, no server."""

from ._version import __version__
from .columns import Columns, make_columns
from .committer import CommitResult
from .config import StoreConfig
from .conversion_progress import Progress
from .convert import Converted, convert
from .errors import (
    CommitUnknownError,
    DataLossError,
    LayoutNotFoundError,
    PartitionNotFoundError,
    StorageError,
    TopicNotFoundError,
)
from .handler import DiskHandler, ReadResult
from .manager import DiskManager
from .partitioner import NO_KEY, partition_for_keys
from .records import OffsetRange, Problem, RecoveryReport, SegmentInfo
from .spread import use_processors
from .staging import Stage, StagedPart
from .store import Store
from .topicfile import TopicFile
from .upkeep import UpkeepProgress, UpkeepReport

__all__ = [
    "Columns",
    "CommitResult",
    "CommitUnknownError",
    "Converted",
    "DataLossError",
    "DiskHandler",
    "DiskManager",
    "LayoutNotFoundError",
    "NO_KEY",
    "OffsetRange",
    "PartitionNotFoundError",
    "Problem",
    "Progress",
    "ReadResult",
    "RecoveryReport",
    "SegmentInfo",
    "Stage",
    "StagedPart",
    "StorageError",
    "Store",
    "StoreConfig",
    "TopicFile",
    "TopicNotFoundError",
    "UpkeepProgress",
    "UpkeepReport",
    "__version__",
    "convert",
    "make_columns",
    "partition_for_keys",
    "use_processors",
]
