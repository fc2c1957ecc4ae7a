"""Presets: the settings of the paper's text, and those of the authors' release."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

PRESET_LEARNING_RATE = 1e-6
"""Of bge-large-en-v1.5 over 32,000 steps (Appendix C.2)."""

_BOTH: dict[str, Any] = {
    "max_steps": 32_000,
    "learning_rate": PRESET_LEARNING_RATE,
    "temperature": 0.02,
    "train_group_size": 2,
    "mask_known_positives": False,
    "guard": False,
    "k": 0.25,
    "alpha_start": 2.0,
    "alpha_end": 5.0,
    "r_start": 0.25,
    "beta_start": 5.0,
    "beta_end": 5.0,
    "v_start": 0.25,
    "v_end": 0.5,
    "threshold": "global",
    "rho": 0.25,
    "delta": 0.875,
}
"""Table 9's most frequent number of steps, Appendix C.2, and what both do not state as
docs/paper.md has it.
"""

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {
        **_BOTH,
        "global_batch_size": 64,
        "warmup_ratio": 0.0,
        "corpus_text": "title_text",
        "query_score": "loss",
        "update_interval": 1,
        "query_weighting": "pairs",
    },
    "release": {
        **_BOTH,
        "global_batch_size": 128,
        "warmup_ratio": 0.05,
        "trainer": {"weight_decay": 0.01},
        "corpus_text": "text",
        "prune_before_mining": True,
        "query_score": "similarity",
        "update_interval": "epoch",
        "query_weighting": "uniform",
    },
}
"""Settings by preset. Those of a method apply to the methods that have them.

:func:`opera.config.automatic.resolve` adds what the machine decides: fp16 on CUDA.
"""

_DIFFERENT = {
    name
    for name in PRESETS["paper"].keys() | PRESETS["release"].keys()
    if PRESETS["paper"].get(name) != PRESETS["release"].get(name)
} - {"trainer"}
"""What the two presets are about: the settings that they set differently, or one of them alone."""
_PAPERS_ALONE = {"trainer"}
"""What the paper's recipes hold besides, and the release's do not: accumulation, for Qwen3
(Appendix C.3).
"""

ALTERNATIVES = ({"max_steps", "epochs"}, {"global_batch_size", "per_device_train_batch_size"})
"""Settings that say the same in two ways; whoever gives one of them replaces both of a preset or a
recipe file.
"""


def without_replaced(values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out of ``values`` every setting that says what one of ``given`` says in another way."""
    named = {name for name, value in given.items() if value is not None}
    replaced = {name for same in ALTERNATIVES if same & named for name in same - named}
    return {name: value for name, value in values.items() if name not in replaced}


def fitted_to_preset(recipe: Mapping[str, Any], preset: str | None) -> dict[str, Any]:
    """Fit a recipe of the paper's to a preset: leave to the preset what the two presets set
    differently.

    The release's ranks of hard negatives are a Python slice, which begins one rank later (paper.md,
    row 13).
    """
    if preset not in PRESETS:
        return dict(recipe)
    left = _DIFFERENT | _PAPERS_ALONE if preset == "release" else _DIFFERENT
    values = {name: value for name, value in recipe.items() if name not in left}
    if preset == "release" and "range" in values:
        low, _, high = str(values["range"]).partition(":")
        values["range"] = f"{int(low) + 1}:{high}"
    return values


def with_preset(values: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Put the settings of the preset that ``values`` names behind those given; without a preset,
    return the values.

    Args:
        values: settings by their full names.
        known: every setting of the run: those of training and those of its method.
    """
    preset = without_replaced(PRESETS.get(str(values.get("preset")), {}), values)
    merged = {**{name: value for name, value in preset.items() if name in known}, **values}
    if isinstance(values.get("trainer"), Mapping) and "trainer" in preset:
        merged["trainer"] = {**preset["trainer"], **values["trainer"]}
    return merged
