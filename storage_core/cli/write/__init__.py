"""Commands that write topics, records, consumer offsets or a new store."""
