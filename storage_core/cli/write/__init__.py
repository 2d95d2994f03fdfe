"""Commands that add topics, records or offsets."""
