"""The contract of a method: checks that every method passes, those of users too.

In the tests of your method:

    from opera.methods.contract import check_method

    def test_my_method() -> None:
        check_method(MyMethod)                      # with its default settings
        check_method(MyMethod, MySettings(power=2))

Or one test per check, with ``@pytest.mark.parametrize("check", CHECKS)`` and ``check(MyMethod, MySettings())``.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from opera.core.arrays import FloatArray
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
    for attribute in ("name", "title"):
        _require(isinstance(getattr(method, attribute, None), str), f"{attribute} must be a string")
    _require(
        method.name != "" and not set(method.name) & set(":,/ "),
        "name must not be empty or hold : , / or spaces",
    )
    _require(
        issubclass(method.settings_class, Settings), "settings_class must be a subclass of Settings"
    )
    _require(
        isinstance(settings, method.settings_class),
        "settings must be of the method's settings_class",
    )
    for name, field in method.settings_class.model_fields.items():
        _require(not field.is_required(), f"setting {name} must have a default")
        _require(
            bool(field.description),
            f"setting {name} must have a help text: declare it with setting()",
        )


def check_scores(method: AnyMethod, settings: Settings) -> None:
    """Pretrained scores are required exactly when ``needs_scores`` says so, and CBS only together with them."""
    pairs = some_pairs(MIXED)
    if method.needs_scores(settings):
        try:
            method(pairs, Plan(0, STEPS, BATCH), settings, None)
        except ValueError:
            return
        raise AssertionError(
            "needs_scores is true: the constructor must refuse to work without scores"
        )
    _require(method.cbs_pool_size(settings) == 0, "a method that uses CBS needs scores")
    method(pairs, Plan(0, STEPS, BATCH), settings, None).draw(0)


def check_draws(method: AnyMethod, settings: Settings) -> None:
    """A draw has the batch's size and types, pairs that exist and are kept, and positive finite weights."""
    made = _made(method, settings)
    for step in range(30):
        drawn = made.draw(step)
        _require(
            drawn.pair_ids.shape == drawn.weights.shape == (BATCH,),
            "a draw must hold plan.batch_size pairs",
        )
        _require(drawn.pair_ids.dtype == np.int64, "pair_ids must be int64")
        _require(drawn.weights.dtype == np.float32, "weights must be float32")
        inside = (drawn.pair_ids >= 0) & (drawn.pair_ids < made.pairs.n_pairs)
        _require(bool(inside.all()), "pair_ids must be ids of pairs")
        _require(
            bool(made.kept[drawn.pair_ids].all()), "pairs that are not kept must never be drawn"
        )
        _require(
            bool((np.isfinite(drawn.weights) & (drawn.weights > 0)).all()),
            "weights must be positive and finite",
        )
        _observe(made, drawn, step)


def check_probabilities(method: AnyMethod, settings: Settings) -> None:
    """The probabilities of each step sum to one, belong together, and are 0 for pairs that are not kept."""
    made = _made(method, settings)
    pairs = made.pairs
    for step in range(STEPS):
        drawn = made.draw(step)
        p = made.probabilities(step)
        for name, values in (("query", p.query), ("document", p.document), ("pair", p.pair)):
            _require(bool((values >= 0).all()), f"probabilities.{name} must not be negative")
        _require(
            _near(p.query.sum(), 1) and _near(p.pair.sum(), 1), "P(q) and P(q, d) must sum to one"
        )
        _require(
            _near(pairs.sum_by_query(p.document)[p.query > 0], 1),
            "P(d|q) must sum to one over a query's pairs",
        )
        _require(
            _near(p.pair, p.query[pairs.pair_query] * p.document), "P(q, d) must be P(q)·P(d|q)"
        )
        _require(
            bool((p.pair[~made.kept] == 0).all()), "pairs that are not kept must have probability 0"
        )
        _observe(made, drawn, step)


