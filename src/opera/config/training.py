"""Every setting of a training run that is not its method's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic.fields import FieldInfo

from opera.config.distillation import DistillationSettings
from opera.config.encoding import EncodingSettings
from opera.config.evaluation import EvaluationSettings, GuardSettings
from opera.config.labels import LabelSettings
from opera.config.logs import LoggingSettings
from opera.config.mixing import MixingSettings
from opera.config.negatives import NegativeSettings
from opera.config.optimisation import BatchingSettings, OptimisationSettings
from opera.config.trainer_arguments import WITHOUT_EFFECT
from opera.config.tuning import AdapterSettings
from opera.config.weights import WeightSettings
from opera.core.settings import Settings, resolved

GROUPS: dict[str, type[Settings]] = {
    "optimisation": OptimisationSettings,
    "distillation": DistillationSettings,
    "batching": BatchingSettings,
    "encoding": EncodingSettings,
    "adapter": AdapterSettings,
    "negative sampling": NegativeSettings,
    "labels": LabelSettings,
    "weights": WeightSettings,
    "mixing": MixingSettings,
    "evaluation": EvaluationSettings,
    "guard": GuardSettings,
    "logging": LoggingSettings,
}
"""The groups of ``opera train --help-settings``, in its order."""


class TrainSettings(
    LoggingSettings,
    GuardSettings,
    EvaluationSettings,
    MixingSettings,
    WeightSettings,
    LabelSettings,
    NegativeSettings,
    AdapterSettings,
    EncodingSettings,
    BatchingSettings,
    DistillationSettings,
    OptimisationSettings,
):
    """All settings of a run but its method's, one flat list of names."""

    @classmethod
    def with_effect(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Leave out the settings that change no result, fields of the trainer among them."""
        kept = {name: value for name, value in values.items() if name not in cls.without_effect()}
        fields = {
            name: value
            for name, value in (kept.get("trainer") or {}).items()
            if name not in WITHOUT_EFFECT
        }
        return {**kept, "trainer": fields or None} if "trainer" in kept else kept

    @classmethod
    def without_effect(cls) -> set[str]:
        """The settings that change no result, and so are no part of a run's identity."""
        return {
            name
            for name, field in cls.model_fields.items()
            if not (field.json_schema_extra or {})["effect"]  # type: ignore[index]
        }

    def with_values(self, values: Mapping[str, Any]) -> Self:
        """Replace settings. The values are taken as they are, contradictions among them."""
        return self.model_copy(update=dict(values))

    def flat(self) -> dict[str, Any]:
        """All settings by their names."""
        return {name: getattr(self, name) for name in type(self).model_fields}

    @property
    def needs_dev(self) -> bool:
        """Whether the run uses the dev split, during training or after it."""
        return self.evaluates_on_dev or self.guard

    @property
    def steps_between_checkpoints(self) -> int:
        """``save_steps``, or its automatic value; with ``load_best_model_at_end`` every evaluation is saved."""
        if self.load_best_model_at_end and self.eval_steps is not None:
            return self.eval_steps
        return self.save_steps or min(500, max(1, resolved(self.max_steps) // 10))

    flat_fields: ClassVar[dict[str, FieldInfo]]
    """The declaration of each setting, by its name."""


TrainSettings.flat_fields = TrainSettings.model_fields
