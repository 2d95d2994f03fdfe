"""Batch writes: rows to topic-partitions, staged by tasks, committed by the driver."""
