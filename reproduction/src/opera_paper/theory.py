"""Theorem 1 in closed form, and a simulation with the methods of OPERA.

The simulation samples documents on the unit sphere and noisy scores. ``opera-paper theory`` prints
both results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.table import Table
from scipy.optimize import brentq
from scipy.special import ive
from scipy.stats import norm, vonmises_fisher

from opera.methods import (
    METHODS,
    PairScores,
    Plan,
    Settings,
    TrainingPairs,
    generator,
    setting,
)


def lemma_value(share: float, cosine: float) -> float:
    """Lemma 1: f(k) = (k·u + (1 - k)·v)ᵀu / ‖k·u + (1 - k)·v‖ for unit vectors u and v.

    Args:
        share: k, from 0 to 1.
        cosine: uᵀv, above -1 and at most 1.
    """
    return (share + (1 - share) * cosine) / _length(share, cosine)


def lemma_slope(share: float, cosine: float) -> float:
    """Lemma 1: f'(k) = (1 - (uᵀv)²)·(1 - k) / ‖k·u + (1 - k)·v‖³.

    It is positive for k < 1 and u ≠ ±v.
    """
    return (1 - cosine**2) * (1 - share) / _length(share, cosine) ** 3


def _length(share: float, cosine: float) -> float:
    return math.sqrt(share**2 + (1 - share) ** 2 + 2 * share * (1 - share) * cosine)


def finetuning_share(true: float, total: float) -> float:
    """Equation 9: m⁺/m, the probability that FT samples a true document."""
    return true / total


def static_share(precision: float) -> float:
    """Equation 10, left: γ, the probability that SP samples a true document."""
    return precision


def dynamic_share(precision: float, selected: float, strength: float, true: float, total: float) -> float:
    """Equation 10, right: the probability that DP samples a true document.

    Args:
        precision: ρ, the fraction of the selected documents that are true.
        selected: s, number of selected documents.
        strength: β, the probability of a selected document divided by that of any other document.
        true: m⁺, number of true documents.
        total: m, number of documents.

    Returns:
        (ρ·s·(β - 1) + m⁺) / (s·(β - 1) + m).
    """
    return (precision * selected * (strength - 1) + true) / (selected * (strength - 1) + total)


def pruning_beats_finetuning(precision: float, true_share: float) -> bool:
    """Theorem 1, first part (Equation 7): E^SP > E^FT if and only if γ > m⁺/m.

    The same holds for DP with ρ.
    """
    return precision > true_share


def static_beats_dynamic(precision: float, true_share: float) -> bool:
    """Theorem 1, second part (Equation 8), with the condition that its proof needs (erratum 9).

    At equal precision γ = ρ, E^SP > E^DP if and only if γ > m⁺/m. If the scores are worse than
    chance, DP is better, because it follows the scores only partly.
    """
    return precision > true_share


def expected_similarity(share: float, cosine: float, length: float = 1.0) -> float:
    """Compute E, the expected cosine between the best query embedding and a true document.

    Args:
        share: probability that a sampled positive is true.
        cosine: μ₁ᵀμ₂.
        length: norm of the mean true document; 1 if all of them equal μ₁ (:func:`mean_length`).
    """
    return length * lemma_value(share, cosine)


def mean_length(concentration: float, dimension: int) -> float:
    """Norm of the mean of a von Mises-Fisher distribution: I_{d/2}(κ) / I_{d/2-1}(κ)."""
    return float(ive(dimension / 2, concentration) / ive(dimension / 2 - 1, concentration))


def selection_precision(true_share: float, auc: float, selected: float) -> float:
    """Compute γ (or ρ), the fraction of true documents among the best-scored, for large m.

    Scores are N(δ, 1) for true documents and N(0, 1) for false documents. δ is such that a true
    document outscores a false document with probability ``auc``.

    Args:
        true_share: m⁺/m.
        auc: scoring quality between 0 and 1; 0.5 is chance, and scores below mislead.
        selected: fraction of the documents that are selected (k of SP, v of DP).
    """
    if selected >= 1:
        return true_share
    shift = math.sqrt(2) * float(norm.ppf(auc))

    def above(threshold: float) -> float:
        return float(true_share * norm.sf(threshold - shift) + (1 - true_share) * norm.sf(threshold))

    threshold = brentq(lambda t: above(t) - selected, -40 - abs(shift), 40 + abs(shift))
    return float(true_share * norm.sf(threshold - shift) / selected)


METHOD_NAMES = ("ft", "sp", "dp")
JACKKNIFE_GROUPS = 20
TIE = 1e-9

NOISES = (0.1, 0.3, 0.5)
AUCS = (0.3, 0.5, 0.7, 0.9)


class SimulationSettings(Settings):
    """The settings of a simulation of one query of Theorem 1."""

    listing: ClassVar[str] = "opera-paper theory --help lists all"

    noise: float = setting(0.3, "fraction of the labelled documents that are false, 1 - m⁺/m", "Theorem 1", gt=0, lt=1)
    auc: float = setting(0.8, "scoring quality: P(true document outscores a false one)", "OPERA", gt=0, lt=1)
    k: float = setting(0.5, "fraction of the documents that SP keeps", "Equation 4", gt=0, le=1)
    v: float = setting(0.5, "fraction of the documents that DP treats as high quality", "Algorithm 1", gt=0, lt=1)
    beta: float = setting(5.0, "document strength β of DP", "Appendix C.2", ge=1, le=1000)
    angle: float = setting(60.0, "degrees between μ₁ and μ₂", "OPERA", gt=0, lt=180)
    documents: int = setting(200, "labelled documents of the query, m", "OPERA", ge=2, le=100_000)
    repeats: int = setting(200, "queries to simulate", "OPERA", ge=JACKKNIFE_GROUPS, le=1_000_000)
    dimension: int = setting(16, "dimensions of the sphere", "OPERA", ge=2, le=10_000)
    concentration: float = setting(
        20.0, "κ of the documents around μ₁ and μ₂ (von Mises-Fisher)", "OPERA", ge=0.001, le=1e6
    )
    seed: int = setting(0, "random seed", "OPERA", ge=0, lt=2**32)

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
    """The result of a method.

    Attributes:
        precision: fraction of the selected documents that are true: m⁺/m, γ or ρ.
        share: probability that a sampled document is true.
        similarity: E, the expected cosine between the best query embedding and a true document,
            without variance.
        error: standard error of ``similarity``; 0 in closed form.
    """

    precision: float
    share: float
    similarity: float
    error: float = 0.0


@dataclass(frozen=True)
class Point:
    """A row of the table: the methods' outcomes in closed form and simulated."""

    settings: SimulationSettings
    closed_form: dict[str, Outcome]
    simulated: dict[str, Outcome]

    @property
    def best(self) -> str:
        """The method with the highest E in closed form; empty for a tie."""
        values = {name: outcome.similarity for name, outcome in self.closed_form.items()}
        *_, second, first = sorted(values, key=lambda name: values[name])
        return first if values[first] - values[second] > TIE else ""


