"""The names that an option may have, and the error that lists all others with our equivalents."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from ..errors import CursusError, cursus_error
from .table import BY_LOWER_NAME, Use, options_for

# Options that Spark adds to the user's options; the second line only in CREATE TABLE.
_SPARK_KEYS = frozenset(
    "paths checkpointlocation queryname "
    "provider owner location comment collation external is_managed_location".split()
)
STORAGE = "storage."
"""The rest of such a name is an option of an object store."""
_NO_BROKER = "There is no broker: set 'path' to the directory of the log."
_NO_CONNECTION = "There is no broker to connect to: remove it. Permissions of files protect a log."
_GROUP = "Use 'consumerGroup', in a stream."
_ONCE = "Use 'txnAppId' with 'txnVersion'; a stream needs none of them."
_KAFKA_HINTS: Mapping[str, str] = {
    "kafka.bootstrap.servers": _NO_BROKER,
    "kafka.group.id": _GROUP,
    "groupIdPrefix": _GROUP,
    "kafka.isolation.level": "Use 'isolation'.",
    "kafka.auto.offset.reset": "Use 'startingOffsets'.",
    "kafka.enable.auto.commit": "A stream with 'consumerGroup' commits every batch: remove it.",
    "kafka.max.poll.records": "Use 'maxOffsetsPerTrigger' or 'maxRecordsPerPartition'.",
    "kafka.fetch.max.bytes": "Use 'maxBytesPerTrigger' or 'maxBytesPerPartition'.",
    "kafka.max.partition.fetch.bytes": "Use 'maxBytesPerPartition'.",
    "kafka.compression.type": "Use 'compression'.",
    "kafka.partitioner.class": "Use 'partitioner'.",
    "kafka.enable.idempotence": _ONCE,
    "kafka.transactional.id": _ONCE,
    "kafka.acks": "There are no replicas to wait for: remove it.",
    "kafkaConsumer.pollTimeoutMs": _NO_BROKER,
    "fetchOffset.numRetries": _NO_BROKER,
    "fetchOffset.retryIntervalMs": _NO_BROKER,
}
# Spark passes keys in lower case; messages show the name as Kafka's documentation has it.
_KAFKA_NAMES = {name.lower(): name for name in _KAFKA_HINTS}


def check_known(raw: Mapping[str, str], *uses: Use) -> None:
    """Refuse keys that are not options. One error lists all of them and suggests other names.

    Args:
        raw: All options, with keys in any case.
        uses: The kinds of query; the error suggests options of these kinds only.
    """
    keys = {key.lower() for key in raw}
    unknown = []
    for key in raw:
        lower = key.lower()
        if lower in BY_LOWER_NAME or lower in _SPARK_KEYS:
            continue
        if lower.startswith(("option.", STORAGE)):
            continue
        # In CREATE TABLE each option also has a key option.<name>; TBLPROPERTIES have none.
        if "provider" in keys and f"option.{lower}" not in keys:
            continue
        unknown.append(key)
    if unknown:
        raise _unknown_error(unknown, [option.name for option in options_for(*uses)])


def _unknown_error(keys: list[str], names: list[str]) -> CursusError:
    hints = {_spelled(key): _hint(key, names) for key in keys}
    listed = f"Known options: {', '.join(names)}."
    if len(hints) == 1:
        ((name, hint),) = hints.items()
        return cursus_error("OPTION_UNKNOWN", f"Unknown option '{name}'. {hint or listed}")
    parts = [f"Unknown options {', '.join(map(repr, hints))}."]
    parts += [f"'{name}': {hint}" for name, hint in hints.items() if hint]
    parts += [] if all(hints.values()) else [listed]
    return cursus_error("OPTION_UNKNOWN", " ".join(parts))


def _spelled(key: str) -> str:
    return _KAFKA_NAMES.get(key, key)


def _hint(key: str, names: list[str]) -> str | None:
    lower = key.lower()
    known = _KAFKA_HINTS.get(_KAFKA_NAMES.get(lower, ""))
    if known:
        return known
    if lower.startswith(("kafka.security.", "kafka.ssl.", "kafka.sasl.")):
        return _NO_CONNECTION
    if lower.startswith("kafka."):
        return _NO_BROKER
    spelled = {name.lower(): name for name in names}
    near = difflib.get_close_matches(lower, spelled, n=1)
    return f"Did you mean '{spelled[near[0]]}'?" if near else None
