"""Stores made of objects: in an object store, or in a directory without trusted locks."""
