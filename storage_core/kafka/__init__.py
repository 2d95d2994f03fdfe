"""The log directories of a Kafka broker, which are only read."""
