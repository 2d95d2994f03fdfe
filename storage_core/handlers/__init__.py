"""Handlers of topic-partitions: they take single records and return futures of offsets."""
