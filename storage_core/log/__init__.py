"""The writing side of one partition: lock, recover, append, sync, publish."""
