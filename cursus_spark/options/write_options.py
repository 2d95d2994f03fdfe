"""The options of a write as typed values: the driver parses them, every Spark task gets them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

TxnMode = Literal["last", "exact"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWriteOptions:
    """Options of a streaming write; a batch write has them too.

    With ``num_partitions`` None a new topic gets one partition, and an existing topic may have any
    number. ``typed`` None lets the rows decide what a new topic is.
    """

    path: str
    storage: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    topic: str | None = None
    layout: str = "auto"
    create_topic: bool = True
    num_partitions: int | None = None
    compression: str | None = None
    typed: bool | None = None
    key_columns: tuple[str, ...] | None = None
    timestamp_column: str | None = None
    merge_schema: bool = False
    type_widening: bool = False
    txn_app_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(StreamWriteOptions):
    """Options of a batch write; ``txn_app_id`` and ``txn_version`` are both set or both None."""

    txn_version: int | None = None
    txn_mode: TxnMode = "last"
