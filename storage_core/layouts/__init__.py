"""The kinds of log directory, and how each is recognised."""
