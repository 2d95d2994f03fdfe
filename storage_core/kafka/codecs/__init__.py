"""Kafka's record batches, indexes and checkpoint files: bytes to values, many at a time."""
