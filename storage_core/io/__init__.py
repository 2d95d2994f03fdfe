"""Files that survive a crash between any two steps: durable writes, locks, errors, small caches."""
