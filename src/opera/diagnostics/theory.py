"""Simulate Theorem 1 with the selection that SP and DP make, beside its closed form: the tables of
``opera theory``.

Documents are drawn on the unit sphere, and scores with noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ive
from scipy.stats import norm, vonmises_fisher

from opera.core.arguments import MOST_SEED
from opera.core.rng import generator
from opera.core.settings import Settings, setting
from opera.data.pairs import TrainingPairs
from opera.methods import METHODS, PairScores, Plan


def lemma_value(share: float, cosine: float) -> float:
    """Lemma 1: f(k) = (k·u + (1 - k)·v)ᵀu / ‖k·u + (1 - k)·v‖, for unit vectors u, v with uᵀv =
    ``cosine``.

    Args:
        share: k, from 0 to 1.
        cosine: uᵀv, above -1 and at most 1.
    """
    return (share + (1 - share) * cosine) / _length(share, cosine)


def lemma_slope(share: float, cosine: float) -> float:
    """Lemma 1: f'(k) = (1 - (uᵀv)²)·(1 - k) / ‖k·u + (1 - k)·v‖³, positive for k below 1 and u ≠
    ±v.
    """
    return (1 - cosine**2) * (1 - share) / _length(share, cosine) ** 3


def _length(share: float, cosine: float) -> float:
    return math.sqrt(share**2 + (1 - share) ** 2 + 2 * share * (1 - share) * cosine)


def finetuning_share(true: float, total: float) -> float:
    """Equation 9: m⁺/m, the probability that FT draws a true document."""
    return true / total


def static_share(precision: float) -> float:
    """Equation 10, left: γ, the probability that SP draws a true document from the kept ones."""
    return precision


def dynamic_share(
    precision: float, selected: float, strength: float, true: float, total: float
) -> float:
    """Equation 10, right: the probability that DP draws a true document.

    Args:
        precision: ρ, share of the selected documents that are true.
        selected: s, number of selected documents.
        strength: β, how many times likelier a selected document is to be drawn than another.
        true: m⁺, number of true documents.
        total: m, number of documents.

    Returns:
        (ρ·s·(β - 1) + m⁺) / (s·(β - 1) + m).
    """
    return (precision * selected * (strength - 1) + true) / (selected * (strength - 1) + total)


def pruning_beats_finetuning(precision: float, true_share: float) -> bool:
    """Theorem 1, first part (Equation 7): E^SP > E^FT if and only if γ > m⁺/m; likewise for DP with
    ρ.
    """
    return precision > true_share


def static_beats_dynamic(precision: float, true_share: float) -> bool:
    """Theorem 1, second part (Equation 8), with the condition that its proof needs (paper.md, row
    9).

    At equal precision γ = ρ, E^SP > E^DP if and only if γ > m⁺/m. If the scores are worse than
    chance, DP is better, because it follows them only in part.
    """
    return precision > true_share


def expected_similarity(share: float, cosine: float, length: float = 1.0) -> float:
    """Compute E, the expected cosine between the best query embedding and a true document.

    Args:
        share: probability that a drawn positive is true.
        cosine: μ₁ᵀμ₂.
        length: norm of the mean true document; 1 if all equal μ₁ (see :func:`mean_length`).
    """
    return length * lemma_value(share, cosine)


def mean_length(concentration: float, dimension: int) -> float:
    """Norm of the mean of a von Mises-Fisher distribution in ``dimension`` dimensions: I_{d/2}(κ) /
    I_{d/2-1}(κ).
    """
    return float(ive(dimension / 2, concentration) / ive(dimension / 2 - 1, concentration))


def selection_precision(true_share: float, auc: float, selected: float) -> float:
    """Compute γ (or ρ), the share of true documents among the best-scored, for many documents.

    Scores are N(δ, 1) for true documents and N(0, 1) for false ones, with δ such that a true
    document outscores a false one with probability ``auc``.

    Args:
        true_share: m⁺/m.
        auc: scoring quality between 0 and 1; 0.5 is chance, and lower scores mislead.
        selected: share of the documents that are selected (k of SP, v of DP).
    """
    if selected >= 1:
        return true_share
    shift = math.sqrt(2) * float(norm.ppf(auc))

    def above(threshold: float) -> float:
        return float(
            true_share * norm.sf(threshold - shift) + (1 - true_share) * norm.sf(threshold)
        )

    threshold = brentq(lambda t: above(t) - selected, -40 - abs(shift), 40 + abs(shift))
    return float(true_share * norm.sf(threshold - shift) / selected)


METHOD_NAMES = ("ft", "sp", "dp")
JACKKNIFE_GROUPS = 20
TIE = 1e-9

NOISES = (0.1, 0.3, 0.5)
AUCS = (0.3, 0.5, 0.7, 0.9)


class World(Settings):
    """The world to simulate: one query of Theorem 1, many times over."""

    listing: ClassVar[str] = "opera theory --help lists all"

    noise: float = setting(
        0.3, "share of the labelled documents that are false, 1 - m⁺/m", "Theorem 1", gt=0, lt=1
    )
    auc: float = setting(
        0.8, "scoring quality: how often a true document outscores a false one", "OPERA", gt=0, lt=1
    )
    k: float = setting(0.5, "share of the documents that SP keeps", "Equation 4", gt=0, le=1)
    v: float = setting(
        0.5, "share of the documents that DP treats as high quality", "Algorithm 1", gt=0, lt=1
    )
    beta: float = setting(5.0, "document strength β of DP", "Appendix C.2", ge=1, le=1000)
    angle: float = setting(60.0, "degrees between μ₁ and μ₂", "OPERA", gt=0, lt=180)
    documents: int = setting(200, "labelled documents of the query, m", "OPERA", ge=2, le=100_000)
    repeats: int = setting(200, "queries to simulate", "OPERA", ge=JACKKNIFE_GROUPS, le=1_000_000)
    dimension: int = setting(16, "dimensions of the sphere", "OPERA", ge=2, le=10_000)
    concentration: float = setting(
        20.0, "κ of the documents around μ₁ and μ₂ (von Mises-Fisher)", "OPERA", ge=0.001, le=1e6
    )
    seed: int = setting(0, "random seed", "OPERA", ge=0, lt=MOST_SEED + 1)

    @property
    def true_documents(self) -> int:
        """m⁺, at least 1 and at most m - 1."""
        return min(max(1, round((1 - self.noise) * self.documents)), self.documents - 1)

    @property
    def true_share(self) -> float:
        """m⁺/m."""
        return finetuning_share(self.true_documents, self.documents)

    @property
    def cosine(self) -> float:
        """μ₁ᵀμ₂."""
        return math.cos(math.radians(self.angle))


@dataclass(frozen=True)
class Outcome:
    """Result of one method in a world.

    Attributes:
        precision: share of the selected documents that are true: m⁺/m, γ or ρ.
        share: probability that a drawn document is true.
        similarity: E, expected cosine between the best query embedding and a true document, without
            variance.
        error: standard error of ``similarity``; 0 in closed form.
    """

    precision: float
    share: float
    similarity: float
    error: float = 0.0


@dataclass(frozen=True)
class Point:
    """One world: its outcomes by method, in closed form and simulated."""

    world: World
    closed_form: dict[str, Outcome]
    simulated: dict[str, Outcome]

    @property
    def best(self) -> str:
        """Method with the highest E in closed form; empty if two tie."""
        values = {name: outcome.similarity for name, outcome in self.closed_form.items()}
        *_, second, first = sorted(values, key=lambda name: values[name])
        return first if values[first] - values[second] > TIE else ""


def examine(world: World) -> Point:
    """Compute a world in closed form and simulate it."""
    return Point(world, predict(world), simulate(world))


def grid(
    world: World, noises: Sequence[float] = NOISES, aucs: Sequence[float] = AUCS
) -> list[Point]:
    """Examine every combination of noise rate and scoring quality."""
    values = ({"noise": noise, "auc": auc} for noise in noises for auc in aucs)
    return [examine(World.parse({**world.model_dump(), **own})) for own in values]


def as_records(points: Sequence[Point]) -> list[dict[str, Any]]:
    """Convert points to dictionaries for JSON: the world, then each method's outcomes, in closed
    form and simulated.
    """
    return [
        {
            **point.world.model_dump(),
            "true_share": point.world.true_share,
            "closed_form": {name: vars(point.closed_form[name]) for name in METHOD_NAMES},
            "simulated": {name: vars(point.simulated[name]) for name in METHOD_NAMES},
            "best": point.best or None,
        }
        for point in points
    ]


def predict(world: World) -> dict[str, Outcome]:
    """Compute the outcomes of ``ft``, ``sp`` and ``dp`` by Theorem 1, in closed form, for many
    documents.
    """
    true_share, length = world.true_share, mean_length(world.concentration, world.dimension)
    gamma = selection_precision(true_share, world.auc, world.k)
    rho = selection_precision(true_share, world.auc, world.v)
    m, true = world.documents, world.true_documents
    shares = {
        "ft": (true_share, finetuning_share(true, m)),
        "sp": (gamma, static_share(gamma)),
        "dp": (rho, dynamic_share(rho, world.v * m, world.beta, true, m)),
    }
    return {
        name: Outcome(precision, share, expected_similarity(share, world.cosine, length))
        for name, (precision, share) in shares.items()
    }


def simulate(world: World) -> dict[str, Outcome]:
    """Simulate the outcomes of ``ft``, ``sp`` and ``dp`` with the methods of the registry.

    Each repeat is one query with m⁺ documents around μ₁ and the others around μ₂. Their scores are
    N(δ, 1) and N(0, 1). The method gives the probability of drawing each document. The best
    embedding is the direction of the mean drawn document over all repeats, which removes the
    variance as the theorem does. Its standard error is a jackknife over 20 groups of repeats.
    """
    is_true = np.arange(world.documents) < world.true_documents
    documents, scores = _draw_documents(world, is_true), _draw_scores(world, is_true)
    true = documents[:, is_true].mean(axis=1)
    group = np.arange(world.repeats) * JACKKNIFE_GROUPS // world.repeats
    outcomes = {}
    for name in METHOD_NAMES:
        probabilities, selected = _probabilities(world, name, scores)
        drawn = np.einsum("rm,rmd->rd", probabilities, documents)
        left_out = [
            _cosine(drawn[group != at], true[group != at]) for at in range(JACKKNIFE_GROUPS)
        ]
        outcomes[name] = Outcome(
            precision=float((selected & is_true).sum() / selected.sum()),
            share=float(probabilities[:, is_true].sum(axis=1).mean()),
            similarity=_cosine(drawn, true),
            error=math.sqrt((JACKKNIFE_GROUPS - 1) * float(np.var(left_out))),
        )
    return outcomes


def _draw_documents(world: World, is_true: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Draw unit vectors ``[repeats, m, dimension]`` around μ₁ and μ₂."""
    first, other = np.eye(world.dimension)[:2]
    second = world.cosine * first + math.sqrt(1 - world.cosine**2) * other
    documents = np.empty((world.repeats, world.documents, world.dimension))
    for name, direction, members in (("true", first, is_true), ("false", second, ~is_true)):
        size = world.repeats * int(members.sum())
        rng = generator(world.seed, f"theory.{name}")
        drawn = vonmises_fisher(direction, world.concentration).rvs(size, random_state=rng)
        documents[:, members] = drawn.reshape(world.repeats, -1, world.dimension)
    return documents


