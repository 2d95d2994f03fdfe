"""Commands that show what is in a store and change nothing."""
