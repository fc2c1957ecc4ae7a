"""What ``opera inspect`` says, against data of which the truth is known."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

import opera
from opera.cli import app
from opera.cli.printing.console import one_line
from opera.cli.printing.inspection import histogram, print_inspection
from opera.core.errors import DataError
from opera.data.pairs import TrainingPairs
from opera.diagnostics.inspect.advice import RETENTIONS, advise, dynamic_gain, retention_table
from opera.diagnostics.inspect.overlap import word_overlap, words_of
from opera.diagnostics.inspect.quality import (
    Quality,
    auc_of,
    chance_level,
    most_suspicious,
    quality_of,
    random_share,
    random_similarities,
)
from opera.methods.selection import keep_highest
from opera.retrieval.similarity import pair_similarities
from opera.training_set.cbs import CBSRanks, rank_among_random


def quality(noise: float | None, auc: float, error: float = 0.0) -> Quality:
    return Quality(auc=auc, noise=noise, noise_error=error, pooled_auc=auc, cosine=0.5, pool=100)


RANDOM = np.random.default_rng(1).uniform(-0.5, 0.5, 1000)  # similarities of random pairs


@pytest.fixture
def pairs() -> TrainingPairs:
    return TrainingPairs.of(np.repeat(np.arange(50), 4), np.arange(200))


class TestNoise:
    @pytest.mark.parametrize("share", [0.0, 0.2, 0.5])
    def test_the_share_of_random_documents_is_found(self, share: float) -> None:
        """Good documents lie near their query, false ones anywhere: the estimate finds how many are false."""
        rng = np.random.default_rng(0)
        queries = rng.normal(size=(300, 32))
        docs = np.repeat(queries, 10, axis=0) + 1.2 * rng.normal(size=(3000, 32))
        false = rng.random(3000) < share
        docs[false] = rng.normal(size=(false.sum(), 32))
        queries, docs = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (queries, docs))
        pairs = TrainingPairs.of(np.repeat(np.arange(300), 10), np.arange(3000))
        consistency = rank_among_random(pairs, queries.astype(np.float32), docs.astype(np.float32), 10_000, 0)
        queries, docs = queries.astype(np.float32), docs.astype(np.float32)
        similarity, random = pair_similarities(pairs, queries, docs), random_similarities(pairs, queries, docs, 0)
        found = quality_of(pairs, consistency, similarity, random, docs)
        assert found.noise == pytest.approx(share, abs=0.04)
        assert found.noise_error < 0.03
        assert found.pooled_auc == pytest.approx(auc_of(similarity[~false], random), abs=0.03)
        for row in retention_table(pairs, similarity, random, found):
            kept = keep_highest(similarity, row.kept_pairs)
            assert row.precision == pytest.approx((~false)[kept].mean(), abs=0.03)
        worst = most_suspicious(chance_level(consistency), np.zeros(3000), 50)
        assert share == 0 or false[worst].all()

    @pytest.mark.parametrize("pool", [2, 3, 10, 10_000])
    def test_all_random_is_all_noise_whatever_the_pool(self, pool: int) -> None:
        ranks = np.random.default_rng(0).integers(1, pool + 2, 20_000).astype(np.int32)
        share, error = random_share(CBSRanks(ranks, np.full(20_000, pool, dtype=np.int32)))
        assert share == pytest.approx(1, abs=4 * error)

    def test_the_standard_error_is_the_spread_of_estimates(self) -> None:
        rng, estimates, errors = np.random.default_rng(0), [], []
        for _ in range(300):
            ranks = np.where(rng.random(200) < 0.2, rng.integers(1, 1002, 200), 1).astype(np.int32)
            share, error = random_share(CBSRanks(ranks, np.full(200, 1000, dtype=np.int32)))
            estimates.append(share)
            errors.append(error)
        assert np.mean(errors) == pytest.approx(np.std(estimates), rel=0.15)

    def test_too_few_to_rank_among_give_no_estimate(self) -> None:
        pairs = TrainingPairs.of(np.zeros(2, dtype=int), np.arange(2))
        lone = CBSRanks(np.ones(2, dtype=np.int32), np.zeros(2, dtype=np.int32))
        found = quality_of(pairs, lone, np.array([0.3, 0.4]), np.array([0.1, 0.2]), np.eye(2, dtype=np.float32))
        assert found.noise is None
        assert np.isfinite([found.auc, found.pooled_auc, found.cosine]).all()
        assert "too few to estimate noise" in advise(found, []).reason

    def test_auc(self) -> None:
        assert auc_of(np.array([2.0, 3.0]), np.array([0.0, 1.0])) == 1
        assert auc_of(np.array([1.0]), np.array([0.0, 1.0, 2.0])) == 0.5

    def test_of_equal_places_the_least_similar_is_the_most_suspicious(self) -> None:
        assert most_suspicious(np.array([0.2, 0.9, 0.9]), np.array([0.0, 0.5, 0.1]), 2).tolist() == [2, 1]


class TestAdvice:
    def test_retention_counts_what_sp_would_do(self, pairs: TrainingPairs) -> None:
        similarity = np.random.default_rng(0).random(200)
        for row in retention_table(pairs, similarity, RANDOM, quality(0.3, 0.9)):
            settings = {"k": row.k}
            method = opera.methods.METHODS["sp"]
            scores = opera.methods.PairScores(pairs, similarity, np.zeros(200))
            made = method(pairs, opera.methods.Plan(0, 1, 1), method.settings_class.parse(settings), scores)
            assert row.kept_pairs == made.summary()["kept_pairs"]
            assert row.lost_queries == pytest.approx(1 - made.summary()["kept_queries"] / 50)
            assert row.precision >= 0.7 - 1e-9
            assert row.gain >= -1e-9

    def test_little_noise_calls_for_ft(self, pairs: TrainingPairs) -> None:
        similarity = np.random.default_rng(0).random(200)
        for seen in (quality(0.01, 0.9), quality(0.12, 0.9, error=0.05)):  # the second cannot be told from 5%
            assert advise(seen, retention_table(pairs, similarity, RANDOM, seen)).method == "ft"

    def test_weak_scores_call_for_ft(self, pairs: TrainingPairs) -> None:
        similarity = np.random.default_rng(0).random(200)
        advice = advise(quality(0.4, 0.55), retention_table(pairs, similarity, RANDOM, quality(0.4, 0.55)))
        assert advice.method == "ft"
        assert "AUC 0.55" in advice.reason

    def test_more_noise_than_signal_is_rather_a_blind_model(self, pairs: TrainingPairs) -> None:
        similarity = np.random.default_rng(0).random(200)
        advice = advise(quality(0.65, 0.9), retention_table(pairs, similarity, RANDOM, quality(0.65, 0.9)))
        assert advice.method == "dp"
        assert "inspect with a better model" in advice.reason

    def test_known_noise_and_good_scores_call_for_sp(self, pairs: TrainingPairs) -> None:
        similarity = np.tile([0.9, 0.8, 0.7, 0.1], 50) + np.random.default_rng(0).random(200) / 100
        advice = advise(quality(0.25, 0.95), retention_table(pairs, similarity, RANDOM, quality(0.25, 0.95)))
        assert (advice.method, advice.k, advice.if_trusted) == ("sp", 0.75, "ft")
        assert "lose 0.0% of the queries" in advice.reason

    def test_no_k_that_spares_the_queries_calls_for_dp(self) -> None:
        pairs = TrainingPairs.of(np.arange(100), np.arange(100))
        similarity = np.random.default_rng(0).random(100)
        advice = advise(
            quality(0.3, 0.9), [r for r in retention_table(pairs, similarity, RANDOM, quality(0.3, 0.9)) if r.k < 0.9]
        )
        assert advice.method == "dp"
        assert "loses more than 10%" in advice.reason

    @given(st.floats(0, 1), st.floats(0.01, 0.99))
    def test_any_estimate_gives_advice(self, noise: float, auc: float) -> None:
        pairs = TrainingPairs.of(np.repeat(np.arange(10), 4), np.arange(40))
        similarity = np.random.default_rng(0).random(40)
        retentions = retention_table(pairs, similarity, RANDOM, quality(noise, auc))
        assert [r.k for r in retentions] == list(RETENTIONS)
        advice = advise(quality(noise, auc), retentions)
        assert advice.method in ("ft", "sp", "dp")
        assert (advice.k is not None) == (advice.method == "sp")
        assert np.isfinite(dynamic_gain(similarity, RANDOM, quality(noise, auc)))


def test_word_overlap() -> None:
    assert word_overlap(words_of("The cat, the mat"), words_of("the CAT mat")) == 1
    assert word_overlap(words_of("a b c d"), words_of("a b c e")) == 3 / 5
    assert word_overlap(words_of("!"), words_of("?")) == 0


def test_histograms_show_everything_that_is_there() -> None:
    assert histogram([0, 0.001, 0.5, 1], 1) == " ▁▄█"


def overlap(one: str, other: str) -> bool:
    return word_overlap(words_of(one), words_of(other)) >= 0.8


def twins_by_hand(data: opera.RetrievalData) -> tuple[int, int]:
    """Count test queries with a near-duplicate in train, and their pairs whose document is labelled for it."""
    train, test = data.training_split(), data.split("test").relevant()
    asked, near, leaked = data.queries.texts(train.query_rows), 0, 0
    for at, text in enumerate(data.queries.texts(test.query_rows)):
        rows = [row for row, other in enumerate(asked) if overlap(text, other)]
        known = {int(d) for row in rows for d in train.doc_rows[train.offsets[row] : train.offsets[row + 1]]}
        near += bool(rows)
        leaked += sum(int(d) in known for d in test.doc_rows[test.offsets[at] : test.offsets[at + 1]])
    return near, leaked


@pytest.fixture
def spoilt(make_beir: Callable[..., Path]) -> Path:
    """Topics with a document copied, a query repeated in test with the same label, and dev absent."""
    folder = make_beir()
    corpus = (folder / "corpus.jsonl").read_text().splitlines()
    first = json.loads(corpus[0])
    (folder / "corpus.jsonl").write_text("\n".join([*corpus, json.dumps({**first, "_id": "copy"})]) + "\n")
    queries = (folder / "queries.jsonl").read_text().splitlines()
    asked = next(json.loads(line) for line in queries if json.loads(line)["_id"] == "train0")
    (folder / "queries.jsonl").write_text("\n".join([*queries, json.dumps({**asked, "_id": "twin"})]) + "\n")
    train = [line.split("\t") for line in (folder / "qrels" / "train.tsv").read_text().splitlines()]
    labelled = next(doc for query, doc, _ in train if query == "train0")
    with (folder / "qrels" / "test.tsv").open("a") as file:
        file.write(f"twin\t{labelled}\t1\n")
    return folder


def test_everything_is_said(spoilt: Path, static_model: Path) -> None:
    seen = opera.inspect(spoilt, model=static_model, show=5)
    data = opera.load_data(spoilt)
    assert seen.counts == data.counts()
    assert opera.inspect(spoilt, model=static_model, relevant_grade=2).grades == seen.grades
    assert sum(seen.grades["train"].values()) == len(data.split("train").doc_rows)
    assert seen.spread.mean == pytest.approx(seen.counts["train_pairs"] / 40)
    twins = twins_by_hand(data)
    assert seen.documents.copies == len(data.corpus) - len(set(data.corpus.texts()))
    assert seen.documents.near == sum(
        any(overlap(a, b) for b in data.corpus.texts()[:i] + data.corpus.texts()[i + 1 :])
        for i, a in enumerate(data.corpus.texts())
    )
    found = seen.leaks["test"]
    assert (found.near_queries, found.leaked_pairs) == twins
    train, test = data.training_split(), data.split("test").relevant()
    assert (found.queries, found.pairs) == (test.n_queries, len(test.doc_rows))
    assert found.shared_documents == len(set(test.doc_rows.tolist()) & set(train.doc_rows.tolist()))
    assert len(seen.suspicious) == 5
    beaten = [pair.beaten_by for pair in seen.suspicious]
    assert beaten == sorted(beaten, reverse=True)
    assert sum(seen.similarities.labelled_counts) == pytest.approx(1)
    again = opera.inspect(spoilt, model=static_model, show=5)
    assert again == seen


def test_text_and_json_say_the_same(spoilt: Path, static_model: Path) -> None:
    seen = opera.inspect(spoilt, model=static_model, show=2)
    screen = Console(width=140, record=True, file=io.StringIO())
    print_inspection(screen, seen)
    text = screen.export_text()
    for words in (
        "Counts",
        "positives a query",
        "queries lost",
        "Near-duplicates",
        "test in train",
        "Advice",
        "--method",
    ):
        assert words in text
    done = CliRunner().invoke(app, ["inspect", str(spoilt), "--model", str(static_model), "--show", "2", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["advice"]["method"] == seen.advice.method
    done = CliRunner().invoke(app, ["inspect", str(spoilt), "--model", str(static_model), "--show", "0"])
    assert done.exit_code == 0, done.output
    assert "The most suspicious training pairs" not in done.output


def test_data_of_one_pair_without_other_splits(tmp_path: Path, static_model: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps({"query": "t1w5", "pos": ["t1w1"]}))
    seen = opera.inspect(path, model=static_model)
    assert seen.leaks == {}
    screen = Console(width=140, record=True, file=io.StringIO())
    print_inspection(screen, seen)
    text = screen.export_text()
    assert "no split but train" in text
    assert "too few to estimate noise" in text


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert one_line("a\x1b]0;owned\x07b\n\tc [red]d[/red]") == "a ]0;owned b c [red]d[/red]"


def test_data_without_training_pairs_are_refused(beir: Path, static_model: Path) -> None:
    with pytest.raises(DataError, match="nothing to train on"):
        opera.inspect(beir, model=static_model, relevant_grade=9)


@pytest.mark.shared
def test_scifact_has_test_claims_in_train(shared: Path) -> None:
    """Real data: many SciFact claims are negations of others, on both sides of the split; its labels are clean."""
    seen = opera.inspect(shared / "data" / "scifact", model=shared / "models" / "potion-base-4m")
    assert seen.leaks["test"].near_queries > 50
    assert seen.quality.noise < 0.05
    assert seen.quality.auc > 0.95
    assert seen.advice.method == "ft"
