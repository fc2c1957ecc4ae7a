"""``python:PACKAGE``: queries and documents from source code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from opera.core.errors import DataError
from opera.data import load_data, load_python

MODULE = '''
def area(radius):
    """Compute the area of a circle.

    The radius must not be negative.
    """
    return 3.14159 * radius * radius  # {name}


class Shape:
    """Anything that has an outline {name}.

    Sides are counted clockwise.
    """

    sides = 4  # {name}

    def grow(self, factor):
        """Make the shape larger by a factor {name}."""
        self.sides = self.sides * factor
        return self.sides, factor, "grown {name}"
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    home = tmp_path / "tinyshapes"
    home.mkdir()
    for name in ("__init__", "one", "two", "three"):
        (home / f"{name}.py").write_text(MODULE.format(name=name))
    monkeypatch.syspath_prepend(str(tmp_path))
    return "tinyshapes"


def test_queries_are_summaries_and_documents_hide_them(package: str) -> None:
    data = load_data(f"python:{package}")
    queries = dict(zip(data.queries.ids(), data.queries.texts(), strict=True))
    assert queries["tinyshapes.one.Shape.grow"] == "Make the shape larger by a factor one."
    assert "tinyshapes.one.area" not in queries  # every module has the same summary: it says nothing
    chunks = dict(zip(data.corpus.ids(), data.corpus.texts(), strict=True))
    shape = chunks["tinyshapes.one.Shape#0"]
    assert "Sides are counted clockwise." in shape
    assert "outline" not in shape
    assert "def grow" not in shape  # a member with a docstring is an object of its own
    assert 'return self.sides, factor, "grown one"' in chunks["tinyshapes.one.Shape.grow#0"]


def test_train_and_test_come_from_different_modules() -> None:
    data = load_python("opera", seed=3)
    modules = {}
    for split in ("train", "test"):
        ids = data.queries.ids(data.split(split).query_rows)
        modules[split] = {module_of(identifier) for identifier in ids}
    assert modules["train"]
    assert modules["test"]
    assert not modules["train"] & modules["test"]


@pytest.mark.parametrize("package", ["json", "opera", "stdlib"])
def test_ids_are_unique_even_where_names_are_not(package: str) -> None:
    data = load_python(package, train_queries=300, test_queries=60)
    for table in (data.corpus, data.queries):
        assert len(set(table.ids())) == len(table)


def test_limits_and_seed() -> None:
    data = load_python("opera", seed=1, train_queries=30, test_queries=10)
    assert data.split("train").n_queries == 30
    assert data.split("test").n_queries == 10
    assert data.fingerprint == load_python("opera", seed=1, train_queries=30, test_queries=10).fingerprint
    assert data.fingerprint != load_python("opera", seed=2, train_queries=30, test_queries=10).fingerprint


def test_nothing_is_imported() -> None:
    code = (
        "import sys, opera.data; opera.data.load_data('python:opera')\nassert 'opera.training.adapt' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_absent_and_tiny_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="no installed package of that name"):
        load_data("python:no_such_package_here")
    (tmp_path / "lonely.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(DataError, match="at least 2 modules are needed"):
        load_data("python:lonely")


def module_of(identifier: str) -> str:
    """Find the module of an object by the file that exists."""
    import opera

    parts = identifier.split(".")
    for end in range(len(parts), 0, -1):
        place = Path(opera.__file__).parent.joinpath(*parts[1:end])
        if place.with_suffix(".py").is_file() or (place / "__init__.py").is_file():
            return ".".join(parts[:end])
    raise AssertionError(identifier)
