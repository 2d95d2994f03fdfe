"""The options of a query: one table, parsed once on the driver."""
