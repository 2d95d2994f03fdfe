"""Single records in, futures of offsets out: handlers of topic-partitions."""
