"""Retention, compaction, merge, recompress, scrub: what happens to sealed segments."""
