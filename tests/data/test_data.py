from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from opera.core.errors import DataError
from opera.data import RetrievalData, cache_folder, load_data, load_python
from opera.data.splits import hold_out

MakeBeir = Callable[..., Path]


def edit_line(path: Path, number: int, new: str | None) -> None:
    lines = path.read_text().splitlines()
    lines[number - 1 : number] = [] if new is None else [new]
    path.write_text("\n".join(lines) + "\n")


class TestBeir:
    def test_reads_texts_and_judgements(self, beir: Path) -> None:
        data = load_data(beir)
        assert len(data.corpus) == 120
        assert set(data.splits) == {"train", "test"}
        first = json.loads((beir / "corpus.jsonl").read_text().splitlines()[0])
        assert data.corpus.texts(np.array([0])) == [f"common0 {first['text']}"]
        assert data.corpus.texts(np.array([0]), "text") == [first["text"]]
        qrels = data.split("train")
        written = {tuple(line.split("\t")) for line in (beir / "qrels" / "train.tsv").read_text().splitlines()[1:]}
        queries, docs = data.queries.ids(), data.corpus.ids()
        read = {
            (queries[qrels.query_rows[q]], docs[d], str(g))
            for q, d, g in zip(qrels.query_index, qrels.doc_rows, qrels.grades, strict=True)
        }
        assert read == written

    def test_second_load_comes_from_the_cache_and_is_the_same(self, make_beir: MakeBeir) -> None:
        folder = make_beir()
        first, second = load_data(folder), load_data(folder)
        assert first.fingerprint == second.fingerprint
        assert (cache_folder() / "data" / first.fingerprint[:32] / "corpus.arrow").is_file()
        assert first.corpus.texts() == second.corpus.texts()
        edit_line(folder / "queries.jsonl", 1, '{"_id": "train0", "text": "something else"}')
        assert load_data(folder).fingerprint != first.fingerprint

    @pytest.mark.parametrize(
        ("file", "line", "new", "message"),
        [
            ("corpus.jsonl", 3, "{oops", "corpus.jsonl:3: not JSON"),
            ("corpus.jsonl", 3, "[1]", "corpus.jsonl:3: must be a JSON object, got [1]"),
            ("corpus.jsonl", 3, '{"_id": "x", "body": "y", "text": "z"}', "corpus.jsonl:3: unknown column 'body'"),
            ("corpus.jsonl", 3, '{"_id": "x", "txt": "y"}', "unknown column 'txt'; did you mean 'text'?"),
            ("corpus.jsonl", 3, '{"_id": "x"}', "corpus.jsonl:3: column 'text' is missing"),
            ("corpus.jsonl", 3, '{"_id": "x", "text": " "}', "corpus.jsonl:3: _id 'x' has an empty text"),
            ("corpus.jsonl", 3, '{"_id": 7, "text": "a"}', "corpus.jsonl:3: column '_id' must be a string, got 7"),
            ("corpus.jsonl", 3, '{"_id": "", "text": "a"}', "corpus.jsonl:3: column '_id' must not be empty"),
            (
                "corpus.jsonl",
                3,
                '{"_id": "d0", "text": "a"}',
                "corpus.jsonl:3: duplicate _id 'd0', first seen on line 1",
            ),
            ("queries.jsonl", 2, '{"_id": "train0", "text": "a"}', "queries.jsonl:2: duplicate _id 'train0'"),
            (
                "corpus.jsonl",
                3,
                '{"_id": "x", "text": "cut \\ud83d"}',
                "corpus.jsonl:3: column 'text' holds half a character",
            ),
            ("corpus.jsonl", 3, '{"_id": "a\\tb", "text": "a"}', "must not hold a tab or a line break"),
            ("qrels/train.tsv", 2, "train0\td0\t4294967297", "score must lie between -1000 and 1000"),
            ("qrels/train.tsv", 1, "query-id\tcorpus-id\tgrade", "train.tsv:1: the header must be query-id"),
            ("qrels/train.tsv", 1, "query-id corpus-id score", "columns must be separated by tabs, and there is none"),
            ("qrels/train.tsv", 2, "train0\td0", "train.tsv:2: must have 3 columns"),
            ("qrels/train.tsv", 2, "train0\td0\thigh", "train.tsv:2: score must be a whole number, got 'high'"),
            ("qrels/train.tsv", 2, "nobody\td0\t1", "train.tsv:2: query-id 'nobody' does not exist in queries.jsonl"),
            ("qrels/train.tsv", 2, "train0\tdX\t1", "train.tsv:2: corpus-id 'dX' does not exist in corpus.jsonl"),
        ],
    )
    def test_a_bad_line_is_named(self, make_beir: MakeBeir, file: str, line: int, new: str, message: str) -> None:
        folder = make_beir()
        edit_line(folder / file, line, new)
        with pytest.raises(DataError) as caught:
            load_data(folder)
        assert message in str(caught.value)

    def test_a_failed_read_leaves_nothing_in_the_cache(self, make_beir: MakeBeir) -> None:
        folder = make_beir()
        edit_line(folder / "qrels" / "train.tsv", 2, "nobody\td0\t1")
        before = set((cache_folder() / "data").iterdir())
        with pytest.raises(DataError):
            load_data(folder)
        assert set((cache_folder() / "data").iterdir()) == before

    def test_repeated_rows_merge_and_contradictions_are_refused(self, make_beir: MakeBeir) -> None:
        folder = make_beir()
        path = folder / "qrels" / "train.tsv"
        first = path.read_text().splitlines()[1]
        count = len(load_data(folder).split("train").doc_rows)
        path.write_text(path.read_text() + first + "\n")
        merged = load_data(folder)
        assert len(merged.split("train").doc_rows) == count
        assert merged.notes == ("train.tsv: merged 1 repeated rows",)
        path.write_text(path.read_text() + first[:-1] + "9\n")
        with pytest.raises(DataError, match="score 9 for a pair that line"):
            load_data(folder)

    def test_bytes_that_are_not_utf8_are_found(self, make_beir: MakeBeir) -> None:
        folder = make_beir()
        lines = (folder / "corpus.jsonl").read_bytes().split(b"\n")
        lines[41] = b'{"_id": "d41", "text": "caf\xe9"}'
        (folder / "corpus.jsonl").write_bytes(b"\n".join(lines))
        with pytest.raises(DataError, match=r"corpus\.jsonl:42: not UTF-8"):
            load_data(folder)

    def test_missing_files(self, make_beir: MakeBeir, tmp_path: Path) -> None:
        folder = make_beir()
        with pytest.raises(DataError, match="no such file or folder"):
            load_data(tmp_path / "absent")
        (folder / "queries.jsonl").unlink()
        with pytest.raises(DataError, match=r"not a BEIR folder: queries\.jsonl is missing"):
            load_data(folder)

    def test_empty_corpus(self, make_beir: MakeBeir) -> None:
        folder = make_beir()
        (folder / "corpus.jsonl").write_text("")
        with pytest.raises(DataError, match=r"corpus\.jsonl: is empty"):
            load_data(folder)

    def test_scores_of_zero_are_no_training_pairs(self, make_beir: MakeBeir) -> None:
        folder = make_beir()
        path = folder / "qrels" / "train.tsv"
        path.write_text("query-id\tcorpus-id\tscore\ntrain0\td0\t0\n")
        with pytest.raises(DataError, match="no pair with a score above 0"):
            load_data(folder).training_split()

    def test_round_trip(self, beir: Path, tmp_path: Path) -> None:
        data = load_data(beir)
        data.write_beir(tmp_path / "copy")
        again = load_data(tmp_path / "copy")
        assert again.corpus.texts() == data.corpus.texts()
        assert np.array_equal(again.split("test").grades, data.split("test").grades)

    def test_held_out_queries_leave_train(self, beir: Path) -> None:
        data = load_data(beir)
        held = hold_out(data, "dev", 0.25, seed=1)
        assert held.split("dev").n_queries == 10
        assert not set(held.split("dev").query_rows) & set(held.split("train").query_rows)
        assert held.split("train").n_queries == 30
        assert "drew 10 of the 40 train queries with seed 1" in held.notes[-1]
        assert np.array_equal(held.split("dev").query_rows, hold_out(data, "dev", 0.25, 1).split("dev").query_rows)
        assert not np.array_equal(held.split("dev").query_rows, hold_out(data, "dev", 0.25, 2).split("dev").query_rows)


