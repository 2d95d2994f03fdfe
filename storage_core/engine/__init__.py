"""What a kind of log directory offers to the store, and the choice of it by what is on disk."""
