"""Manifests: lists of the older slices of a log, so that a reader loads only those it needs."""