def test_rows_are_found_across_chunks(monkeypatch: pytest.MonkeyPatch, make_beir: MakeBeir) -> None:
    folder = make_beir()
    edit_line(folder / "corpus.jsonl", 1, '{"_id": "d0", "title": "a \\"quoted\\" id", "text": "x"}')
    monkeypatch.setattr("opera.data.store.BATCH_ROWS", 7)
    data = load_data(folder)
    assert data.corpus.table["text"].num_chunks > 10
    texts = data.corpus.texts()
    rows = np.random.default_rng(0).integers(len(texts), size=200)
    assert data.corpus.texts(rows) == [texts[row] for row in rows]
    assert data.corpus.ids(rows) == [f"d{row}" for row in rows]
    assert data.corpus.texts(slice(5, 30)) == texts[5:30]
    assert data.corpus.texts(np.array([], dtype=int)) == []


class TestFlag:
    def write(self, folder: Path, *records: object) -> Path:
        path = folder / "train.jsonl"
        path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in records) + "\n")
        return path

    def test_reads_pairs_and_negatives(self, tmp_path: Path) -> None:
        path = self.write(
            tmp_path,
            {"query": "q one", "pos": ["a", "b"], "neg": ["c", "a"]},
            {"query": "q two", "pos": ["c"], "pos_scores": [1]},
            {"query": "q one", "pos": ["d"], "neg": ["e"]},
        )
        data = load_data(path)
        assert data.corpus.texts() == ["a", "b", "c", "d", "e"]
        train = data.split("train")
        assert train.doc_rows.tolist() == [0, 1, 3, 2]
        assert data.given_negatives is not None
        assert data.given_negatives.doc_rows.tolist() == [2, 4]
        assert data.given_negatives.offsets.tolist() == [0, 2, 2]
        assert len(data.notes) == 3

    @pytest.mark.parametrize(
        ("record", "message"),
        [
            ("{", "train.jsonl:2: not JSON"),
            ({"query": "x"}, "train.jsonl:2: column 'pos' is missing"),
            ({"query": "x", "pos": []}, "train.jsonl:2: column 'pos' must hold at least one text"),
            ({"query": "x", "pos": "a"}, "train.jsonl:2: column 'pos' must be a list of strings"),
            ({"query": " ", "pos": ["a"]}, "train.jsonl:2: column 'query' must not be empty"),
            ({"query": "x", "pos": [""]}, "train.jsonl:2: column 'pos' holds an empty text"),
            ({"query": "x", "pos": ["a"], "negs": []}, "unknown column 'negs'; did you mean 'neg'?"),
        ],
    )
    def test_a_bad_line_is_named(self, tmp_path: Path, record: object, message: str) -> None:
        path = self.write(tmp_path, {"query": "q", "pos": ["a"]}, record)
        with pytest.raises(DataError) as caught:
            load_data(path)
        assert message in str(caught.value)

    def test_other_files_are_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "train.csv"
        path.write_text("a,b\n")
        with pytest.raises(DataError, match=r"not a \.jsonl file"):
            load_data(path)


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


