"""A run in five steps: check, prepare, train, choose, write."""
