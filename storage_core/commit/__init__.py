"""Commits: staged records of many tasks become visible in one step or not at all."""
