"""Copying a log directory of any layout into any other that can hold it."""
