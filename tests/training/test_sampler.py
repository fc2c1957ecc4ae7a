"""The sampler: steps, batches, lag and state; and the probabilities that it records."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from distinct import pool_of
from opera.data import load_data
from opera.data.pairs import TrainingPairs
from opera.methods import METHODS, Plan
from opera.training.checkpoint import flatten, nest
from opera.training.dataset import text_dataset
from opera.training.sampler import NotObservedError, PairSampler, Row
from opera.training_set.negatives import RandomNegatives
from opera.training_set.pretrained_scores import pretrained_scores


@pytest.fixture
def pairs() -> TrainingPairs:
    return TrainingPairs.from_arrays(np.array([0, 0, 1, 2, 2, 2, 3]), np.array([4, 7, 4, 1, 2, 3, 9]))


def make_sampler(pairs: TrainingPairs, lag: int = 1, micro: int = 2, rank: int = 0, world: int = 1) -> PairSampler:
    scores, _ = pretrained_scores(
        pairs, np.eye(4, 6, dtype=np.float32), np.eye(12, 6, dtype=np.float32), 0.1, 8, 0, None, pool_of(12)
    )
    method = METHODS["dp"]
    made = method(pairs, Plan(0, 20, 4), method.settings_class.parse({}), scores)
    return PairSampler(made, pairs, RandomNegatives(pool_of(12)), 2, micro, lag, rank, world)


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
            sampler.observe(step, pair_ids, np.full(size, 0.5), np.full(size, 1.0), np.full(size, 0.1))
            sampler.finish(step)
    return batches


def test_a_step_and_a_position_say_everything_about_a_row(pairs: TrainingPairs) -> None:
    sampler = make_sampler(pairs)
    rows = list(itertools.islice(sampler, 2))  # both batches of the first step
    assert [row.position for batch in rows for row in batch] == [0, 1, 2, 3]
    for batch in rows:
        drawn = sampler.batch_at(0, batch[0].position)
        assert pairs.pair_query[drawn.pair_ids].tolist() == [row.query for row in batch]
        assert pairs.pair_doc[drawn.pair_ids].tolist() == [row.doc_rows[0] for row in batch]
        assert drawn.doc_rows.tolist() == [list(row.doc_rows) for row in batch]
        assert drawn.doc_rows.shape == (2, 3)


@pytest.mark.parametrize("lag", [1, 2, 5])
def test_a_step_uses_observations_up_to_the_lag_and_no_later(pairs: TrainingPairs, lag: int) -> None:
    sampler = make_sampler(pairs, lag)
    seen: list[int] = []
    sampler.method.observe = lambda ids, *_: seen.append(int(ids[0]))  # type: ignore[method-assign]
    for step in range(7):
        sampler.draw_step(step)
        assert seen == list(range(step - lag + 1))
        sampler.observe(step, np.full(4, step), *np.full((3, 4), 0.5))


def test_reading_further_ahead_than_the_lag_is_refused(pairs: TrainingPairs) -> None:
    sampler = make_sampler(pairs, lag=2)
    sampler.draw_step(0)
    sampler.draw_step(1)
    with pytest.raises(NotObservedError, match="step 0 is not observed in full, and with lag=2 a draw needs it"):
        sampler.draw_step(2)
    sampler.observe(0, np.arange(2), *np.full((3, 2), 0.5))  # one of its two batches
    with pytest.raises(NotObservedError, match="not observed in full"):
        sampler.draw_step(2)


@pytest.mark.parametrize("world", [1, 2, 4])
def test_processes_share_each_batch_out(pairs: TrainingPairs, world: int) -> None:
    parts = []
    for rank in range(world):
        sampler = make_sampler(pairs, micro=4 // world, rank=rank, world=world)
        parts.append(trained(sampler))
        assert len(sampler) == 20
        assert [[row.step for row in batch] for batch in parts[-1]] == [[step] * (4 // world) for step in range(20)]
    together = [[row for part in step for row in part] for step in zip(*parts, strict=True)]
    assert together == trained(make_sampler(pairs, micro=4))


def test_state_round_trips_through_flat_arrays(pairs: TrainingPairs, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    observed = [rng.random((3, 4)) for _ in range(20)]

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
    sampler_of_whole = make_sampler(pairs, lag=3, micro=4)
    whole = run(sampler_of_whole, 20, ahead=2)
    first = make_sampler(pairs, lag=3, micro=4)
    run(first, 9, ahead=2)
    assert first.next_step == 11
    np.savez(tmp_path / "state.npz", **flatten(first.state_dict()))
    second = make_sampler(pairs, lag=3, micro=4)
    with np.load(tmp_path / "state.npz") as arrays:
        second.load_state_dict(nest(dict(arrays)))
    assert (second.trained_steps, second.next_step) == (9, 11)
    first_step = 9
    assert run(second, 20, ahead=2) == whole[9:]
    assert second.times_drawn().sum() == 80
    assert second.schedule == sampler_of_whole.schedule
    assert np.array_equal(second.trained, sampler_of_whole.trained)


def test_bad_lag_and_batch(pairs: TrainingPairs) -> None:
    with pytest.raises(ValueError, match="lag"):
        make_sampler(pairs, lag=0)
    with pytest.raises(ValueError, match="multiple"):
        make_sampler(pairs, micro=3)


def test_weights_travel_from_the_draw_to_the_loss(beir: Path) -> None:
    """From a method's draw through rows and labels to what the loss asks the sampler for."""
    data = load_data(beir)
    training = data.training_split()
    pairs = training.pairs()
    method = METHODS["infobatch"](pairs, Plan(0, 1000, 16), METHODS["infobatch"].settings_class.parse({}))
    method.observe(np.arange(pairs.n_pairs), np.zeros(pairs.n_pairs), pairs.pair_query.astype(float))
    sampler = PairSampler(method, pairs, RandomNegatives(pool_of(len(data.corpus))), 1, 16)
    dataset = text_dataset(data, training.query_rows, 1, "title_text")
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
        sampler.observe(step, drawn.pair_ids, np.zeros(16), queries.astype(float), np.zeros(16))
    assert seen == {1.0, float(np.float32(1 / 0.75))}
