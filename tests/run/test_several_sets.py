"""Runs on several data sets: draws by shares, negatives and rankings within a set, measures of each."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opera
from commands import opera_here
from opera.config.recipe import make_recipe
from opera.core.errors import DataError, SettingError
from opera.data import RetrievalData, load_all, load_data
from opera.data.combined import first_rows
from opera.data.pair_files import with_teacher
from opera.deployment import export as export_module
from opera.engine.run_pruning import RunPruning
from opera.training_set.build import build_training_set
from opera.training_set.prepare import load_and_check
from small_runs import FAST, SMALL
from tiny_world import write_beir


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two data sets over the same words; the second has no test split of its own."""
    home = tmp_path_factory.mktemp("sets")
    first, second = write_beir(home / "first"), write_beir(home / "second", 60, 20, 4)
    (second / "qrels" / "test.tsv").unlink()
    return [first, second]


def prepared(sets: list[Path], model: Path, **settings: Any) -> Any:
    return load_and_check(load_all(sets), str(model), make_recipe({**SMALL, "guard": False, **settings}))


def in_set(data: RetrievalData, rows: np.ndarray) -> np.ndarray:
    return np.searchsorted(first_rows(data)[1], rows, side="right") - 1


@pytest.mark.parametrize("negatives", ["random", "hard"])
def test_negatives_are_documents_of_the_querys_own_set(negatives: str, sets: list[Path], static_model: Path) -> None:
    run = prepared(sets, static_model, negatives=negatives, method="dp")
    built = build_training_set(run)
    queries = np.arange(built.pairs.n_queries)
    owner = np.searchsorted([0, built.sets[1].first_query], queries, side="right") - 1
    for number, sampler in enumerate(RunPruning(run.model.trained, built, run.recipe).sampler.sets):
        drawn = sampler.documents(np.arange(30), 5, 0, 1)
        assert (in_set(run.data.drawn, drawn) == number).all()
    assert set(owner.tolist()) == {0, 1}
    assert (in_set(run.data.drawn, built.pairs.pair_doc) == owner[built.pairs.pair_query]).all()


def test_each_set_has_the_scores_and_positives_that_it_has_alone(sets: list[Path], static_model: Path) -> None:
    built = build_training_set(prepared(sets, static_model, method="dp"))
    firsts = built.labelled.first_pairs
    for number, folder in enumerate(sets):
        alone = build_training_set(prepared([folder], static_model, method="dp"))
        own = slice(firsts[number], firsts[number + 1])
        assert np.array_equal(built.scores.similarity[own], alone.scores.similarity)
        assert np.array_equal(built.scores.sets[number].loss, alone.scores.sets[0].loss)
        queries = np.arange(alone.pairs.n_queries)[:, None]
        documents = np.arange(len(alone.data.corpus))
        first = first_rows(built.data)[1][number]
        found = built.negatives.known.contains(queries + built.sets[number].first_query, documents + first)
        assert np.array_equal(found, alone.negatives.known.contains(queries, documents))


def test_listed_negatives_are_counted_over_the_sets(sets: list[Path], static_model: Path) -> None:
    settings = {"method": "sp", "negatives": "hard", "range": "1:3", "prune_before_mining": True}
    built = build_training_set(prepared(sets, static_model, **settings))
    alone = [build_training_set(prepared([folder], static_model, **settings)) for folder in sets]
    record = built.negatives.record
    for name in ("listed", "queries_without"):
        assert getattr(record, name) == sum(getattr(own.negatives.record, name) for own in alone)
    assert record.listed > 0
    lists = replace(built.negatives.lists, doc_rows=built.negatives.lists.doc_rows[::-1])
    fewer = replace(built, negatives=replace(built.negatives, lists=lists))
    ones = np.ones(built.pairs.n_pairs, dtype=np.float32)
    weighted = replace(built, labelled=replace(built.labelled, loss_weights=ones))
    assert len({each.fingerprint for each in (built, fewer, weighted)}) == 3


@pytest.mark.parametrize(
    ("use", "call"),
    [("mine", opera.mine), ("search", lambda data, model: opera.search(data, "word", model=model))],
)
def test_what_ranks_one_set_refuses_several(use: str, call: Any, sets: list[Path], static_model: Path) -> None:
    with pytest.raises(DataError, match=f"second: is several data sets, and {use} takes one; call it for each"):
        call(load_all(sets), model=static_model)


def test_a_teachers_ids_have_the_name_of_their_set(sets: list[Path], tmp_path: Path) -> None:
    path, data = tmp_path / "scores.tsv", load_all(sets)
    path.write_text("query_id\tdoc_id\tscore\nq0\td0\t1\n")
    with pytest.raises(DataError, match="ids must be SET/ID, of the sets first, second"):
        with_teacher(data, path)
    rows = [("first/train0", "first/d1", 1), ("second/train1", "second/d2", 2), ("first/train0", "second/d0", 3)]
    path.write_text("query_id\tdoc_id\tscore\n" + "".join(f"{q}\t{d}\t{s}\n" for q, d, s in rows))
    scored = with_teacher(data, path)
    assert scored.teacher.scores.tolist() == [1, 2]
    assert data.queries.ids(scored.teacher.query_rows) == ["first/train0", "second/train1"]
    second = scored.sets[1]
    assert second.corpus.ids(second.teacher.doc_rows) == ["d2"]
    assert "1 of 3 scores are of pairs that the data lack" in scored.notes[0]


