"""The segment files of one partition: listed, appended to, sealed, read and truncated."""
