"""The sampler, the loss, scores and negatives, each against the plain way of computing it."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from opera.core.errors import SettingError, TrainingError
from opera.core.rng import generator
from opera.data import Qrels, load_data
from opera.data.pairs import TrainingPairs
from opera.methods import METHODS, Plan
from opera.retrieval.encoder import Encoder
from opera.retrieval.measures import Ranking
from opera.retrieval.models import load_model
from opera.retrieval.search import exact_search
from opera.retrieval.similarity import pair_similarities
from opera.training.checkpoint import flatten, nest
from opera.training.dataset import PairDataset
from opera.training.loss import InfoNCELoss, info_nce_losses
from opera.training.sampler import PairSampler, Row
from opera.training_set.cbs import rank_among_random
from opera.training_set.known_positives import KnownPositives
from opera.training_set.negatives import ListedNegatives, RandomNegatives, mine_hard_negatives
from opera.training_set.noise import (
    ListedCandidates,
    RandomCandidates,
    add_false_positives,
    add_lower_grades,
    false_positive_count,
)
from opera.training_set.pretrained_scores import pretrained_losses, pretrained_scores


@pytest.fixture
def pairs() -> TrainingPairs:
    return TrainingPairs.of(np.array([0, 0, 1, 2, 2, 2, 3]), np.array([4, 7, 4, 1, 2, 3, 9]))


def unit(rng: np.random.Generator, *shape: int) -> np.ndarray:
    vectors = rng.normal(size=shape).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def trained(sampler: PairSampler) -> list[list[Row]]:
    """Take every batch, observing each step's whole when its last batch is taken, as processes together would."""
    batches = []
    for batch in sampler:
        batches.append(batch)
        step, size = batch[0].step, sampler.method.plan.batch_size
        if sum(b[0].step == step for b in batches) * len(batch) * sampler.world_size == size:
            pair_ids = np.concatenate(
                [sampler.batch_at(step, b[0].position).pair_ids for b in batches if b[0].step == step]
            )
            sampler.observe(step, pair_ids, np.full(size, 0.5), np.full(size, 1.0))
            sampler.finish(step)
    return batches


class TestPairs:
    def test_gaps_and_disorder_are_refused(self) -> None:
        for bad in ([0, 2], [1, 1], [1, 0], []):
            with pytest.raises(ValueError, match="sorted"):
                TrainingPairs.of(np.array(bad, dtype=int), np.zeros(len(bad), dtype=int))

    @given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), min_size=1, unique=True))
    def test_known_positives_are_exactly_the_pairs(self, drawn: list[tuple[int, int]]) -> None:
        queries = sorted({q for q, _ in drawn})
        renumbered = sorted((queries.index(q), d) for q, d in drawn)
        made = TrainingPairs.of(np.array([q for q, _ in renumbered]), np.array([d for _, d in renumbered]))
        table = KnownPositives(made, 10).contains(np.arange(len(queries))[:, None], np.arange(10))
        assert {(int(q), int(d)) for q, d in zip(*np.nonzero(table), strict=True)} == set(renumbered)


class TestScores:
    def test_similarity_and_loss_are_the_plain_formulas(self, pairs: TrainingPairs) -> None:
        rng = np.random.default_rng(0)
        queries, corpus = unit(rng, 4, 6), unit(rng, 12, 6)
        known = KnownPositives(pairs, 12)
        similarity = pair_similarities(pairs, queries, corpus)
        for masked in (None, known):
            losses = pretrained_losses(pairs, queries, corpus, similarity, 0.1, 12, 0, masked)
            for pair in range(pairs.n_pairs):
                query, doc = pairs.pair_query[pair], pairs.pair_doc[pair]
                others = [
                    d
                    for d in range(12)
                    if d != doc and not (masked and known.contains(np.array([query]), np.array([d]))[0])
                ]
                logits = np.array([queries[query] @ corpus[d] for d in [doc, *others]], dtype=np.float64) / 0.1
                assert similarity[pair] == pytest.approx(queries[query] @ corpus[doc], abs=1e-6)
                assert losses[pair] == pytest.approx(np.log(np.exp(logits).sum()) - logits[0], abs=1e-4)

    def test_the_random_set_is_as_large_as_asked_and_depends_on_the_seed(self, pairs: TrainingPairs) -> None:
        rng = np.random.default_rng(0)
        queries, corpus = unit(rng, 4, 6), unit(rng, 200, 6)
        made = [pretrained_scores(pairs, queries, corpus, 0.1, 8, seed, None).loss for seed in (0, 0, 1)]
        assert np.array_equal(made[0], made[1])
        assert not np.array_equal(made[0], made[2])
        assert (made[0] < math.log(8 + 1) + 2 / 0.1).all()


