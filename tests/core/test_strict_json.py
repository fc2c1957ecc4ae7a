"""JSON that the standard does not know, or that no honest file holds, is refused with a reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opera.core.reading import parse_json, read_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES, st.booleans())
def test_json_is_read(value: object, ascii_only: bool) -> None:
    assert parse_json(json.dumps(value, ensure_ascii=ascii_only)) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", r"not JSON \(Expecting value at column 1\)"),
        ("\t\t", r"not JSON \(Expecting value at column 3\)"),
        ('{"a":\n oops}', r"not JSON \(Expecting value at line 2, column 2\)"),
        ('{"a": 1, "b": 2, "a": 1}', "the key 'a' occurs twice"),
        ('[{"x": {"a": 1, "a": 2}}]', "the key 'a' occurs twice"),
        ("NaN", "holds NaN, which is no number of JSON"),
        ("[-Infinity]", "holds -Infinity, which is no number of JSON"),
        ("[1e999]", "holds the number 1e999, which is too large"),
        ("9" * 5000, "holds a whole number of 5,000 digits; at most 1,000 are read"),
        ('["\\ud83d"]', r"holds half a character \('\\ud83d'\); remove it"),
        ('{"\\udc00": 1}', r"holds half a character \('\\udc00'\); remove it"),
        ("[" * 101 + "]" * 101, "nested more than 100 deep"),
        ("[" * 2000 + "]" * 2000, "nested more than 100 deep"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested more than 100 deep"),
    ],
    ids=lambda value: value[:20],
)
def test_the_rest_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}$"):
        parse_json(text)


def test_what_looks_alike_is_read() -> None:
    assert parse_json("[" * 100 + "]" * 100)
    assert parse_json('"' + "[" * 500 + '"') == "[" * 500
    assert parse_json('"\\ud83d\\ude00"') == "\U0001f600"
    assert parse_json(json.dumps("NaN")) == "NaN"


def test_a_file_may_start_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('\ufeff{"a": 1}', encoding="utf-8")
    assert read_json(path) == {"a": 1}
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(ValueError, match=r"^line 1 is not UTF-8"):
        read_json(path)
