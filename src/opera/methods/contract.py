"""The contract of a method: checks that every method passes, those of users too.

In the tests of your method:

    from opera.methods.contract import check_method

    def test_my_method() -> None:
        check_method(MyMethod)                      # with its default settings
        check_method(MyMethod, MySettings(power=2))

Or one test per check, with ``@pytest.mark.parametrize("check", CHECKS)`` and ``check(MyMethod,
MySettings())``.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from opera.core.errors import SettingError
from opera.core.rng import generator
from opera.core.settings import Settings
from opera.data.pairs import TrainingPairs
from opera.methods.base import Draw, Method, Plan
from opera.methods.scores import PairScores

MIXED = (1, 2, 3, 4, 5, 6, 7, 8, 1, 1, 2, 9, 3, 3, 3, 12)  # documents per query
BATCH, STEPS = 8, 50
ENDLESS = 10**9  # steps of a run so long that its schedule does not move
MIN_P_VALUE = 1e-4
TAKEN = {"step", "loss", "learning_rate", "seconds"}  # columns of trace.parquet

AnyMethod = type[Method[Any]]


def check_method(method: AnyMethod, settings: Settings | None = None) -> None:
    """Run every check of :data:`CHECKS`.

    Args:
        method: the class.
        settings: the method's own settings; default: their defaults.

    Raises:
        AssertionError: what is wrong, from the first check that fails.
    """
    for check in CHECKS:
        check(method, method.settings_class() if settings is None else settings)


def check_declaration(method: AnyMethod, settings: Settings) -> None:
    """The class has a name, a title and settings; every setting has a default and a help text."""
    own = method.settings_class
    _require(
        {
            "name must be a string": isinstance(getattr(method, "name", None), str),
            "title must be a string": isinstance(getattr(method, "title", None), str),
            "settings_class must be a subclass of Settings": issubclass(own, Settings),
            "settings must be of the method's settings_class": isinstance(settings, own),
        }
    )
    nameable = method.name != "" and not set(method.name) & set(":,/ ")
    _require({"name must not be empty or hold : , / or spaces": nameable})
    for name, field in own.model_fields.items():
        help_text = f"setting {name} must have a help text: declare it with setting()"
        default = f"setting {name} must have a default"
        _require({default: not field.is_required(), help_text: bool(field.description)})


def check_scores(method: AnyMethod, settings: Settings) -> None:
    """Pretrained scores are required exactly when ``needs_scores`` says so, and CBS only with
    them.
    """
    pairs, plan, needed = some_pairs(MIXED), Plan(0, STEPS, BATCH), method.needs_scores(settings)
    refused = "needs_scores is true: the constructor must refuse to work without scores"
    try:
        method(pairs, plan, settings, None).draw(0)
        _require({refused: not needed})
    except ValueError:
        if not needed:
            raise
    uses_cbs = method.cbs_pool_size(settings) > 0
    _require({"a method that uses CBS needs scores": needed or not uses_cbs})


def check_steps(method: AnyMethod, settings: Settings) -> None:
    """At every step draws, probabilities and schedule are what :class:`Method` says.

    A draw has the batch's size and types, pairs that are kept, and positive finite weights.
    Probabilities sum to one, and are 0 for pairs that are not kept. The schedule has the same names
    at every step and numbers as values.
    """
    made = _made(method, settings)
    names = list(made.schedule(0))
    for step in range(STEPS):
        drawn = made.draw(step)
        ids, weights = drawn.pair_ids, drawn.weights
        _require(
            {
                "a draw must hold plan.batch_size pairs": ids.shape == weights.shape == (BATCH,),
                "pair_ids must be int64": ids.dtype == np.int64,
                "weights must be float32": weights.dtype == np.float32,
                "weights must be positive and finite": np.isfinite(weights) & (weights > 0),
                "pair_ids must be ids of pairs": (ids >= 0) & (ids < made.pairs.n_pairs),
            }
        )
        p, values = made.probabilities(step), made.schedule(step)
        of_queries = made.pairs.sum_by_query(p.document)[p.query > 0]
        floats = [isinstance(value, float) for value in values.values()]
        _require(
            {
                "pairs that are not kept must never be drawn": made.kept[ids],
                "probabilities.query must not be negative": p.query >= 0,
                "probabilities.document must not be negative": p.document >= 0,
                "P(q) and P(q, d) must sum to one": _near([p.query.sum(), p.pair.sum()], 1),
                "P(d|q) must sum to one over a query's pairs": _near(of_queries, 1),
                "pairs that are not kept must have probability 0": p.pair[~made.kept] == 0,
                "names of the schedule must be identifiers": [n.isidentifier() for n in names],
                "the trace has columns of these names": not TAKEN & set(names),
                "the schedule must have the same names at every step": list(values) == names,
                "the schedule's values must be floats": floats,
            }
        )
        _observe(made, drawn, step)


def check_possible(method: AnyMethod, settings: Settings) -> None:
    """Every pair drawn has a positive probability, and its weight is that of ``probabilities``.

    A step may span two passes or pools, and ``probabilities`` gives those of the later one, so
    those before the draw count as well.
    """
    made = _made(method, settings)
    for step in range(STEPS):
        before, drawn = made.probabilities(max(0, step - 1)), made.draw(step)
        possible = np.zeros(len(drawn.pair_ids), dtype=bool)
        for p in (before, made.probabilities(step)):
            same_weight = np.isclose(p.weight[drawn.pair_ids], drawn.weights)
            possible |= (p.pair[drawn.pair_ids] > 0) & same_weight
        fault = "a drawn pair has probability 0, or another weight than in probabilities"
        _require({fault: possible})
        _observe(made, drawn, step)


def check_frequencies(method: AnyMethod, settings: Settings) -> None:
    """Over many seeds, draws are as frequent as the probabilities say, by a χ² test.

    Scores and schedule are fixed. The test assumes draws that are independent or more even than
    that, as in shuffled passes. A method that draws related pairs together may fail it and still be
    right.
    """
    from scipy.stats import chisquare

    pairs = some_pairs(MIXED)
    counts, expected = np.zeros(pairs.n_pairs), np.zeros(pairs.n_pairs)
    for seed in range(100):
        made = method(pairs, Plan(seed, ENDLESS, BATCH), settings, some_scores(pairs))
        latest = some_scores(pairs, seed=1)
        made.observe(np.arange(pairs.n_pairs), latest.similarity, latest.loss)
        for step in range(10):
            np.add.at(counts, made.draw(step).pair_ids, 1)
            expected += BATCH * made.probabilities(step).pair
    possible = expected > 0
    _require({"pairs with probability 0 are drawn": counts[~possible] == 0})
    counts, scaled = counts[possible], expected[possible] * (counts.sum() / expected.sum())
    # χ² holds for no rarer ones: those are counted with the rarest of these.
    often = scaled >= min(5, scaled.max())
    rarest = np.flatnonzero(often)[np.argmin(scaled[often])]
    for values in (counts, scaled):
        values[rarest] += values[~often].sum()
    p_value = chisquare(counts[often], scaled[often]).pvalue
    fault = f"draws do not follow the probabilities: p = {p_value:.2g} in a χ² test"
    _require({fault: p_value > MIN_P_VALUE})


def check_seed(method: AnyMethod, settings: Settings) -> None:
    """The same seed gives the same draws, and reading the method in between changes none."""
    plain, watched = _made(method, settings), _made(method, settings)
    fault = "the same seed must give the same draws, and reading must not change them"
    for step in range(20):
        drawn = plain.draw(step)
        _require({fault: _same(drawn, watched.draw(step))})
        json.dumps(watched.summary())
        for read in (watched.probabilities, watched.schedule):
            read(step)
        watched.state_dict()
        shape = None if watched.similarity is None else watched.similarity.shape
        _require({"similarity must be [N] or None": shape in (None, watched.kept.shape)})
        for made in (plain, watched):
            _observe(made, drawn, step)


def check_resume(method: AnyMethod, settings: Settings) -> None:
    """A method restored from its state, read back as from a checkpoint, goes on with the same
    draws.
    """
    for cut in (1, 13):
        first, second = _made(method, settings), _made(method, settings)
        for step in range(cut):
            _observe(first, first.draw(step), step)
        second.load_state_dict(read_back(first.state_dict()))
        second.visits.load_state_dict(read_back(first.visits.state_dict()))
        fault = "after load_state_dict, draws must be those of the saved method"
        for step in range(cut, 40):
            drawn = first.draw(step)
            _require({fault: _same(drawn, second.draw(step))})
            p, again = first.probabilities(step).pair, second.probabilities(step).pair
            _require({"and so the probabilities": _near(p, again)})
            for made in (first, second):
                _observe(made, drawn, step)


def check_extremes(method: AnyMethod, settings: Settings) -> None:
    """Tiny training sets and equal or extreme scores work, unless ``check`` refuses the settings.

    Similarities are at their ends, and losses as small and large as float32 can be.
    """
    sizes = [(counts, (0.0, 0.0)) for counts in ((5,), (1,), (1,) * 9, (50, 1))]
    extremes = [(MIXED, values) for values in ((0.0, 0.0), (1.0, 1e-45), (-1.0, 3.4e38))]
    for counts, values in [*sizes, *extremes]:
        pairs = some_pairs(counts)
        try:
            method.check(settings, pairs.n_queries, pairs.n_pairs)
        except SettingError:
            continue
        same = [np.full(pairs.n_pairs, value, dtype=np.float32) for value in (*values, 1.0)]
        made = method(pairs, Plan(0, STEPS, BATCH), settings, PairScores(pairs, *same))
        case = f"with {counts} documents per query, similarity and loss {values}"
        for step in range(12):
            ids = made.draw(step).pair_ids
            _require({f"{case}: no whole batch": len(ids) == BATCH})
            made.observe(ids, same[0][ids], same[1][ids])
        p = made.probabilities(11).pair
        _require({f"{case}: P is {p}": np.isfinite(p).all() and _near(p.sum(), 1)})


Check = Callable[[AnyMethod, Settings], None]
CHECKS: tuple[Check, ...] = (
    check_declaration,
    check_scores,
    check_steps,
    check_possible,
    check_frequencies,
    check_seed,
    check_resume,
    check_extremes,
)


def some_pairs(positives_per_query: Sequence[int], n_docs: int = 1000) -> TrainingPairs:
    """Training pairs with these numbers of documents per query, drawn at random."""
    rng = generator(sum(positives_per_query), "contract.pairs")
    docs = [rng.choice(n_docs, count, replace=False) for count in positives_per_query]
    queries = np.repeat(np.arange(len(positives_per_query)), positives_per_query)
    return TrainingPairs.from_arrays(queries, np.concatenate(docs))


def some_scores(pairs: TrainingPairs, seed: int = 0) -> PairScores:
    """Random scores: similarities from -1 to 1, exponential losses, CBS from few values."""
    rng = generator(seed, "contract.scores")
    similarity, loss = rng.uniform(-1, 1, pairs.n_pairs), rng.exponential(2.0, pairs.n_pairs)
    return PairScores(pairs, similarity, loss, 1 / rng.integers(1, 5, pairs.n_pairs))


def read_back(state: Mapping[str, Any]) -> dict[str, Any]:
    """A state as read back from a checkpoint: numbers as arrays, empty dicts left out."""
    restored: dict[str, Any] = {}
    for key, value in state.items():
        _require({f"state_dict: '{key}' must not hold a slash": "/" not in key})
        if isinstance(value, Mapping):
            restored |= {key: inner} if (inner := read_back(value)) else {}
            continue
        plain = f"state_dict: '{key}' must be an array or a number"
        _require({plain: np.asarray(value).dtype != object})
        file = io.BytesIO()
        np.save(file, value)
        file.seek(0)
        restored[key] = np.load(file)
    return restored


def _made(method: AnyMethod, settings: Settings) -> Method[Any]:
    pairs = some_pairs(MIXED)
    method.check(settings, pairs.n_queries, pairs.n_pairs)
    return method(pairs, Plan(0, STEPS, BATCH), settings, some_scores(pairs))


def _observe(made: Method[Any], drawn: Draw, step: int) -> None:
    rng, size = generator(step, "contract.forward"), len(drawn.pair_ids)
    seen = rng.uniform(-1, 1, size), rng.exponential(2.0, size)
    made.visits.see(step, drawn.pair_ids, rng.random(size).astype(np.float32))
    made.observe(drawn.pair_ids, *(values.astype(np.float32) for values in seen))


def _same(one: Draw, other: Draw) -> bool:
    pairs = ((one.pair_ids, other.pair_ids), (one.weights, other.weights))
    return all(np.array_equal(*both) for both in pairs)


def _near(values: ArrayLike, expected: ArrayLike) -> bool:
    """Equal but for rounding: sums of hundreds of float64 in another order."""
    return bool(np.allclose(values, expected, rtol=1e-9, atol=1e-12))


def _require(promises: Mapping[str, Any]) -> None:
    """Fail with the first promise that does not hold: a condition, or an array all of which
    must.
    """
    for promise, holds in promises.items():
        if not np.all(holds):
            raise AssertionError(promise)