class TestConsistency:
    @pytest.mark.parametrize("pool_size", [2, 5, 10_000])
    def test_it_is_the_rank_among_positives_of_other_queries(self, pool_size: int) -> None:
        rng = np.random.default_rng(1)
        pairs = TrainingPairs.of(np.repeat(np.arange(6), 3), rng.integers(20, size=18))
        queries, corpus = unit(rng, 6, 5), unit(rng, 20, 5)
        found = rank_among_random(pairs, queries, corpus, pool_size, seed=3)
        in_order = generator(3, "score.consistency").permutation(np.unique(pairs.pair_doc))
        for pair in range(pairs.n_pairs):
            query = pairs.pair_query[pair]
            own = set(pairs.pair_doc[pairs.pair_query == query].tolist())
            pool = [doc for doc in in_order.tolist() if doc not in own][:pool_size]
            above = sum(queries[query] @ corpus[doc] > queries[query] @ corpus[pairs.pair_doc[pair]] for doc in pool)
            assert found.rank[pair] == above + 1
            assert found.pool[pair] == len(pool)
            assert found.cbs[pair] == np.float32(1 / (above + 1))

    def test_smaller_pools_are_said(self, pairs: TrainingPairs) -> None:
        rng = np.random.default_rng(0)
        found = rank_among_random(pairs, unit(rng, 4, 5), unit(rng, 12, 5), 10_000, seed=0)
        assert "cbs_pool=10000: there are fewer" in found.small_pool_note(10_000)
        assert found.small_pool_note(found.smallest_pool) == ""

    def test_copies_of_the_document_do_not_push_it_down(self) -> None:
        pairs = TrainingPairs.of(np.array([0, 1, 2]), np.array([0, 1, 2]))
        corpus = np.tile(unit(np.random.default_rng(2), 1, 300), (3, 1))
        assert rank_among_random(pairs, unit(np.random.default_rng(3), 3, 300), corpus, 10, 0).rank.tolist() == [1] * 3

    def test_one_query_alone_has_nobody_to_rank_among(self) -> None:
        pairs = TrainingPairs.of(np.zeros(3, dtype=int), np.arange(3))
        rng = np.random.default_rng(0)
        found = rank_among_random(pairs, unit(rng, 1, 4), unit(rng, 3, 4), 10, 0)
        assert found.cbs.tolist() == [1, 1, 1]
        assert found.smallest_pool == 0


