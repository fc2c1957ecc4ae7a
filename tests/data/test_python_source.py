"""``python:PACKAGE``: queries and documents from source code."""

from __future__ import annotations

import os
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


def test_limits_seed_and_splits() -> None:
    """Train and test come from different modules; ids are unique where names are not."""
    first, again, other = (load_python("email", seed=seed, train_queries=30, test_queries=10) for seed in (1, 1, 2))
    assert first.fingerprint == again.fingerprint != other.fingerprint
    assert [first.split(split).n_queries for split in ("train", "test")] == [30, 10]
    whole = load_python("email")
    files = {name: {identifier.split(".")[1] for identifier in whole.queries.ids(whole.split(name).query_rows)}
             for name in ("train", "test")}  # fmt: skip
    assert not files["train"] - {"mime"} & files["test"] - {"mime"}
    for table in (whole.corpus, whole.queries):
        assert len(set(table.ids())) == len(table)


@pytest.mark.parametrize("installed", ["editable", "namespace"])
def test_nothing_of_a_package_runs(installed: str, tmp_path: Path) -> None:
    """Neither the package, nor its parents, as importing would; the code runs in a process that has imported none."""
    inner = tmp_path / "home" / "outer" / "middle" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent, inner.parent.parent):
        for name in ("__init__", "one", "two"):
            text = MODULE.format(name=f"{folder.name}{name}") + f"\nopen({str(tmp_path / 'ran')!r}, 'w')\n"
            (folder / f"{name}.py").write_text(text)
    if installed == "namespace":
        (inner.parent / "__init__.py").unlink()
        (inner.parent.parent / "__init__.py").unlink()
    finder = f"""
class Editable:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == "outer":
            return spec_from_file_location(name, {str(inner.parents[1] / "__init__.py")!r})
sys.meta_path.append(Editable)
"""
    code = (
        "import sys\nfrom importlib.util import spec_from_file_location\n"
        + (finder if installed == "editable" else f"sys.path.insert(0, {str(tmp_path / 'home')!r})\n")
        + "import opera.data\n"
        "for name in ('outer', 'outer.middle', 'outer.middle.inner'):\n"
        "    assert 'inner.one.Shape' in str(opera.data.load_data(f'python:{name}').corpus.ids())\n"
        "assert not [name for name in sys.modules if name.startswith('outer')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert not (tmp_path / "ran").exists()


def test_files_that_cannot_be_read_are_noted(package: str, tmp_path: Path) -> None:
    home = tmp_path / package
    (home / "latin.py").write_bytes(b"x = 'caf\xe9'\n")
    (home / "deep.py").write_text("x = " + "(" * 5000 + ")" * 5000)
    (home / "elif.py").write_text("if x: pass\n" + "elif x: pass\n" * 3000)
    (home / "nul.py").write_bytes(b"x = '\0'\n")
    (home / "loop.py").symlink_to("loop.py")
    (home / "folder.py").mkdir()
    (home / "half.py").write_text(
        "def f(x):\n    'Say half \\ud83d of a thing'\n    return 'of more than 40 characters, ' * x"
    )
    os.mkfifo(home / "pipe.py")
    data = load_python(package)
    assert data.notes == ("left out 4 of 9 files: not Python code in UTF-8: deep.py, elif.py, latin.py, nul.py",)
    assert "Say half ? of a thing" in data.queries.texts()


def test_a_package_of_one_module_is_too_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lonely").mkdir()
    (tmp_path / "lonely" / "one.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(DataError, match="needs at least 2 files"):
        load_data("python:lonely")
