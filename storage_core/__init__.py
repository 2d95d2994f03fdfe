"""storage_core: a durable, partitioned commit log in a directory. No broker, no server."""

from typing import TYPE_CHECKING

from ._version import __version__
from .lazy import lazy_names

if TYPE_CHECKING:
    from .commit.protocol import CommitResult
    from .commit.staging import Stage, StagedPart
    from .config import CODECS, StoreConfig
    from .conversion.convert import Converted, convert
    from .conversion.progress import Progress
    from .errors import (
        CommitUnknownError,
        DataLossError,
        LayoutNotFoundError,
        PartitionNotFoundError,
        StorageError,
        TopicNotFoundError,
    )
    from .format.columns import Columns, make_columns
    from .format.partitioner import NO_KEY, partition_for_keys
    from .handlers.disk_handler import DiskHandler, ReadResult
    from .handlers.disk_manager import DiskManager
    from .io.parallel import use_processors
    from .layouts.registry import LAYOUT_NAMES
    from .maintenance.report import UpkeepProgress, UpkeepReport
    from .metadata.topic_file import TopicFile
    from .schema.fields import Field, SchemaVersion
    from .store.store import Store
    from .types import OffsetRange, Problem, RecoveryReport, SegmentInfo, TimeRange
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "commit.protocol": "CommitResult",
            "commit.staging": "Stage StagedPart",
            "config": "CODECS StoreConfig",
            "conversion.convert": "Converted convert",
            "conversion.progress": "Progress",
            "errors": "CommitUnknownError DataLossError LayoutNotFoundError "
            "PartitionNotFoundError StorageError TopicNotFoundError",
            "format.columns": "Columns make_columns",
            "format.partitioner": "NO_KEY partition_for_keys",
            "handlers.disk_handler": "DiskHandler ReadResult",
            "handlers.disk_manager": "DiskManager",
            "io.parallel": "use_processors",
            "layouts.registry": "LAYOUT_NAMES",
            "maintenance.report": "UpkeepProgress UpkeepReport",
            "metadata.topic_file": "TopicFile",
            "schema.fields": "Field SchemaVersion",
            "store.store": "Store",
            "types": "OffsetRange Problem RecoveryReport SegmentInfo TimeRange",
        },
    )

__all__ = [
    "CODECS",
    "Columns",
    "CommitResult",
    "CommitUnknownError",
    "Converted",
    "DataLossError",
    "DiskHandler",
    "DiskManager",
    "Field",
    "LAYOUT_NAMES",
    "LayoutNotFoundError",
    "NO_KEY",
    "OffsetRange",
    "PartitionNotFoundError",
    "Problem",
    "Progress",
    "ReadResult",
    "RecoveryReport",
    "SchemaVersion",
    "SegmentInfo",
    "Stage",
    "StagedPart",
    "StorageError",
    "Store",
    "StoreConfig",
    "TimeRange",
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