class TestNoise:
    @pytest.fixture
    def clean(self) -> Qrels:
        query = np.repeat([3, 5, 9], [4, 1, 7])
        return Qrels.from_arrays(query, np.concatenate([np.arange(4), [7], np.arange(7)]), np.ones(12, dtype=int))

    @pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
    def test_random_false_positives_make_up_the_share(self, clean: Qrels, share: float) -> None:
        noisy = add_false_positives(clean, share, 0, RandomCandidates(clean, 500))
        assert noisy.count == false_positive_count(12, share)
        assert noisy.injected.mean() == pytest.approx(share, abs=1 / 12)
        keys = noisy.qrels.query_index.astype(int) * 500 + noisy.qrels.doc_rows
        assert len(np.unique(keys)) == len(keys)
        true = noisy.qrels.query_rows[noisy.qrels.query_index[~noisy.injected]]
        assert true.tolist() == clean.query_rows[clean.query_index].tolist()
        assert noisy.qrels.doc_rows[~noisy.injected].tolist() == clean.doc_rows.tolist()
        again = add_false_positives(clean, share, 0, RandomCandidates(clean, 500))
        assert np.array_equal(noisy.qrels.doc_rows, again.qrels.doc_rows)

    def test_random_candidates_are_every_other_document(self, clean: Qrels) -> None:
        candidates = RandomCandidates(clean, 9)
        for query, own in ((0, {0, 1, 2, 3}), (1, {7}), (2, set(range(7)))):
            count = int(candidates.available[query])
            assert set(candidates.draw(query, generator(0, "test"), count).tolist()) == set(range(9)) - own

    def test_hard_ones_come_from_the_list_until_it_ends(self, clean: Qrels) -> None:
        mined = ListedNegatives.from_lists([np.array([20, 21]), np.array([22]), np.array([23, 24, 25])], 100)
        noisy = add_false_positives(clean, 0.9, 0, ListedCandidates(mined))
        assert sorted(noisy.qrels.doc_rows[noisy.injected]) == [20, 21, 22, 23, 24, 25]
        assert noisy.count < false_positive_count(12, 0.9)

    def test_what_one_query_cannot_take_goes_to_the_others(self, clean: Qrels) -> None:
        mined = ListedNegatives.from_lists([np.array([20]), np.array([], dtype=int), np.arange(30, 60)], 100)
        noisy = add_false_positives(clean, 0.5, 0, ListedCandidates(mined))
        assert noisy.count == 12
        assert noisy.injected.mean() == 0.5

    def test_graded_down_lets_in_the_levels_asked_for(self) -> None:
        judged = Qrels.from_arrays(np.array([0, 0, 0, 0, 1]), np.arange(5), np.array([1, 2, 3, 4, 2]))
        clean = judged.select_queries(np.array([True, False]))
        clean = Qrels.from_arrays(np.zeros(2, dtype=int), np.array([2, 3]), np.array([3, 4]))
        noisy = add_lower_grades(clean, judged, relevant_grade=3, noise_grade=2)
        assert noisy.qrels.grades.tolist() == [2, 3, 4, 2]
        assert noisy.injected.tolist() == [True, False, False, True]


class TestNegatives:
    def test_mined_come_from_the_ranks_and_are_no_positives(self, beir: Path, static_model: Path) -> None:
        data = load_data(beir)
        training = data.training_split()
        pairs, encoder = training.pairs(), Encoder(load_model(static_model, "cpu"))
        queries, corpus = encoder.encode_queries(data, training.query_rows), encoder.encode_corpus(data)
        known = KnownPositives(pairs, len(corpus))
        ranking = exact_search(queries, corpus, data.corpus, 20)
        mined = mine_hard_negatives(ranking, known, (3, 20), 5, seed=0)
        for query in range(pairs.n_queries):
            found = mined.doc_rows[mined.offsets[query] : mined.offsets[query + 1]]
            allowed = set(ranking.doc_rows[query][2:20]) - set(pairs.pair_doc[pairs.pair_query == query])
            assert set(found.tolist()) <= allowed
            assert len(found) == min(5, len(allowed))

    def test_a_range_past_the_corpus_is_refused(self, pairs: TrainingPairs) -> None:
        ranking = Ranking(np.zeros((4, 120), dtype=np.int32), np.zeros((4, 120), dtype=np.float32))
        with pytest.raises(SettingError, match=r"range=500:600 starts past the end of the corpus \(120 documents\)"):
            mine_hard_negatives(ranking, KnownPositives(pairs, 120), (500, 600), 5, 0)

    def test_draws(self) -> None:
        listed = ListedNegatives.from_lists([np.array([3, 5, 8]), np.array([], dtype=int), np.array([2])], 10)
        assert listed.queries_without == 1
        for step in range(50):
            drawn = listed.draw(np.array([0, 1, 2]), 2, seed=0, step=step)
            assert set(drawn[0]) <= {3, 5, 8}
            assert len(set(drawn[0])) == 2
            assert (drawn[1] < 10).all()
            assert drawn[2].tolist() == [2, 2]
        random = RandomNegatives(10)
        assert np.array_equal(random.draw(np.arange(4), 3, 0, 1), random.draw(np.arange(4), 3, 0, 1))
        assert not np.array_equal(random.draw(np.arange(4), 3, 0, 1), random.draw(np.arange(4), 3, 0, 2))


