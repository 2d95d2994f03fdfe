"""Bytes on disk: records as columns, frames, sparse indexes, file names, the lock word."""
