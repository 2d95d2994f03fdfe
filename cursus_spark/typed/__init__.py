"""Typed topics: Spark's types and the columns of a topic, in both directions."""
