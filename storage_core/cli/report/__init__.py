"""``report``: one page about a store."""
