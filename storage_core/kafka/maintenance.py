"""The maintenance of one Kafka partition: its bytes are verified, and nothing is changed."""

from __future__ import annotations

from typing import NoReturn

from ..config import StoreConfig
from ..errors import ConfigError, StorageError
from ..maintenance.partition import FileMaintenance
from ..maintenance.report import Pace, UpkeepReport
from ..segments.listing import Listing
from ..segments.sealed import Sealed
from ..types import Problem
from .checkpoints import PartitionFiles
from .checks import verify
from .segments import KafkaSegments


class KafkaMaintenance(FileMaintenance):
    """One partition."""

    def __init__(
        self, of: PartitionFiles, config: StoreConfig, segments: KafkaSegments, topic_uuid: str
    ) -> None:
        super().__init__(of.vfs, of.topic, of.partition, config, topic_uuid)
        self._of = of
        self._segments = segments

    def listing(self) -> Listing:
        return self._segments.listing()

    def high_watermark(self) -> int:
        return self._segments.high_watermark()

    def largest_timestamp(self, base: int, path: str) -> int:  # noqa: ARG002
        return self._segments.time_bounds(base, self.listing()).largest

    def problems(self, segment: Sealed, pace: Pace) -> tuple[Problem, ...]:
        """Checksums, offsets and fields of all batches."""
        try:
            verify(self._of, self._segments, segment.base, self.listing())
        except StorageError as error:
            return (Problem.from_error(error),)
        finally:
            pace.advance(segment.size)
        return ()

    def require_deletable(self) -> None:
        self._refuse("retention and kafka-delete-records")

    def expired(self, keep_from: int | None) -> NoReturn:  # noqa: ARG002
        self._refuse("retention")

    def retain(self, keep_from: int | None) -> NoReturn:  # noqa: ARG002
        self._refuse("retention")

    def planned_deletion(self, offset: int, end: int, pace: Pace) -> NoReturn:  # noqa: ARG002
        self._refuse("kafka-delete-records")

    def delete_before(self, offset: int, pace: Pace) -> NoReturn:  # noqa: ARG002
        self._refuse("kafka-delete-records")

    def compact(self, pace: Pace, **asked: object) -> NoReturn:  # noqa: ARG002
        self._refuse("the log cleaner")

    def merge(self, pace: Pace, **asked: object) -> UpkeepReport:  # noqa: ARG002
        self._refuse("its own rolling of segments")

    def recompress(self, pace: Pace, **asked: object) -> UpkeepReport:  # noqa: ARG002
        self._refuse("the topic's compression.type")

    def _refuse(self, instead: str) -> NoReturn:
        raise ConfigError(
            f"layout kafka is only read: a Kafka broker changes its files by itself, by {instead}. "
            "Convert the directory to a native store to maintain it here."
        )
