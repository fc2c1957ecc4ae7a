"""The fixtures of the product's tests, for these too."""

from conftest import _libraries_are_not_garbage, _own_cache, beir, static_model

__all__ = ["_libraries_are_not_garbage", "_own_cache", "beir", "static_model"]
