"""The engine of a log directory: everything that ``Store`` needs of one layout."""