def check_possible(method: AnyMethod, settings: Settings) -> None:
    """Every pair drawn has a positive probability, and its weight is that of ``probabilities``.

    A step may span two passes or pools, and ``probabilities`` gives those of the later one, so those before the draw
    count as well.
    """
    made = _made(method, settings)
    for step in range(STEPS):
        before = made.probabilities(max(0, step - 1))
        drawn = made.draw(step)
        after, ids = made.probabilities(step), drawn.pair_ids
        possible = [
            (p.pair[ids] > 0) & np.isclose(p.weight[ids], drawn.weights) for p in (before, after)
        ]
        _require(
            bool(np.logical_or(*possible).all()),
            "a drawn pair has probability 0, or another weight than in probabilities",
        )
        _observe(made, drawn, step)


def check_frequencies(method: AnyMethod, settings: Settings) -> None:
    """Over many seeds, draws are as frequent as the probabilities say, by a χ² test.

    Scores and schedule are fixed. The test assumes draws that are independent or more even than that, as in shuffled
    passes. A method that draws related pairs together may fail it and still be right.
    """
    from scipy.stats import chisquare

    pairs = some_pairs(MIXED)
    counts, expected = np.zeros(pairs.n_pairs), np.zeros(pairs.n_pairs)
    for seed in range(400):
        made = method(pairs, Plan(seed, ENDLESS, 4), settings, some_scores(pairs))
        latest = some_scores(pairs, seed=1)
        made.observe(np.arange(pairs.n_pairs), latest.similarity, latest.loss)
        for step in range(5):
            np.add.at(counts, made.draw(step).pair_ids, 1)
            expected += 4 * made.probabilities(step).pair
    possible = expected > 0
    _require(counts[~possible].sum() == 0, "pairs with probability 0 are drawn")
    p_value = chisquare(
        counts[possible], expected[possible] * (counts.sum() / expected.sum())
    ).pvalue
    _require(
        p_value > MIN_P_VALUE,
        f"draws do not follow the probabilities: p = {p_value:.2g} in a χ² test",
    )


def check_seed(method: AnyMethod, settings: Settings) -> None:
    """The same seed gives the same draws, and reading the method's properties in between changes none."""
    plain, watched = _made(method, settings), _made(method, settings)
    for step in range(20):
        drawn, again = plain.draw(step), watched.draw(step)
        _require(
            _same(drawn, again),
            "the same seed must give the same draws, and reading must not change them",
        )
        watched.probabilities(step)
        watched.schedule(step)
        watched.state_dict()
        json.dumps(watched.summary())
        similarity = watched.similarity
        _require(
            similarity is None or similarity.shape == watched.kept.shape,
            "similarity must be [N] or None",
        )
        for made in (plain, watched):
            _observe(made, drawn, step)


def check_resume(method: AnyMethod, settings: Settings) -> None:
    """A method restored from its state, read back as from a checkpoint, continues with the same draws."""
    for cut in (1, 13):
        first, second = _made(method, settings), _made(method, settings)
        for step in range(cut):
            _observe(first, first.draw(step), step)
        second.load_state_dict(read_back(first.state_dict()))
        for step in range(cut, 40):
            drawn, again = first.draw(step), second.draw(step)
            _require(
                _same(drawn, again),
                "after load_state_dict, draws must be those of the saved method",
            )
            _require(
                _near(first.probabilities(step).pair, second.probabilities(step).pair),
                "and so the probabilities",
            )
            for made in (first, second):
                _observe(made, drawn, step)


def check_schedule(method: AnyMethod, settings: Settings) -> None:
    """The schedule has the same names at every step and numbers as values."""
    made = _made(method, settings)
    names = list(made.schedule(0))
    _require(
        all(name.isidentifier() for name in names), "names of the schedule must be identifiers"
    )
    _require(
        not {"step", "loss", "learning_rate", "seconds"} & set(names),
        "the trace has columns of these names",
    )
    for step in range(30):
        _observe(made, made.draw(step), step)
        values = made.schedule(step)
        _require(list(values) == names, "the schedule must have the same names at every step")
        _require(
            all(isinstance(value, float) for value in values.values()),
            "the schedule's values must be floats",
        )


def check_small_data(method: AnyMethod, settings: Settings) -> None:
    """On tiny training sets, ``check`` refuses the settings or the method works."""
    for counts in ([5], [1], [1] * 9, [50, 1]):
        pairs = some_pairs(counts)
        try:
            method.check(settings, pairs.n_queries, pairs.n_pairs)
        except SettingError:
            continue
        made = method(pairs, Plan(0, STEPS, BATCH), settings, some_scores(pairs))
        for step in range(12):
            _require(
                len(made.draw(step).pair_ids) == BATCH,
                f"no whole batch for {counts} documents per query",
            )
        _require(
            _near(made.probabilities(11).pair.sum(), 1), f"P(q, d) does not sum to one for {counts}"
        )


