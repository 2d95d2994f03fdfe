"""The options of a streaming read as typed values: those of a batch read, and some more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .read_options import ReadOptions

EvolutionMode = Literal["ignore", "fail"]

DEFAULT_MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000
DEFAULT_INLINE_BATCH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReadOptions(ReadOptions):
    """Options of a streaming read; ``ending`` is always latest."""

    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = DEFAULT_MAX_TRIGGER_DELAY_MS
    inline_batch_bytes: int = DEFAULT_INLINE_BATCH_BYTES
    consumer_group: str | None = None
    schema_evolution_mode: EvolutionMode = "ignore"