@pytest.mark.parametrize(
    ("settings", "share"),
    [({}, None), ({"mix": "first=1,second=3"}, 0.25), ({"one_set_per_step": True}, None)],
)
def test_a_run_measures_each_set_on_its_own_documents(
    settings: dict[str, Any], share: float | None, sets: list[Path], static_model: Path, tmp_path: Path
) -> None:
    run = opera.adapt(sets, model=static_model, out=tmp_path / "run", method="ft", **FAST, **settings)
    first, second = run.record.sets
    assert (first.name, second.name) == ("first", "second")
    assert run.record.data.source == f"{sets[0]} + {sets[1]}"
    expected = first.counts["train_pairs"] / (first.counts["train_pairs"] + second.counts["train_pairs"])
    assert first.share_of_draws == pytest.approx(expected if share is None else share, abs=0.03)
    alone = opera.evaluate(load_data(sets[0]), model=static_model).measures
    assert first.test["before"]["nDCG@10"] == alone["nDCG@10"], "the other set's documents are not ranked"
    assert first.test["after"]["nDCG@10"] > first.test["before"]["nDCG@10"]
    counts = [each.counts["test_queries"] for each in (first, second)]
    mean = np.average([each.test["after"]["nDCG@10"] for each in (first, second)], weights=counts)
    assert run.measures["after"]["nDCG@10"] == pytest.approx(mean)
    evaluated = opera.evaluate(load_data(sets[1]), model=run.path)  # its test split was drawn by the run
    assert evaluated.measures["nDCG@10"] == pytest.approx(second.test["after"]["nDCG@10"])
    assert set(run.record.guard.dev_parts) == {"first", "second"}
    assert {query.split("/")[0] for query in run.per_query()["query_id"].to_pylist()} == {"first", "second"}
    card = (run.model_path / "README.md").read_text()
    assert "| second | " in card
    assert "opera train first \\\n  --also second" in card
    measured = export_module._test_data(str(run.path), None)
    assert [part.name for part in measured.sets] == ["first", "second"], "an export measures on them too"


def test_the_command_takes_more_sets_and_prints_each(
    sets: list[Path],
    static_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["train", str(sets[0]), "--also", str(sets[1]), "--mix", "equal", "--model", str(static_model)]
    command += ["--steps", "4", "--set", "guard=false", "--method", "ft"]
    done = opera_here(tmp_path, [*command, "--out", "run"], monkeypatch, capsys)
    assert done.returncode == 0
    assert "mean of the sets" in done.stdout
    done = opera_here(tmp_path, [*command, "--out", "json", "--json"], monkeypatch, capsys)
    assert [each["name"] for each in json.loads(done.stdout)["sets"]] == ["first", "second"]


@pytest.mark.parametrize(
    ("number", "settings", "message"),
    [
        (1, {"one_set_per_step": True}, "one_set_per_step=True: needs several data sets"),
        (2, {"mix": "first=1"}, "mix=first=1: must give a share to each of first, second, and to no other"),
        (2, {"adapter": "query"}, "adapter=query: trains on one data set"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    number: int, settings: dict[str, Any], message: str, sets: list[Path], static_model: Path
) -> None:
    with pytest.raises(SettingError, match=message):
        prepared(sets[:number], static_model, **settings)


def test_a_pair_is_ranked_among_the_documents_of_its_own_set(
    sets: list[Path], static_model: Path, tmp_path: Path
) -> None:
    """The first step's p-values, by code that uses none of ours."""
    from sentence_transformers import SentenceTransformer

    settings = {**SMALL, "max_steps": 1, "save_steps": 1, "guard": False, "method": "ft"}
    settings |= {"precision": "fp32", "train_group_size": 1}  # no negatives beside the batch
    run = opera.adapt(sets, model=static_model, out=tmp_path / "run", **settings)
    pairs = run.pairs().to_pandas()
    drawn, model = pairs[pairs.first_step == 0], SentenceTransformer(str(static_model))
    known = set(zip(pairs.query_id, pairs.doc_id, strict=True))
    texts: dict[str, str] = {}
    for folder in sets:
        for file in ("corpus", "queries"):
            rows = map(json.loads, (folder / f"{file}.jsonl").read_text().splitlines())
            texts |= {f"{folder.name}/{row['_id']}": f"{row.get('title', '')} {row['text']}".strip() for row in rows}
    queries, documents = (
        model.encode([texts[name] for name in names], normalize_embeddings=True)
        for names in (drawn.query_id, drawn.doc_id)
    )
    cosines = queries @ documents.T
    assert len(drawn) == 16
    for row, (query, p) in enumerate(zip(drawn.query_id, drawn.first_rank, strict=True)):
        others = [
            cosines[row, column]
            for column, document in enumerate(drawn.doc_id)
            if document.split("/")[0] == query.split("/")[0] and (query, document) not in known
        ]
        above = sum(
            (cosine > cosines[row, row] + 1e-6) + (abs(cosine - cosines[row, row]) <= 1e-6) / 2 for cosine in others
        )
        assert p == pytest.approx((above + 0.5) / (len(others) + 1)), query
