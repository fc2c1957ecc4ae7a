"""Documents that may be drawn have a text and are no known positive of the query; all are encoded and ranked."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import opera
from distinct import known_of
from opera.config.recipe import make_recipe
from opera.core.errors import DataError
from opera.data import GivenNegatives, RetrievalData
from opera.data.texts import TextTable
from opera.training_set.build import TrainingSet, build_training_set
from opera.training_set.prepare import load_and_check
from tiny_world import write_beir
from worlds import make_pairs

BLANK = [f"d{row}" for row in range(120, 180)]
"""As many documents without a text as would be drawn at once, were they not left out."""
TITLED = ["d180", "d181"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = write_beir(tmp_path_factory.mktemp("empty") / "data", dev=True)
    with (home / "corpus.jsonl").open("a") as file:
        file.writelines(json.dumps({"_id": name, "title": "", "text": " "}) + "\n" for name in BLANK)
        file.writelines(json.dumps({"_id": name, "title": "common1", "text": ""}) + "\n" for name in TITLED)
    with (home / "qrels" / "train.tsv").open("a") as file:
        file.write("train0\td180\t1\n")
    return home


@pytest.fixture(scope="module")
def without(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same data, but the documents without a text are not there."""
    home = Path(shutil.copytree(folder, tmp_path_factory.mktemp("without") / "data"))
    lines = (folder / "corpus.jsonl").read_text().splitlines(keepends=True)
    (home / "corpus.jsonl").write_text("".join(line for line in lines if json.loads(line)["_id"] not in BLANK))
    return home


def training_set(data: RetrievalData, model: Path, **settings: object) -> TrainingSet:
    return build_training_set(load_and_check(data, str(model), make_recipe({"method": "ft", **settings})))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=20), st.sets(st.integers(0, 9), min_size=1))
def test_known_positives_are_exactly_the_pairs(counts: list[int], some: set[int]) -> None:
    pairs = make_pairs(counts, n_docs=10)
    known = known_of(pairs)
    expected = {*zip(pairs.pair_query.tolist(), pairs.pair_doc.tolist(), strict=True)}
    table = known.contains(np.arange(len(counts))[:, None], np.arange(10))
    assert {*zip(*(rows.tolist() for rows in np.nonzero(table)), strict=True)} == expected
    few = np.array(sorted(some))
    among = {(int(query), int(few[place])) for query, place in zip(*known.among(few), strict=True)}
    assert among == {(query, doc) for query, doc in expected if doc in some}
    left = known.without(pairs.pair_query[1::2], pairs.pair_doc[1::2])
    assert left.contains(pairs.pair_query, pairs.pair_doc).tolist() == [at % 2 == 0 for at in range(pairs.n_pairs)]


@pytest.mark.parametrize("kind", ["random", "hard", "given"])
def test_negatives_have_a_text(folder: Path, static_model: Path, kind: str) -> None:
    data = opera.load_data(folder)
    everything = np.tile(np.arange(len(data.corpus), dtype=np.int32), len(data.queries))
    given = GivenNegatives(np.arange(len(data.queries) + 1) * len(data.corpus), everything)
    data = replace(data, given_negatives=given)
    ranks = {"range": "1:180"} if kind == "hard" else {}
    built = training_set(data, static_model, negatives=kind, corpus_text="text", **ranks)
    drawn = np.concatenate([built.negatives.sets[0].draw(np.arange(20), 4, 0, step).ravel() for step in range(20)])
    empty = data.corpus.empty_rows("text")
    assert len(empty) == len(BLANK) + len(TITLED)
    assert not np.isin(drawn, empty).any()


def test_scores_inspection_and_mining_are_as_if_they_were_not_there(
    folder: Path, without: Path, static_model: Path
) -> None:
    scored, expected = (opera.score(home, model=static_model, cbs_pool=100) for home in (folder, without))
    for name in ("similarity", "loss", "cbs"):
        assert scored[name].to_numpy() == pytest.approx(expected[name].to_numpy(), abs=1e-5)
    seen, wanted = (opera.inspect(home, model=static_model) for home in (folder, without))
    assert seen.similarities.random == pytest.approx(wanted.similarities.random, abs=1e-5)
    assert asdict(seen.quality) == pytest.approx(asdict(wanted.quality), abs=1e-5)
    table = opera.mine(folder, model=static_model, range=(1, 182), keep=200)
    assert table.num_rows
    assert not set(table["doc_id"].to_pylist()) & set(BLANK)


def test_a_corpus_of_titles_cannot_train_on_texts(folder: Path, static_model: Path) -> None:
    data = opera.load_data(folder)
    texts = data.corpus.table.set_column(2, "text", [["" for _ in range(len(data.corpus))]])
    with pytest.raises(DataError, match="no document has a text with corpus_text=text"):
        training_set(replace(data, corpus=TextTable(texts)), static_model, corpus_text="text", negatives="random")
