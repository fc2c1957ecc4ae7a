"""The sampler: steps, batches, lag, quotas and state."""

from __future__ import annotations

import numpy as np
import pytest

from distinct import pool_of
from opera.core.errors import TrainingError
from opera.data.pairs import TrainingPairs
from opera.engine.sampler import Batch, PairSampler, SetSampler
from opera.methods import METHODS, Plan
from opera.training_set.negatives import RandomNegatives
from opera.training_set.pretrained_scores import pretrained_scores
from opera.training_set.quotas import Quotas
from worlds import make_pairs

PAIRS = TrainingPairs.from_arrays(np.array([0, 0, 1, 2, 2, 2, 3]), np.array([4, 7, 4, 1, 2, 3, 9]))


def make_sampler(lag: int = 1, micro: int = 2, rank: int = 0, world: int = 1) -> PairSampler:
    scores, _ = pretrained_scores(
        PAIRS, np.eye(4, 6, dtype=np.float32), np.eye(12, 6, dtype=np.float32), 0.1, 8, 0, None, pool_of(12)
    )
    plan = Plan(0, 20, 4)
    method = METHODS["dp"](PAIRS, plan, METHODS["dp"].settings_class.parse({}), scores)
    sets = [SetSampler(method, RandomNegatives(pool_of(12)))]
    return PairSampler(sets, PAIRS, plan, micro, n_negatives=2, lag=lag, rank=rank, world_size=world)


def train(sampler: PairSampler, step: int, seed: int = 0) -> None:
    """Observe a step as all processes together would."""
    ids = sampler.sampled[step]
    values = np.random.default_rng([seed, step]).random((3, len(ids)))
    for part in np.split(np.arange(len(ids)), len(ids) // sampler.batch_size):
        sampler.observe(ids[part], *values[:, part])


@pytest.mark.parametrize("world", [1, 2, 4])
def test_processes_share_each_step_out_and_its_pairs_say_which_part_it_is(world: int) -> None:
    samplers = [make_sampler(micro=4 // world, rank=rank, world=world) for rank in range(world)]
    readers = [iter(sampler) for sampler in samplers]
    alone = make_sampler(micro=4)
    for step, whole in enumerate(alone):
        parts = [next(reader) for reader in readers]
        assert np.concatenate([part.pair_ids for part in parts]).tolist() == whole.pair_ids.tolist()
        assert np.concatenate([part.doc_rows for part in parts]).tolist() == whole.doc_rows.tolist()
        assert (PAIRS.pair_query[whole.pair_ids] == whole.queries).all()
        assert (PAIRS.pair_doc[whole.pair_ids] == whole.doc_rows[:, 0]).all()
        for sampler, part in zip(samplers, parts, strict=True):
            batch = sampler.batch(part.pair_ids)
            assert batch.step == step
            assert batch.doc_rows.tolist() == whole.doc_rows.tolist()
            assert batch.pair_ids[batch.local].tolist() == part.pair_ids.tolist()
        for sampler in (*samplers, alone):
            train(sampler, step)
    assert alone.trained_steps == len(alone) == len(samplers[0]) == 20


def test_batches_that_were_not_drawn_are_refused() -> None:
    sampler = make_sampler()
    first = next(iter(sampler)).pair_ids
    with pytest.raises(TrainingError, match="a batch that the method did not sample"):
        sampler.batch(np.array([6, 6]))
    train(sampler, 0)
    with pytest.raises(TrainingError, match="a batch that the method did not sample"):
        sampler.batch(first)


@pytest.mark.parametrize("lag", [1, 2, 5])
def test_a_step_uses_observations_up_to_the_lag_and_no_later(lag: int) -> None:
    sampler, seen = make_sampler(lag, micro=4), list[int]()
    sampler.sets[0].method.observe = lambda ids, *_: seen.append(ids.tolist())  # type: ignore[method-assign]
    drawn = []
    for step in range(7):
        drawn.append(sampler.sample_step(step).pair_ids.tolist())
        assert seen == drawn[: max(0, step - lag + 1)]
        train(sampler, step)


def test_reading_further_ahead_than_the_lag_is_refused() -> None:
    sampler = make_sampler(lag=2)
    sampler.sample_step(0)
    sampler.sample_step(1)
    with pytest.raises(match=r"observations of step 0 are missing: .* than lag=2 allows"):
        sampler.sample_step(2)
    sampler.observe(sampler.sampled[0][:2], *np.full((3, 2), 0.5))  # one of its two batches
    with pytest.raises(match="observations of step 0 are missing"):
        sampler.sample_step(2)


@pytest.mark.parametrize("one_set", [False, True])
@pytest.mark.parametrize("probabilities", [(0.5, 0.5), (0.9, 0.1), (0.999, 0.001), (0.2, 0.3, 0.5)])
def test_sets_give_their_quotas(probabilities: tuple[float, ...], one_set: bool) -> None:
    quotas, batch = Quotas(np.array(probabilities), one_set), 16
    counts = np.zeros(len(probabilities))
    plans = quotas.plans(Plan(0, 400, batch))
    for step in range(400):
        given = quotas.of_step(step, batch)
        assert given.sum() == batch
        assert (given <= [plan.batch_size for plan in plans]).all()
        counts += given
        off = np.abs(counts - np.array(probabilities) * (step + 1) * batch)
        assert off.max() <= (batch if one_set else 1) * len(probabilities)
    assert all(plan.max_steps * plan.batch_size >= count for plan, count in zip(plans, counts, strict=True))


def test_weights_are_those_of_the_draw_times_those_of_the_pairs() -> None:
    """Queries whose loss is below the mean are learned: InfoBatch weighs them up."""
    pairs = make_pairs([2] * 40)
    method = METHODS["infobatch"](pairs, Plan(0, 1000, 16), METHODS["infobatch"].settings_class())
    method.observe(np.arange(80), np.zeros(80), pairs.pair_query.astype(float))
    of_pairs, seen = np.linspace(0.5, 1.5, 80).astype(np.float32), set[float]()
    sampler = PairSampler([SetSampler(method)], pairs, method.plan, 16, pair_weights=of_pairs)
    for step in range(4):
        batch: Batch = sampler.sample_step(step)
        factors = batch.weights / of_pairs[batch.pair_ids]
        seen |= set(np.round(factors, 5).tolist())
        sampler.observe(batch.pair_ids, np.zeros(16), batch.queries.astype(float), np.zeros(16))
    assert sorted(seen) == pytest.approx([1, 1 / 0.75], abs=1e-4)
