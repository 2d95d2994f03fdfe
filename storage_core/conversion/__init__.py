"""Copying a log directory into any layout that can store its records."""
