"""The Structured Streaming source and sink."""
