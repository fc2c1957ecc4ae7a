"""``python:PACKAGE``: queries and documents from source code."""

import sys
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location

import pytest

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
def package(tmp_path, monkeypatch) -> str:
    home = tmp_path / "tinyshapes"
    home.mkdir()
    for name in ("__init__", "one", "two", "three"):
        (home / f"{name}.py").write_text(MODULE.format(name=name))
    monkeypatch.syspath_prepend(str(tmp_path))
    return "tinyshapes"


def test_queries_are_summaries_and_documents_hide_them(package):
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


def test_limits_and_seed_decide_the_objects_and_splits_share_no_module():
    """Train and test come from different modules; ids are unique where names are not."""
    first, again, other = (load_python("email", seed=seed, train_queries=30, test_queries=10) for seed in (1, 1, 2))
    assert first.fingerprint == again.fingerprint != other.fingerprint
    assert [first.split(split).n_queries for split in ("train", "test")] == [30, 10]
    data = load_python("email")
    files = {name: {identifier.split(".")[1] for identifier in data.queries.ids(data.split(name).query_rows)}
             for name in ("train", "test")}  # fmt: skip
    assert not files["train"] - {"mime"} & files["test"] - {"mime"}
    for table in (data.corpus, data.queries):
        assert len(set(table.ids())) == len(table)


def test_nothing_of_an_editable_package_runs(tmp_path, monkeypatch):
    """Neither the package, nor its parents, as importing would."""
    inner = tmp_path / "home" / "outer" / "middle" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent, inner.parent.parent):
        for name in ("__init__", "one", "two"):
            text = MODULE.format(name=f"{folder.name}{name}") + f"\nopen({str(tmp_path / 'ran')!r}, 'w')\n"
            (folder / f"{name}.py").write_text(text)

    class Editable:
        @classmethod
        def find_spec(cls, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
            return spec_from_file_location(name, inner.parents[1] / "__init__.py") if name == "outer" else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Editable])
    for name in ("outer", "outer.middle", "outer.middle.inner"):
        assert "inner.one.Shape" in str(load_data(f"python:{name}").corpus.ids())
    assert not [name for name in sys.modules if name.startswith("outer")]
    assert not (tmp_path / "ran").exists()
