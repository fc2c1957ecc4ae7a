"""Settings of evaluation: the dev split, drawn splits, and the guard that chooses what is handed over."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from opera.core.arguments import MOST
from opera.core.settings import Settings, setting


class EvaluationSettings(Settings):
    """Evaluation during training, and the splits that are drawn where the data has none."""

    eval_steps: int | None = setting(
        None,
        "steps between two evaluations on the dev split; auto: none",
        "transformers",
        ge=1,
        le=MOST,
    )
    metric_for_best_model: str = setting(
        "nDCG@10", "dev measure that chooses the guard's share, and the best model", "OPERA"
    )
    load_best_model_at_end: bool = setting(
        False,
        "keep the model of the best evaluation; needs eval_steps, and saves at each",
        "transformers",
    )
    eval_corpus_sample: int | None = setting(
        None,
        "rank among the judged documents and so many others, drawn once, in the evaluations during training; the "
        "measure is then named for it; auto: all documents",
        "issue 15",
        ge=1,
        le=MOST,
    )
    early_stopping_patience: int | None = setting(
        None,
        "evaluations without improvement before training stops; needs eval_steps",
        "transformers",
        ge=1,
        le=MOST,
    )
    future: Literal["same-documents", "new-documents", "both", "like-test"] | None = setting(
        None,
        "what tomorrow's queries ask about (--future): same-documents, those that training names; new-documents, none "
        "of them; both, then no half may lose; like-test, as new as those of the test split; auto: like-test where the "
        "data has a test split, else by how often train queries share documents",
        "issue 23",
    )
    dev_fraction: float | None = setting(
        None,
        "share of train queries drawn as dev, where dev is needed and absent; auto: a tenth, but 100 to 1,000 queries "
        "and at most a quarter",
        "OPERA",
        gt=0,
        lt=1,
    )
    test_fraction: float = setting(
        0.1,
        "share of train queries drawn as test, where the data has no test split",
        "OPERA",
        gt=0,
        lt=1,
    )

    @model_validator(mode="after")
    def _best_model_needs_evaluations(self) -> Self:
        for name in ("load_best_model_at_end", "early_stopping_patience", "eval_corpus_sample"):
            if getattr(self, name) and self.eval_steps is None:
                raise ValueError(
                    f"{name}={getattr(self, name)} needs eval_steps: steps between two evaluations"
                )
        return self

    @property
    def dev_measure(self) -> str:
        """Name of what evaluations during training measure, never that of the full measure if a sample is ranked."""
        if self.eval_corpus_sample is None:
            return self.metric_for_best_model
        return f"{self.metric_for_best_model} (judged + {self.eval_corpus_sample:,} sampled)"

    @property
    def evaluates_on_dev(self) -> bool:
        """Whether the dev split is evaluated during training."""
        return self.eval_steps is not None


class GuardSettings(Settings):
    """How the share of the fine-tuned weights is chosen on the dev split."""

    guard: bool = setting(
        True,
        "hand over (1-share)·untrained + share·fine-tuned weights, the share chosen on the dev split; "
        "false hands over the fine-tuned weights as they are",
        "issue 11",
    )
    refit: bool | None = setting(
        None,
        "train once more with the drawn dev split back in train, and the share that the first training chose; "
        "auto: where dev took more than 5% of the train queries or pairs and no other query's, for static models, "
        "adapters and trainings of at most 200 steps, and eval_steps is not set",
        "issue 11",
    )
    guard_documents: int = setting(
        10_000,
        "documents that dev queries are ranked among to choose the share, where a transformer's corpus has more: the "
        "relevant ones, the untrained model's best, and others at random",
        "OPERA",
        ge=100,
        le=MOST,
    )
    keep_fine_tuned: bool = setting(
        False, "keep the fine-tuned model, share 1, in RUN/fine_tuned", "issue 11"
    )
