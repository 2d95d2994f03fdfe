"""Maintenance of stores of objects: each operation ends in one commit."""
