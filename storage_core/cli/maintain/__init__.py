"""Commands that check, repair, rewrite or delete."""
