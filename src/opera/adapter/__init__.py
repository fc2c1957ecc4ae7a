"""Adapters: a projection of frozen vectors, trained instead of the model."""
