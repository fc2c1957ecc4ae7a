"""Documents without a text are never negatives and never drawn as false positives; they are encoded and ranked."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

import opera
from opera.config.recipe import make_recipe
from opera.core.errors import DataError
from opera.data import GivenNegatives, RetrievalData
from opera.data.texts import TextTable
from opera.training.guard.dev_corpus import reduced_corpus
from opera.training_set.build import TrainingSet, build_training_set
from opera.training_set.documents import DocumentPool
from opera.training_set.prepare import load_and_check
from small_runs import SMALL
from tiny_world import write_beir

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


def training_set(data: RetrievalData, model: Path, **settings: object) -> TrainingSet:
    return build_training_set(load_and_check(data, str(model), make_recipe({"method": "ft", **settings})))


def test_a_pool_is_the_corpus_without_what_is_left_out() -> None:
    pool = DocumentPool(8, np.array([0, 3, 4]))
    assert pool.rows(np.arange(len(pool))).tolist() == [1, 2, 5, 6, 7]
    assert pool.holds(np.array([[0, 1], [4, 7]])).tolist() == [[False, True], [False, True]]
    assert pool.without(np.array([7, 3])).rows(np.arange(4)).tolist() == [1, 2, 5, 6]
    whole = DocumentPool(3)
    assert whole.rows(np.array([2, 0])).tolist() == [2, 0]


@pytest.mark.parametrize("kind", ["random", "hard", "given"])
@pytest.mark.parametrize("corpus_text", ["title_text", "text"])
def test_negatives_have_a_text(folder: Path, static_model: Path, kind: str, corpus_text: str) -> None:
    data = opera.load_data(folder)
    everything = np.tile(np.arange(len(data.corpus), dtype=np.int32), len(data.queries))
    given = GivenNegatives(np.arange(len(data.queries) + 1) * len(data.corpus), everything)
    data = replace(data, given_negatives=given)
    ranks = {"range": "1:180"} if kind == "hard" else {}
    built = training_set(data, static_model, negatives=kind, corpus_text=corpus_text, **ranks)
    drawn = np.concatenate([built.negatives.draw(np.arange(20), 4, 0, step).ravel() for step in range(20)])
    empty = data.corpus.empty_rows("text" if corpus_text == "text" else "title_text")
    assert len(empty) == len(BLANK) + (len(TITLED) if corpus_text == "text" else 0)
    assert not np.isin(drawn, empty).any()


@pytest.mark.parametrize("noise", ["random", "hard"])
def test_false_positives_have_a_text(folder: Path, static_model: Path, noise: str) -> None:
    data = opera.load_data(folder)
    built = training_set(data, static_model, noise=noise, noise_share=0.5)
    assert built.injected.any()
    assert not np.isin(built.pairs.pair_doc, data.corpus.empty_rows()).any()


@pytest.fixture
def without(folder: Path, tmp_path: Path) -> Path:
    """The same data, but the documents without a text are not there."""
    home = Path(shutil.copytree(folder, tmp_path / "without"))
    lines = (folder / "corpus.jsonl").read_text().splitlines(keepends=True)
    (home / "corpus.jsonl").write_text("".join(line for line in lines if json.loads(line)["_id"] not in BLANK))
    return home


def test_pairs_are_scored_as_if_they_were_not_there(folder: Path, without: Path, static_model: Path) -> None:
    scored, expected = (opera.score(home, model=static_model, cbs_pool=100) for home in (folder, without))
    for name in ("similarity", "loss", "cbs"):
        assert scored[name].to_numpy() == pytest.approx(expected[name].to_numpy(), abs=1e-5)
    losses = []
    for home in (folder, without):
        scores = training_set(opera.load_data(home), static_model, method="dp", negatives="random").scores
        assert scores is not None
        losses.append(scores.loss)
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def test_data_are_inspected_as_if_they_were_not_there(folder: Path, without: Path, static_model: Path) -> None:
    seen, expected = (opera.inspect(home, model=static_model) for home in (folder, without))
    assert seen.similarities.random == pytest.approx(expected.similarities.random, abs=1e-5)
    assert asdict(seen.quality) == pytest.approx(asdict(expected.quality), abs=1e-5)


def test_a_reduced_dev_corpus_has_none(folder: Path, bert_model: Path) -> None:
    prepared = load_and_check(opera.load_data(folder), str(bert_model), make_recipe({"method": "ft"}))
    rows = reduced_corpus(prepared.model.encoder, prepared.data.drawn, 120, "title_text", 0).rows
    assert rows is not None
    assert len(rows) == 120
    assert not np.isin(rows, prepared.data.drawn.corpus.empty_rows()).any()


def test_mined_negatives_have_a_text(folder: Path, static_model: Path) -> None:
    table = opera.mine(folder, model=static_model, range=(1, 182), keep=200)
    assert table.num_rows
    assert not set(table["doc_id"].to_pylist()) & set(BLANK)


@pytest.mark.parametrize("model", ["static_model", "bert_model"])
def test_a_run_on_texts_alone_accepts_titles_and_says_so(
    folder: Path, model: str, request: pytest.FixtureRequest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="opera"):
        run = opera.adapt(
            folder, model=request.getfixturevalue(model), out=tmp_path / "run", corpus_text="text", **SMALL
        )
    assert run.record.data.counts["documents"] == 182
    notes = [
        "60 documents without title and text, such as 'd120': they are kept and ranked, and are no negatives",
        "corpus_text=text: 2 documents have a title alone: they are ranked, and are no negatives",
    ]
    for note in notes:
        assert caplog.text.count(note) == 1
    assert 'training pairs train on such a document\'s ""' in caplog.text


def test_a_corpus_of_titles_cannot_train_on_texts(folder: Path, static_model: Path) -> None:
    data = opera.load_data(folder)
    rows = data.corpus.table.to_pydict()
    table = TextTable(data.corpus.table.set_column(2, "text", [["" for _ in rows["id"]]]))
    with pytest.raises(DataError, match="no document has a text with corpus_text=text"):
        training_set(replace(data, corpus=table), static_model, corpus_text="text", negatives="random")
