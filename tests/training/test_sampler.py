"""The sampler: steps, batches, lag, quotas and state."""

import numpy as np
import pytest

from distinct import pool_of
from opera.data.pairs import TrainingPairs
from opera.labels.estimate import FirstVisits
from opera.methods import METHODS, Draw, Method, Plan
from opera.retrieval.passages import DocumentVectors
from opera.training.negatives import RandomNegatives
from opera.training.pretrained_scores import pretrained_scores
from opera.training.sampler import DataSetSampler, Observations, Quotas, Sampler

PAIRS = TrainingPairs.from_arrays(np.array([0, 0, 1, 2, 2, 2, 3]), np.array([4, 7, 4, 1, 2, 3, 9]))


def make_sampler(lag: int = 1, micro: int = 2, rank: int = 0, world: int = 1) -> Sampler:
    scores = pretrained_scores(
        PAIRS,
        np.eye(4, 6, dtype=np.float32),
        DocumentVectors(np.eye(12, 6, dtype=np.float32)),
        0.1,
        8,
        0,
        None,
        pool_of(12),
    )
    plan = Plan(0, 20, 4)
    method = METHODS["dp"](PAIRS, plan, METHODS["dp"].settings_class.parse({}), scores)
    sets = [DataSetSampler(method, RandomNegatives(pool_of(12)))]
    return Sampler(sets, PAIRS, plan, micro, n_negatives=2, lag=lag, rank=rank, world_size=world)


def train(sampler: Sampler, step: int, seed: int = 0) -> None:
    """Observe a step of four pairs in two batches."""
    ids = sampler.sampled[step]
    values = np.random.default_rng([seed, step]).random((3, len(ids)))
    for part in (slice(0, 2), slice(2, 4)):
        sampler.observe(step, Observations(ids[part], *values[:, part]))


@pytest.mark.parametrize("world", [1, 2, 4])
def test_processes_share_each_step_out(world):
    samplers = [make_sampler(micro=4 // world, rank=rank, world=world) for rank in range(world)]
    readers = [iter(sampler) for sampler in samplers]
    alone = make_sampler(micro=4)
    for step, batch_alone in enumerate(alone):
        batches = [next(reader) for reader in readers]
        parts = [batch.pair_ids[batch.local] for batch in batches]
        assert np.concatenate(parts).tolist() == batch_alone.pair_ids.tolist()
        assert (PAIRS.pair_query[batch_alone.pair_ids] == batch_alone.queries).all()
        assert (PAIRS.pair_doc[batch_alone.pair_ids] == batch_alone.doc_rows[:, 0]).all()
        for batch in batches:
            assert batch.step == step
            assert batch.doc_rows.tolist() == batch_alone.doc_rows.tolist()
        for sampler in (*samplers, alone):
            train(sampler, step)
    assert alone.trained_steps == len(alone) == len(samplers[0]) == 20


def test_reading_further_ahead_than_the_lag_is_refused():
    sampler = make_sampler(lag=2)
    sampler.sample_step(0)
    sampler.sample_step(1)
    with pytest.raises(match=r"observations of step 0 are missing: .* than lag=2 allows"):
        sampler.sample_step(2)
    sampler.observe(0, Observations(sampler.sampled[0][:2], *np.full((3, 2), 0.5)))  # one of its two batches
    with pytest.raises(match="observations of step 0 are missing"):
        sampler.sample_step(2)


@pytest.mark.parametrize("one_set", [False, True])
@pytest.mark.parametrize("probabilities", [(0.5, 0.5), (0.9, 0.1), (0.999, 0.001), (0.2, 0.3, 0.5)])
def test_sets_give_their_quotas(probabilities, one_set):
    quotas, batch = Quotas(np.array(probabilities), one_set), 16
    counts = np.zeros(len(probabilities))
    plans = quotas.plans(Plan(0, 400, batch))
    for step in range(400):
        quota = quotas.of_step(step, batch)
        assert quota.sum() == batch
        assert (quota <= [plan.batch_size for plan in plans]).all()
        counts += quota
        off = np.abs(counts - np.array(probabilities) * (step + 1) * batch)
        assert off.max() <= (batch if one_set else 1) * len(probabilities)
    assert all(plan.max_steps * plan.batch_size >= count for plan, count in zip(plans, counts, strict=True))


def in_turn(pairs: TrainingPairs, plan: Plan) -> Method:
    """Make a method that draws all pairs in turn, weighted by their number."""

    def draw(step: int) -> Draw:
        ids = np.arange(step * plan.batch_size, (step + 1) * plan.batch_size) % pairs.n_pairs
        return Draw(ids, 1 + ids.astype(np.float32))

    method = METHODS["ft"](pairs, plan, METHODS["ft"].settings_class())
    method.draw = draw
    return method


def test_several_sets_lose_no_pair_and_each_pair_keeps_its_document_and_weight():
    pairs, *parts = (TrainingPairs.from_arrays(np.arange(size), np.arange(size)) for size in (12, 5, 7))
    quotas, plan, factors = Quotas(np.array([0.3, 0.7])), Plan(0, 30, 8), np.arange(1, 13) / 4
    sets = [
        DataSetSampler(in_turn(part, of_set), first_doc_row=first)
        for part, of_set, first in zip(parts, quotas.plans(plan), (0, 5), strict=True)
    ]
    visits = FirstVisits.none(12, np.array([0, 5, 12]))
    batches = [*Sampler(sets, pairs, plan, 4, quotas=quotas, lag=30, pair_weights=factors, visits=visits)]
    ids = np.concatenate([batch.pair_ids for batch in batches])
    numbers = np.where(ids < 5, ids, ids - 5)
    assert np.concatenate([batch.weights for batch in batches]) == pytest.approx((1 + numbers) * factors[ids])
    assert np.concatenate([batch.doc_rows[:, 0] for batch in batches]).tolist() == ids.tolist()
    for rows in (ids < 5, ids >= 5):
        assert np.ptp(np.bincount(numbers[rows])) <= 1
    assert {batch.sets[0] for batch in batches[::2]} == {0, 1}, "a step's first batch has both sets in mixed order"


def test_methods_see_first_visits_after_the_lag_and_the_end_of_a_run_sees_all():
    sampler = make_sampler(lag=2)
    for step in range(3):
        schedule = sampler.sample_step(step).schedule
        assert schedule == sampler.sets[0].method.schedule(step)
        used = sampler.sampled[:1] if step == 2 else []
        assert np.flatnonzero(sampler.visits.visited).tolist() == np.unique(used).tolist()
        train(sampler, step)
    assert np.flatnonzero(sampler.all_visits().visited).tolist() == np.unique(sampler.sampled).tolist()
    assert not sampler.visits.visited.all(), "only those of the first step"