def check_equal_scores(method: AnyMethod, settings: Settings) -> None:
    """Equal and extreme scores work: similarities at their ends, and losses as small and large as float32 can be."""
    pairs = some_pairs(MIXED)
    for similarity, loss in ((0.0, 0.0), (1.0, 1e-45), (-1.0, 3.4e38)):
        same = [
            np.full(pairs.n_pairs, value, dtype=np.float32) for value in (similarity, loss, 1.0)
        ]
        made = method(pairs, Plan(0, STEPS, BATCH), settings, PairScores(pairs, *same))
        for step in range(10):
            ids = made.draw(step).pair_ids
            made.observe(ids, same[0][ids], same[1][ids])
        p = made.probabilities(9).pair
        _require(
            bool(np.isfinite(p).all()) and _near(p.sum(), 1),
            f"similarity {similarity}, loss {loss}: P is {p}",
        )


Check = Callable[[AnyMethod, Settings], None]
CHECKS: tuple[Check, ...] = (
    check_declaration,
    check_scores,
    check_draws,
    check_probabilities,
    check_possible,
    check_frequencies,
    check_seed,
    check_resume,
    check_schedule,
    check_small_data,
    check_equal_scores,
)


def some_pairs(positives_per_query: Sequence[int], n_docs: int = 1000) -> TrainingPairs:
    """Training pairs with these numbers of documents per query, drawn at random."""
    rng = generator(sum(positives_per_query), "contract.pairs")
    docs = np.concatenate(
        [rng.choice(n_docs, count, replace=False) for count in positives_per_query]
    )
    return TrainingPairs.from_arrays(
        np.repeat(np.arange(len(positives_per_query)), positives_per_query), docs
    )


def some_scores(pairs: TrainingPairs, seed: int = 0) -> PairScores:
    """Random scores: similarities from -1 to 1, exponential losses, CBS from few values."""
    rng = generator(seed, "contract.scores")
    similarity, loss = rng.uniform(-1, 1, pairs.n_pairs), rng.exponential(2.0, pairs.n_pairs)
    return PairScores(pairs, similarity, loss, 1 / rng.integers(1, 5, pairs.n_pairs))


def read_back(state: Mapping[str, Any]) -> dict[str, Any]:
    """A state as read back from a checkpoint: numbers as arrays, empty dicts left out."""
    restored: dict[str, Any] = {}
    for key, value in state.items():
        _require("/" not in key, f"state_dict: '{key}' must not hold a slash")
        if isinstance(value, Mapping):
            inner = read_back(value)
            restored |= {key: inner} if inner else {}
            continue
        file = io.BytesIO()
        np.save(file, value)
        file.seek(0)
        _require(
            np.asarray(value).dtype != object, f"state_dict: '{key}' must be an array or a number"
        )
        restored[key] = np.load(file)
    return restored


def _made(method: AnyMethod, settings: Settings, seed: int = 0) -> Method[Any]:
    pairs = some_pairs(MIXED)
    method.check(settings, pairs.n_queries, pairs.n_pairs)
    return method(pairs, Plan(seed, STEPS, BATCH), settings, some_scores(pairs))


def _observe(made: Method[Any], drawn: Draw, step: int) -> None:
    rng = generator(step, "contract.forward")
    similarity, loss = (
        rng.uniform(-1, 1, len(drawn.pair_ids)),
        rng.exponential(2.0, len(drawn.pair_ids)),
    )
    made.observe(drawn.pair_ids, similarity.astype(np.float32), loss.astype(np.float32))


def _same(one: Draw, other: Draw) -> bool:
    return np.array_equal(one.pair_ids, other.pair_ids) and np.array_equal(
        one.weights, other.weights
    )


def _near(values: FloatArray | float, expected: FloatArray | float) -> bool:
    """Equal but for rounding: sums of hundreds of float64 in another order."""
    return bool(np.allclose(values, expected, rtol=1e-9, atol=1e-12))


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)
