"""Reject settings that the model of a run does not have."""

from __future__ import annotations

from typing import Any

from opera.config.training import EncodingSettings, TrainSettings
from opera.core.errors import SettingError
from opera.core.terminal import shown
from opera.methods import Method
from opera.methods.dynamic import DynamicPruning
from opera.methods.twostage import StaticThenDynamic
from opera.retrieval.kinds import EncodingKind


def check_kind(kind: type[EncodingKind], settings: TrainSettings, processes: int) -> None:
    """Reject settings that a kind of model does not have.

    Raises:
        SettingError: with the setting and the reason.
    """
    is_dense, has_tokens = kind.name == "dense", kind.name == "multi-vector"
    problems = (
        (
            not is_dense and settings.adapter_kind is not None,
            "adapter",
            "maps one vector per text with it",
        ),
        (not is_dense and settings.matryoshka is not None, "matryoshka", "cuts only dense vectors"),
        (has_tokens and settings.gradient_cache is not None, "gradient_cache", "has none for them"),
        (has_tokens and settings.passages is not None, "passages", "has none for them"),
    )
    for is_problem, name, reason in problems:
        if is_problem:
            raise SettingError(
                f"{name}={shown(getattr(settings, name))}: the model is a {kind.title}, and OPERA "
                f"{reason}; remove the setting"
            )
    if has_tokens and processes > 1:
        raise SettingError(f"{processes} processes: OPERA trains a {kind.title} in one process")


def check_new_head(kind: str, method: type[Method[Any]]) -> None:
    """Reject methods that mix scores before training with those of training.

    Raises:
        SettingError: for dynamic pruning.
    """
    if issubclass(method, DynamicPruning | StaticThenDynamic):
        raise SettingError(
            f"method={method.name}: begins with the scores before training, but the {kind} model "
            "has a new head, and its scores are not those of the dense base model; use denoise, "
            "ft, infobatch or sp"
        )


def check_adapter(settings: TrainSettings) -> None:
    """Reject settings without effect on an adapter: of the model's training, and of encoding if the
    vectors come from files.
    """
    if settings.adapter_kind is not None and settings.passages is not None:
        raise SettingError(
            f"passages={settings.passages}: an adapter reads one vector per document; remove one "
            "of the two settings"
        )
    unused = set() if settings.adapter_kind is None else {"dropout"}
    reason = "the model does not train"
    if settings.query_vectors is not None:
        unused |= {
            "max_query_length",
            "max_passage_length",
            "corpus_text",
            "query_prompt",
            "document_prompt",
        }
        reason = "the vectors come from files"
    for name in sorted(unused & settings.model_fields_set):
        if (value := getattr(settings, name)) != EncodingSettings.model_fields[name].default:
            raise SettingError(
                f"{name}={value}: has no effect with adapter={settings.adapter_kind}, because "
                f"{reason}; remove the setting"
            )
