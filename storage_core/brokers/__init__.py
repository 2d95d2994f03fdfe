"""The log directories of existing brokers (cursus, RustLog): read as they are, appended to."""
