"""Recipes and ``--set`` read YAML 1.2: no base-60 numbers, no booleans but true and false."""

import pytest

from opera.config.yaml import parse_assignments, parse_scalar


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10:50", "10:50"), ("1e-6", 1e-6), ("5", 5), ("010", 10), ("true", True), ("on", "on"), ("null", None),
        ("", None), ("[1", "[1"), ("'5'", "5"), ("2024-01-01", "2024-01-01"),
    ],
)  # fmt: skip
def test_scalars(text, value):
    assert parse_scalar(text) == value
    assert type(parse_scalar(text)) is type(value)


def test_an_assignment_keeps_what_follows_the_first_equals_sign():
    assert parse_assignments(["report_to=a=b", " seed = 2"]) == {"report_to": "a=b", "seed": 2}