class TestSampler:
    def make(self, pairs: TrainingPairs, lag: int = 1, micro: int = 2, rank: int = 0, world: int = 1) -> PairSampler:
        scores = pretrained_scores(
            pairs, np.eye(4, 6, dtype=np.float32), np.eye(12, 6, dtype=np.float32), 0.1, 8, 0, None
        )
        method = METHODS["dp"]
        made = method(pairs, Plan(0, 20, 4), method.settings_class.parse({}), scores)
        return PairSampler(made, pairs, RandomNegatives(12), 2, micro, lag, rank, world)

    def test_length_is_planned_and_kept(self, pairs: TrainingPairs) -> None:
        sampler = self.make(pairs)
        assert len(sampler) == 40
        batches = trained(sampler)
        assert [len(batch) for batch in batches] == [2] * 40
        assert [batch[0].step for batch in batches] == [step for step in range(20) for _ in range(2)]

    def test_a_step_and_a_position_say_everything_about_a_row(self, pairs: TrainingPairs) -> None:
        sampler = self.make(pairs)
        rows = list(itertools.islice(sampler, 2))  # both batches of the first step
        assert [row.position for batch in rows for row in batch] == [0, 1, 2, 3]
        for batch in rows:
            drawn = sampler.batch_at(0, batch[0].position)
            assert pairs.pair_query[drawn.pair_ids].tolist() == [row.query for row in batch]
            assert pairs.pair_doc[drawn.pair_ids].tolist() == [row.doc_rows[0] for row in batch]
            assert drawn.doc_rows.tolist() == [list(row.doc_rows) for row in batch]
            assert drawn.doc_rows.shape == (2, 3)

    @pytest.mark.parametrize("lag", [1, 2, 5])
    def test_a_step_uses_observations_up_to_the_lag_and_no_later(self, pairs: TrainingPairs, lag: int) -> None:
        sampler = self.make(pairs, lag)
        seen: list[int] = []
        sampler.method.observe = lambda ids, *_: seen.append(int(ids[0]))  # type: ignore[method-assign]
        for step in range(10):
            sampler.draw_step(step)
            assert seen == list(range(step - lag + 1))
            sampler.observe(step, np.full(4, step), np.full(4, 0.5), np.full(4, 0.5))

    def test_reading_further_ahead_than_the_lag_is_refused(self, pairs: TrainingPairs) -> None:
        sampler = self.make(pairs, lag=2)
        sampler.draw_step(0)
        sampler.draw_step(1)
        with pytest.raises(RuntimeError, match="step 0 is not observed in full, and with lag=2 a draw needs it"):
            sampler.draw_step(2)
        sampler.observe(0, np.arange(2), np.full(2, 0.5), np.full(2, 0.5))  # one of its two batches
        with pytest.raises(RuntimeError, match="not observed in full"):
            sampler.draw_step(2)

    @pytest.mark.parametrize("world", [1, 2, 4])
    def test_processes_share_each_batch_out(self, pairs: TrainingPairs, world: int) -> None:
        parts = []
        for rank in range(world):
            sampler = self.make(pairs, micro=4 // world, rank=rank, world=world)
            parts.append(trained(sampler))
            assert len(sampler) == 20
        together = [[row for part in step for row in part] for step in zip(*parts, strict=True)]
        assert together == trained(self.make(pairs, micro=4))

    def test_state_round_trips_through_flat_arrays(self, pairs: TrainingPairs, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        observed = [(rng.random(4), rng.random(4)) for _ in range(20)]

        def run(sampler: PairSampler, until: int, ahead: int) -> list[list[Row]]:
            """Train up to a step as a loader that reads ahead would."""
            batches, read = iter(sampler), []
            while sampler.trained_steps < until:
                while len(read) <= sampler.trained_steps - first_step + ahead and (batch := next(batches, None)):
                    read.append(batch)
                step = sampler.trained_steps
                rows = read[step - first_step]
                sampler.observe(step, sampler.batch_at(step, rows[0].position).pair_ids, *observed[step])
                sampler.finish(step)
            return read[: until - first_step]

        first_step = 0
        whole = run(self.make(pairs, lag=3, micro=4), 20, ahead=2)
        first = self.make(pairs, lag=3, micro=4)
        run(first, 9, ahead=2)
        assert first.next_step == 11
        np.savez(tmp_path / "state.npz", **flatten(first.state_dict()))
        second = self.make(pairs, lag=3, micro=4)
        with np.load(tmp_path / "state.npz") as arrays:
            second.load_state_dict(nest(dict(arrays)))
        assert (second.trained_steps, second.next_step) == (9, 11)
        first_step = 9
        assert run(second, 20, ahead=2) == whole[9:]
        assert second.times_drawn().sum() == 80

    def test_bad_lag_and_batch(self, pairs: TrainingPairs) -> None:
        with pytest.raises(ValueError, match="lag"):
            self.make(pairs, lag=0)
        with pytest.raises(ValueError, match="multiple"):
            self.make(pairs, micro=3)


class TestLoss:
    def test_matches_the_formula(self) -> None:
        similarity = torch.randn(3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        excluded = torch.zeros(3, 5, dtype=torch.bool)
        excluded[0, 4] = excluded[2, 0] = True
        got = info_nce_losses(similarity, 0.1, excluded)
        for row in range(3):
            kept = [column for column in range(5) if not excluded[row, column]]
            logits = similarity[row, kept] / 0.1
            expected = torch.logsumexp(logits, 0) - similarity[row, row] / 0.1
            assert got[row].item() == pytest.approx(expected.item())

    def batch(
        self, beir: Path, static_model: Path, n_negatives: int
    ) -> tuple[SentenceTransformer, PairSampler, list, torch.Tensor]:
        data, model = load_data(beir), load_model(static_model, "cpu")
        training = data.training_split()
        pairs = training.pairs()
        method = METHODS["ft"](pairs, Plan(0, 4, 16), None)
        sampler = PairSampler(method, pairs, RandomNegatives(len(data.corpus)), n_negatives, 16)
        dataset = PairDataset(data, training.query_rows, n_negatives, "title_text")
        items = dataset.__getitems__(next(iter(sampler)))
        columns = [name for name in items[0] if name != "label"]
        features = [model.preprocess([item[name] for item in items]) for name in columns]
        return model, sampler, features, torch.tensor([item["label"] for item in items])

    @pytest.mark.parametrize("n_negatives", [0, 1, 3])
    def test_unmasked_it_is_sentence_transformers_own(self, beir: Path, static_model: Path, n_negatives: int) -> None:
        model, sampler, features, labels = self.batch(beir, static_model, n_negatives)
        seen: list[tuple] = []
        ours = InfoNCELoss(model, sampler, 0.05, None, lambda *args: seen.append(args))
        loss = ours([dict(f) for f in features], labels)
        loss.backward()
        gradient = model[0].embedding.weight.grad.clone()
        model.zero_grad()
        theirs = MultipleNegativesRankingLoss(model, scale=20)([dict(f) for f in features], labels)
        theirs.backward()
        assert loss.item() == pytest.approx(theirs.item(), rel=1e-5)
        assert torch.allclose(gradient, model[0].embedding.weight.grad, atol=1e-6)
        step, ids, similarity, losses = seen[0]
        assert step == 0
        assert ids.tolist() == sampler.batch_at(0, 0).pair_ids.tolist()
        assert labels.tolist() == [[0, position] for position in range(16)]
        assert losses.mean() == pytest.approx(loss.item(), rel=1e-6)
        assert (np.abs(similarity) <= 1.0001).all()

    def test_masked_columns_have_no_say(self, beir: Path, static_model: Path) -> None:
        model, sampler, features, labels = self.batch(beir, static_model, 2)
        pairs, drawn = sampler.pairs, sampler.batch_at(0, 0)
        known = KnownPositives(pairs, 120)
        seen: list[tuple] = []
        InfoNCELoss(model, sampler, 0.05, known, lambda *args: seen.append(args))([dict(f) for f in features], labels)
        queries, *docs = (model(dict(f))["sentence_embedding"] for f in features)
        logits = (queries @ torch.cat(docs).T / 0.05).double()
        docs_of_columns = drawn.doc_rows.T.flatten().tolist()
        masked = 0
        for row in range(len(labels)):
            positives = set(pairs.pair_doc[pairs.pair_query == pairs.pair_query[drawn.pair_ids[row]]].tolist())
            keep = [c for c, doc in enumerate(docs_of_columns) if c == row or doc not in positives]
            masked += len(docs_of_columns) - len(keep)
            expected = torch.logsumexp(logits[row, keep], 0) - logits[row, row]
            assert seen[0][3][row] == pytest.approx(expected.item(), abs=1e-4)
        assert masked > 0

    def test_weights_travel_from_the_draw_to_the_loss(self, beir: Path) -> None:
        """From a method's draw through rows and labels to what the loss asks the sampler for."""
        data = load_data(beir)
        training = data.training_split()
        pairs = training.pairs()
        method = METHODS["infobatch"](pairs, Plan(0, 1000, 16), METHODS["infobatch"].settings_class.parse({}))
        method.observe(np.arange(pairs.n_pairs), np.zeros(pairs.n_pairs), pairs.pair_query.astype(float))
        sampler = PairSampler(method, pairs, RandomNegatives(len(data.corpus)), 1, 16)
        dataset = PairDataset(data, training.query_rows, 1, "title_text")
        seen = set()
        for step in range(4):
            sampler.draw_step(step)
            (rows,) = sampler._batches(step)
            labels = [item["label"] for item in dataset.__getitems__(rows)]
            assert labels == [[step, position] for position in range(16)]
            drawn = sampler.batch_at(*labels[0])
            weights, queries = drawn.weights, pairs.pair_query[drawn.pair_ids]
            learned = method.state_dict()["learned"][queries]
            if step < 2:  # the first pruned pass has 20 queries above the mean and 15 of the 20 below
                assert np.array_equal(weights, np.where(learned, np.float32(1 / 0.75), np.float32(1)))
            seen |= set(weights.tolist())
            sampler.observe(step, drawn.pair_ids, np.zeros(16), queries.astype(float))
        assert seen == {1.0, float(np.float32(1 / 0.75))}

    def test_weights_multiply_the_loss_and_not_what_is_observed(self, beir: Path, static_model: Path) -> None:
        model, sampler, features, labels = self.batch(beir, static_model, 1)
        weights = np.linspace(0.5, 2, len(labels)).astype(np.float32)
        seen: list[tuple] = []
        loss = InfoNCELoss(model, sampler, 0.05, None, lambda *args: seen.append(args))
        plain = loss([dict(f) for f in features], labels)
        sampler._untrained[0].weights[:] = weights
        mixed = loss([dict(f) for f in features], labels)
        assert np.array_equal(seen[0][3], seen[1][3])
        assert plain.item() == pytest.approx(seen[0][3].mean(), rel=1e-6)
        assert mixed.item() == pytest.approx((seen[0][3] * weights).mean(), rel=1e-6)

    def test_a_loss_that_is_no_number_ends_training(self, beir: Path, static_model: Path) -> None:
        model, sampler, features, labels = self.batch(beir, static_model, 1)
        with torch.no_grad():
            model[0].embedding.weight.fill_(torch.nan)
        loss = InfoNCELoss(model, sampler, 0.05, None, lambda *_: None)
        with pytest.raises(TrainingError, match="step 0: the loss is not a finite number; lower learning_rate"):
            loss([dict(f) for f in features], labels)


@given(st.recursive(st.integers(), lambda inner: st.dictionaries(st.text("abc", min_size=1), inner, min_size=1)))
@settings(max_examples=50)
def test_flatten_and_nest_undo_each_other(value: object) -> None:
    state = {"root": value}
    assert nest(flatten(state)) == state