def examine(settings: SimulationSettings) -> Point:
    """Compute the outcomes in closed form, and simulate them."""
    return Point(settings, predict(settings), simulate(settings))


def grid(settings: SimulationSettings, noises: Sequence[float] = NOISES, aucs: Sequence[float] = AUCS) -> list[Point]:
    """Examine every combination of noise rate and scoring quality."""
    values = settings.model_dump()
    return [
        examine(SimulationSettings.parse({**values, "noise": noise, "auc": auc})) for noise in noises for auc in aucs
    ]


def as_records(points: Sequence[Point]) -> list[dict[str, Any]]:
    """Convert points for JSON: the settings and the outcomes by method."""
    return [
        {
            **point.settings.model_dump(),
            "true_share": point.settings.true_share,
            "closed_form": {name: vars(point.closed_form[name]) for name in METHOD_NAMES},
            "simulated": {name: vars(point.simulated[name]) for name in METHOD_NAMES},
            "best": point.best or None,
        }
        for point in points
    ]


def as_table(points: Sequence[Point]) -> Table:
    """Show closed form and simulation next to each other, with a row per point."""
    fixed = ("k", "v", "beta", "angle", "documents")
    values = ", ".join(f"{name} = {getattr(points[0].settings, name):g}" for name in fixed)
    error = max(outcome.error for point in points for outcome in point.simulated.values())
    table = Table(
        title="E, the expected cosine of the best query embedding with a true document; " + values,
        caption="γ, ρ: fraction of true documents among those that sp keeps and dp prefers. Pruning "
        "beats ft if this fraction exceeds 1 - noise; then, at γ = ρ, sp also beats dp. If scores "
        "mislead (AUC below 0.5), dp loses less than sp.\nsimulated: OPERA's methods, without "
        f"variance, as in the theorem; standard errors up to {error:.4f}.",
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
    )
    names = "    ".join(METHOD_NAMES)
    heads = (f"theorem\n{names}", f"simulated\n{names}", "best by\ntheorem")
    for head in ("noise", "AUC", "γ", "ρ", *heads):
        table.add_column(head, justify="right")
    for point in points:
        similarities = [
            " ".join(f"{outcomes[name].similarity:.3f}" for name in METHOD_NAMES)
            for outcomes in (point.closed_form, point.simulated)
        ]
        table.add_row(
            f"{point.settings.noise:g}",
            f"{point.settings.auc:g}",
            *(f"{point.closed_form[name].precision:.3f}" for name in ("sp", "dp")),
            *similarities,
            point.best or "–",
        )
    return table


