"""The brokers' rows and messages, many at a time with numpy."""
