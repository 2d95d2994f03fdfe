"""The public ``Store``."""
