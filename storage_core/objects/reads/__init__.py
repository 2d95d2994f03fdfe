"""How reads of a store of objects cost few requests."""
