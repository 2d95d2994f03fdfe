"""File operations that survive a crash between any two steps; locks, I/O errors, caches."""
