"""Commands that keep a store healthy and small: check, repair, retention, segment rewrites."""
