"""Every setting of a training run that is not its method's, in groups; users see one flat list of names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import ValidationError
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
from opera.core.errors import SettingError
from opera.core.settings import SettingDoc, Settings, explain, resolved, unknown_setting


class TrainSettings(Settings):
    """All settings of a run but its method's: groups inside, one flat list of names outside.

    Attributes:
        optimisation: the loss and the optimizer.
        distillation: a teacher's scores, and how ``loss=distill`` learns from them.
        batching: the size of a batch, and how it is loaded.
        encoding: how the model reads texts.
        adapter: what trains instead of the whole model.
        negative_sampling: explicit negatives, and which in-batch negatives count.
        labels: which qrels count as relevant, and injected label noise.
        weights: what weights of pairs are used for.
        mixing: how several data sets are drawn in one run.
        evaluation: evaluation during training, and drawn splits.
        guard: how the share of the fine-tuned weights is chosen.
        logging: what a run logs and saves on its way.
    """

    optimisation: OptimisationSettings = OptimisationSettings()
    distillation: DistillationSettings = DistillationSettings()
    batching: BatchingSettings = BatchingSettings()
    encoding: EncodingSettings = EncodingSettings()
    adapter: AdapterSettings = AdapterSettings()
    negative_sampling: NegativeSettings = NegativeSettings()
    labels: LabelSettings = LabelSettings()
    weights: WeightSettings = WeightSettings()
    mixing: MixingSettings = MixingSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    guard: GuardSettings = GuardSettings()
    logging: LoggingSettings = LoggingSettings()

    group_of: ClassVar[dict[str, str]]
    """The group of each setting, by its flat name."""
    flat_fields: ClassVar[dict[str, FieldInfo]]
    """The declaration of each setting, by its flat name."""

    @classmethod
    def from_flat(cls, values: Mapping[str, Any]) -> tuple[Self, list[str]]:
        """Build the groups from flat values.

        Returns:
            The settings, with defaults for a group that has mistakes; and every mistake, a sentence each.
        """
        mistakes = [
            unknown_setting(name, cls.flat_fields) for name in values if name not in cls.flat_fields
        ]
        groups = {}
        for name, field in cls.model_fields.items():
            group: type[Settings] = field.annotation  # type: ignore[assignment]
            try:
                groups[name] = group(
                    **{key: value for key, value in values.items() if key in group.model_fields}
                )
            except ValidationError as error:
                mistakes += explain(error, group.model_fields)
        return cls(**groups), mistakes

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Build the groups from flat values.

        Raises:
            SettingError: naming every unknown name and every value that breaks its rule.
        """
        settings, mistakes = cls.from_flat(values)
        if mistakes:
            raise SettingError(*mistakes)
        return settings

    @classmethod
    def docs_by_group(cls) -> dict[str, list[SettingDoc]]:
        """Describe each setting, by group."""
        return {name: field.annotation.docs() for name, field in cls.model_fields.items()}  # type: ignore[union-attr]

    @classmethod
    def group_class(cls, name: str) -> type[Settings]:
        """The group that a setting belongs to, by the setting's flat name."""
        group: type[Settings] = cls.model_fields[cls.group_of[name]].annotation  # type: ignore[assignment]
        return group

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
            for name, field in cls.flat_fields.items()
            if not (field.json_schema_extra or {})["effect"]  # type: ignore[index]
        }

    def with_values(self, values: Mapping[str, Any]) -> Self:
        """Replace settings by their flat names. The values are taken as they are, contradictions among them."""
        groups = {name: getattr(self, name) for name in {self.group_of[name] for name in values}}
        return self.model_copy(
            update={
                name: group.model_copy(
                    update={key: values[key] for key in values if self.group_of[key] == name}
                )
                for name, group in groups.items()
            }
        )

    def flat(self) -> dict[str, Any]:
        """All settings by their flat names."""
        return {name: getattr(getattr(self, group), name) for name, group in self.group_of.items()}

    @property
    def needs_dev(self) -> bool:
        """Whether the run uses the dev split, during training or after it."""
        return self.evaluation.needs_dev or self.guard.guard

    @property
    def steps_between_checkpoints(self) -> int:
        """``save_steps``, or its automatic value; with ``load_best_model_at_end`` every evaluation is saved."""
        if self.evaluation.load_best_model_at_end and self.evaluation.eval_steps is not None:
            return self.evaluation.eval_steps
        return self.logging.save_steps or min(
            500, max(1, resolved(self.optimisation.max_steps) // 10)
        )


_FLAT = {
    setting_name: (group_name, declaration)
    for group_name, group_field in TrainSettings.model_fields.items()
    for setting_name, declaration in group_field.annotation.model_fields.items()  # type: ignore[union-attr]
}
TrainSettings.group_of = {name: group for name, (group, _) in _FLAT.items()}
TrainSettings.flat_fields = {name: declaration for name, (_, declaration) in _FLAT.items()}
