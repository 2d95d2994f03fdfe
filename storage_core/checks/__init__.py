"""Looking at a store without changing it: every problem, every frame and index entry."""
