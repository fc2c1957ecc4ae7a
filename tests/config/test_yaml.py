"""Recipes and ``--set`` read YAML 1.2: no base-60 numbers, no booleans but true and false."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from opera.config.yaml import parse_assignments, parse_scalar, read_recipe
from opera.core.errors import SettingError
from opera.core.terminal import shortened


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10:50", "10:50"),
        ("1e-6", 1e-6),
        ("1.5", 1.5),
        ("5", 5),
        ("010", 10),
        ("true", True),
        ("on", "on"),
        ("no", "no"),
        ("null", None),
        ("", None),
        ("[1", "[1"),
        ("'5'", "5"),
        ("2024-01-01", "2024-01-01"),
        ("2024-13-45", "2024-13-45"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_scalars(text: str, value: object) -> None:
    assert parse_scalar(text) == value
    assert type(parse_scalar(text)) is type(value)


def test_an_assignment_keeps_what_follows_the_first_equals_sign() -> None:
    assert parse_assignments(["report_to=a=b", " seed = 2"]) == {"report_to": "a=b", "seed": 2}


def test_a_name_given_twice_in_a_recipe_is_refused(tmp_path: Path) -> None:
    (tmp_path / "twice.yaml").write_text("lag: 1\nlag: 2\n")
    with pytest.raises(SettingError, match=r"twice\.yaml: not YAML"):
        read_recipe(tmp_path / "twice.yaml")


REFUSED = {
    "not YAML (line 3: expected": "a: 1\nb: [1\nc: 2\n",
    "must map setting names to values, got [1]": "[1]",
    "must map setting names to values, got None": "",
    "names of settings must be text, got 7": "7: 1",
    "keys must be plain values, and one is a list or a mapping": "? [{a: 1}]\n: 1\n",
    "line 1: tags such as !!int are not read": "lag: !!int x",
    "line 2: tags such as !!int are not read": "a: 1\nlag: !!set {a, b}",
    "line 1: anchors and aliases (& and *) are not read": "a: &x [1]\nb: [*x, *x]",
    "line 2: nested more than 20 deep": "a:\n " + "[" * 2000,
    "holds a number that is none, or one of more than 1,024 bits": "lag: 0x" + "f" * 5000,
    "line 2: must be YAML 1.2": "%YAML 1.1\n---\nlag: on",
    "has 20,001 characters; at most 20,000 are read": "#" * 20_001,
    "holds a number that is none": "lag: " + "9" * 5000,
}


@pytest.mark.parametrize("reason", list(REFUSED))
def test_a_recipe_holds_plain_values_alone(reason: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(REFUSED[reason])
    with pytest.raises(SettingError) as caught:
        read_recipe(tmp_path / "recipe.yaml")
    assert str(caught.value).startswith(f"--config {shortened(str(tmp_path / 'recipe.yaml'))}: {reason}")


def test_an_alias_that_stands_for_a_billion_values_is_refused_at_once(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30))]
    (tmp_path / "bomb.yaml").write_text("\n".join(lines))
    with pytest.raises(SettingError, match="line 1: anchors and aliases"):
        read_recipe(tmp_path / "bomb.yaml")
    assert parse_scalar(f"[{lines[0][4:]}, *a0]") == f"[{lines[0][4:]}, *a0]"


def test_a_recipe_is_a_file_in_utf8_with_or_without_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_bytes("\ufefflag: 2\r\nmethod: 'aé'\r\n".encode())
    assert read_recipe(path) == {"lag": 2, "method": "aé"}
    path.write_bytes(b"lag: 2\nmethod: \xe9\n")
    with pytest.raises(SettingError, match=r"recipe\.yaml: line 2 is not UTF-8"):
        read_recipe(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(SettingError, match=r"recipe\.yaml: cannot be read \(it is a named pipe\)"):
        read_recipe(path)
