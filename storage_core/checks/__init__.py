"""Every problem of a store, and every index entry of a segment; changes nothing."""
