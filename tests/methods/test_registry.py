"""The registry of methods: canonical names, found in any case."""

from __future__ import annotations

import pytest

from opera.methods import METHODS, method_named


@pytest.mark.parametrize("name", METHODS)
def test_names_are_found_in_any_case(name: str) -> None:
    assert method_named(name.upper()) is method_named(name.title()) is METHODS[name]
    assert METHODS[name].name == name