class TestPython:
    @pytest.fixture
    def package(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        home = tmp_path / "tinyshapes"
        home.mkdir()
        for name in ("__init__", "one", "two", "three"):
            (home / f"{name}.py").write_text(MODULE.format(name=name))
        monkeypatch.syspath_prepend(str(tmp_path))
        return "tinyshapes"

    def test_queries_are_summaries_and_documents_hide_them(self, package: str) -> None:
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

    def test_train_and_test_come_from_different_modules(self) -> None:
        data = load_python("opera", seed=3)
        modules = {}
        for split in ("train", "test"):
            ids = data.queries.ids(data.split(split).query_rows)
            modules[split] = {module_of(identifier) for identifier in ids}
        assert modules["train"]
        assert modules["test"]
        assert not modules["train"] & modules["test"]

    @pytest.mark.parametrize("package", ["json", "opera", "stdlib"])
    def test_ids_are_unique_even_where_names_are_not(self, package: str) -> None:
        data = load_python(package, train_queries=300, test_queries=60)
        for table in (data.corpus, data.queries):
            assert len(set(table.ids())) == len(table)

    def test_limits_and_seed(self) -> None:
        data = load_python("opera", seed=1, train_queries=30, test_queries=10)
        assert data.split("train").n_queries == 30
        assert data.split("test").n_queries == 10
        assert data.fingerprint == load_python("opera", seed=1, train_queries=30, test_queries=10).fingerprint
        assert data.fingerprint != load_python("opera", seed=2, train_queries=30, test_queries=10).fingerprint

    def test_nothing_is_imported(self) -> None:
        code = (
            "import sys, opera.data; opera.data.load_data('python:opera')\n"
            "assert 'opera.training.adapt' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_absent_and_tiny_packages(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(DataError, match="no installed package of that name"):
            load_data("python:no_such_package_here")
        (tmp_path / "lonely.py").write_text(MODULE)
        monkeypatch.syspath_prepend(str(tmp_path))
        with pytest.raises(DataError, match="it takes 2 modules or more"):
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


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "train_queries", "train_pairs", "test_pairs"),
    [
        ("nfcorpus", 2590, 110_575, 12_334),
        ("scifact", 809, 919, 339),
        ("toollens", 16_893, 44_865, 4_987),
        ("entailmentbank", 1308, 5752, 1519),
    ],
)
def test_real_folders(shared: Path, name: str, train_queries: int, train_pairs: int, test_pairs: int) -> None:
    data: RetrievalData = load_data(shared / "data" / name)
    counts = data.counts()
    assert (counts["train_queries"], counts["train_pairs"], counts["test_pairs"]) == (
        train_queries,
        train_pairs,
        test_pairs,
    )
