"""Small inputs of every format are loaded as ``golden.json`` has them."""

import json

import pytest

from data import golden

EXPECTED = json.loads(golden.GOLDEN.read_text(encoding="utf-8"))


@pytest.mark.usefixtures("irds")
@pytest.mark.parametrize("name", golden.CASES)
def test_a_case_is_loaded_as_before(name):
    assert golden.outcome(name) == EXPECTED[name]