def _draw_scores(world: World, is_true: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Draw a score for each document, float32 ``[repeats, m]``; it depends only on whether the
    document is true.
    """
    shift = math.sqrt(2) * float(norm.ppf(world.auc))
    rng = generator(world.seed, "theory.scores")
    drawn = rng.normal(size=(world.repeats, world.documents)) + shift * is_true
    return drawn.astype(np.float32)


def _probabilities(
    world: World, name: str, scores: NDArray[np.float32]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return P(d|q) of a method, float64 ``[repeats, m]``, and the documents it selected, bool
    ``[repeats, m]``.
    """
    dp = {"beta_start": world.beta, "beta_end": world.beta, "v_start": world.v, "v_end": world.v}
    own: dict[str, dict[str, Any]] = {
        "ft": {},
        "sp": {"k": world.k},
        "dp": {"levels": "document", **dp},
    }
    method, m = METHODS[name], world.documents
    settings = method.settings_class.parse(own[name])
    method.check(settings, 1, m)
    pairs = TrainingPairs.from_arrays(np.zeros(m, dtype=np.int32), np.arange(m))
    plan, no_losses = Plan(world.seed, 1, 1), np.zeros(m)
    made = (method(pairs, plan, settings, PairScores(pairs, row, no_losses)) for row in scores)
    probabilities = np.array([one.probabilities(0).document for one in made])
    return probabilities, probabilities >= probabilities.max(axis=1, keepdims=True) * (1 - 1e-9)


def _cosine(drawn: NDArray[np.float64], true: NDArray[np.float64]) -> float:
    """Return E from the mean drawn and the mean true document of each repeat, both ``[r,
    dimension]``.
    """
    direction = drawn.mean(axis=0)
    return float(direction @ true.mean(axis=0) / np.linalg.norm(direction))
