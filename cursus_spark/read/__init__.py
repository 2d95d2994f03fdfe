"""Batch reads: ranges, splits per segment, tasks."""
