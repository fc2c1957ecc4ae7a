"""The cache of parsed data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from opera.core.errors import DataError
from opera.data import Qrels, TeacherScores, cache_folder, load_data, store
from opera.data.store import load_or_parse
from opera.data.texts import text_batches
from text_files import edit_line

MakeBeir = Callable[..., Path]


def test_second_load_comes_from_the_cache_and_is_the_same(make_beir: MakeBeir) -> None:
    folder = make_beir()
    first, second = load_data(folder), load_data(folder)
    assert first.fingerprint == second.fingerprint
    assert (cache_folder() / "data" / first.fingerprint[:32] / "corpus.arrow").is_file()
    assert first.corpus.texts() == second.corpus.texts()
    edit_line(folder / "queries.jsonl", 1, '{"_id": "train0", "text": "something else"}')
    assert load_data(folder).fingerprint != first.fingerprint


def test_a_failed_read_leaves_nothing_in_the_cache(make_beir: MakeBeir) -> None:
    folder = make_beir()
    edit_line(folder / "qrels" / "train.tsv", 2, "nobody\td0\t1")
    before = set((cache_folder() / "data").iterdir())
    with pytest.raises(DataError):
        load_data(folder)
    assert set((cache_folder() / "data").iterdir()) == before


def test_weights_and_teacher_scores_are_stored(tmp_path: Path) -> None:
    weights = np.array([0.5, 4, 1])
    qrels = Qrels.from_arrays(np.array([0, 1, 1]), np.array([1, 0, 1]), np.array([1, 1, 0]), weights)
    teacher = TeacherScores.from_arrays(np.array([1, 0]), np.array([0, 1]), np.array([0.25, -3]))

    def parse(builder: store.DataBuilder) -> None:
        for kind in ("corpus", "queries"):
            builder.write_texts(kind, text_batches((f"{kind}{row}", "", f"text {row}") for row in range(2)))
        builder.splits = {"train": qrels, "test": Qrels.from_arrays(np.array([0]), np.array([0]), np.array([1]))}
        builder.teacher = teacher

    for _ in ("parsed", "cached"):
        data = load_or_parse("5e7" * 20, "weighted", "weighted", parse)
        assert data.splits["train"].weights is not None
        assert data.splits["train"].weights.tolist() == weights.tolist()
        assert data.splits["test"].weights is None
        assert data.teacher is not None
        assert data.teacher.lookup(np.array([0, 0, 1]), np.array([0, 1, 0])).tolist()[1:] == [-3, 0.25]
