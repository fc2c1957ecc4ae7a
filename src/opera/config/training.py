"""Every setting of a training run that is not its method's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic.fields import FieldInfo

from opera.config.encoding import EncodingSettings
from opera.config.negatives import LabelSettings, MixingSettings, NegativeSettings, WeightSettings
from opera.config.optimisation import BatchingSettings
from opera.config.trainer import WITHOUT_EFFECT
from opera.config.tuning import AdapterSettings
from opera.core.settings import Settings, extra_of, setting


class GuardSettings(Settings):
    """How what is handed over is chosen on the dev split."""

    future: Literal["same-documents", "new-documents", "both", "like-test"] | None = setting(
        None,
        "what tomorrow's queries ask about: same-documents, those of the training pairs; "
        "new-documents, none of them; both, then no half may lose; like-test, as new as those of "
        "the test split; auto: like-test where the data has a test split, else by how often train "
        "queries share documents",
        "docs/when-fine-tuning-hurts.md",
        flag="--future",
        everyday=True,
    )
    guard: bool = setting(
        True,
        "hand over (1-share)·untrained + share·fine-tuned weights, the share chosen on the dev "
        "split; "
        "false hands over the fine-tuned weights as they are",
        "docs/when-fine-tuning-hurts.md",
        everyday=True,
    )
    refit: bool | None = setting(
        None,
        "train once more with the drawn dev split back in train, and the share that the first "
        "training chose; "
        "auto: where dev took more than 5% of the train queries or pairs and no other query's, for "
        "static models, "
        "adapters and trainings of at most 200 steps, and eval_steps is not set",
        "docs/when-fine-tuning-hurts.md",
    )


class TrainSettings(
    GuardSettings,
    MixingSettings,
    WeightSettings,
    LabelSettings,
    NegativeSettings,
    AdapterSettings,
    EncodingSettings,
    BatchingSettings,
):
    """All settings of a run but its method's, one flat list of names."""

    flat_fields: ClassVar[dict[str, FieldInfo]]
    """The declaration of each setting, by its name."""

    @classmethod
    def with_effect(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Leave out the fields of the trainer that change no result."""
        fields = values.get("trainer") or {}
        kept = {
            name: value for name, value in fields.items() if not name.startswith(WITHOUT_EFFECT)
        }
        return {**values, "trainer": kept or None}

    def with_values(self, values: Mapping[str, Any]) -> Self:
        """Replace settings. The values are taken as they are, contradictions among them."""
        return self.model_copy(update=dict(values))

    def flat(self) -> dict[str, Any]:
        """All settings by their names."""
        return {name: getattr(self, name) for name in type(self).model_fields}

    @property
    def evaluates_on_dev(self) -> bool:
        """Whether the dev split is evaluated during training."""
        return self.eval_steps is not None

    @property
    def needs_dev(self) -> bool:
        """Whether the run uses the dev split, during training or after it."""
        return self.evaluates_on_dev or self.guard


TrainSettings.flat_fields = TrainSettings.model_fields
FLAGS = {
    name: flag
    for name, field in TrainSettings.model_fields.items()
    if (flag := extra_of(field, "flag"))
}
"""The options of ``opera train``, by the settings that have one."""
TEST_FRACTION = 0.1
"""Share of the train queries that becomes test where the data has no such split."""
GROUPS: dict[str, type[Settings]] = {
    "training": BatchingSettings,
    "encoding": EncodingSettings,
    "adapter": AdapterSettings,
    "negatives": NegativeSettings,
    "labels": LabelSettings,
    "weights": WeightSettings,
    "several data sets": MixingSettings,
    "guard": GuardSettings,
}
"""The groups of ``opera train --help-settings``, in its order."""