def predict(settings: SimulationSettings) -> dict[str, Outcome]:
    """Compute the outcomes of ``ft``, ``sp`` and ``dp`` by Theorem 1, in closed form for large m."""
    true_share = settings.true_share
    length = mean_length(settings.concentration, settings.dimension)
    gamma = selection_precision(true_share, settings.auc, settings.k)
    rho = selection_precision(true_share, settings.auc, settings.v)
    m, true = settings.documents, settings.true_documents
    shares = {
        "ft": (true_share, finetuning_share(true, m)),
        "sp": (gamma, static_share(gamma)),
        "dp": (rho, dynamic_share(rho, settings.v * m, settings.beta, true, m)),
    }
    return {
        name: Outcome(precision, share, expected_similarity(share, settings.cosine, length))
        for name, (precision, share) in shares.items()
    }


def simulate(settings: SimulationSettings) -> dict[str, Outcome]:
    """Simulate the outcomes of ``ft``, ``sp`` and ``dp`` with the methods of the registry.

    A repeat is a query with m⁺ documents around μ₁ and m - m⁺ documents around μ₂. Their scores are
    N(δ, 1) and N(0, 1). The method gives the sampling probabilities of the documents. The best
    embedding is the direction of the mean sampled document over all repeats. This mean removes the
    variance, as the theorem does. The standard error is a jackknife over 20 groups of repeats.
    """
    is_true = np.arange(settings.documents) < settings.true_documents
    documents, scores = _sample_documents(settings, is_true), _sample_scores(settings, is_true)
    true = documents[:, is_true].mean(axis=1)
    groups = np.arange(settings.repeats) * JACKKNIFE_GROUPS // settings.repeats
    outcomes = {}
    for name in METHOD_NAMES:
        probabilities, selected = _probabilities(settings, name, scores)
        sampled = np.einsum("rm,rmd->rd", probabilities, documents)
        left_out = [_cosine(sampled[groups != group], true[groups != group]) for group in range(JACKKNIFE_GROUPS)]
        outcomes[name] = Outcome(
            precision=float((selected & is_true).sum() / selected.sum()),
            share=float(probabilities[:, is_true].sum(axis=1).mean()),
            similarity=_cosine(sampled, true),
            error=math.sqrt((JACKKNIFE_GROUPS - 1) * float(np.var(left_out))),
        )
    return outcomes


def _sample_documents(settings: SimulationSettings, is_true: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Sample unit vectors ``[repeats, m, dimension]`` around μ₁ and μ₂."""
    first, orthogonal = np.eye(settings.dimension)[:2]
    second = settings.cosine * first + math.sqrt(1 - settings.cosine**2) * orthogonal
    documents = np.empty((settings.repeats, settings.documents, settings.dimension))
    for name, direction, members in (("true", first, is_true), ("false", second, ~is_true)):
        size = settings.repeats * int(members.sum())
        rng = generator(settings.seed, f"theory.{name}")
        vectors = vonmises_fisher(direction, settings.concentration).rvs(size, random_state=rng)
        documents[:, members] = vectors.reshape(settings.repeats, -1, settings.dimension)
    return documents


def _sample_scores(settings: SimulationSettings, is_true: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Sample the documents' scores, float32 ``[repeats, m]``; true documents have a higher mean."""
    shift = math.sqrt(2) * float(norm.ppf(settings.auc))
    rng = generator(settings.seed, "theory.scores")
    scores = rng.normal(size=(settings.repeats, settings.documents)) + shift * is_true
    return scores.astype(np.float32)


def _probabilities(
    settings: SimulationSettings, name: str, scores: NDArray[np.float32]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return a method's P(d|q), float64, and the documents it selects, bool: ``[repeats, m]``."""
    values: dict[str, dict[str, Any]] = {
        "ft": {},
        "sp": {"k": settings.k},
        "dp": {
            "levels": "document",
            "beta_start": settings.beta,
            "beta_end": settings.beta,
            "v_start": settings.v,
            "v_end": settings.v,
        },
    }
    method, m = METHODS[name], settings.documents
    method_settings = method.settings_class.parse(values[name])
    method.check(method_settings, 1, m)
    pairs = TrainingPairs.from_arrays(np.zeros(m, dtype=np.int32), np.arange(m))
    plan, no_losses = Plan(settings.seed, 1, 1), np.zeros(m)
    methods = (method(pairs, plan, method_settings, PairScores(pairs, row, no_losses)) for row in scores)
    probabilities = np.array([dynamic.probabilities(0).document for dynamic in methods])
    return probabilities, probabilities >= probabilities.max(axis=1, keepdims=True) * (1 - 1e-9)


def _cosine(sampled: NDArray[np.float64], true: NDArray[np.float64]) -> float:
    """Return E from the mean sampled and true documents of the repeats, both ``[r, dimension]``."""
    direction = sampled.mean(axis=0)
    return float(direction @ true.mean(axis=0) / np.linalg.norm(direction))
