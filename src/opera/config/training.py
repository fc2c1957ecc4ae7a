"""All settings of a training run, except those of its method."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, model_validator

from opera.config.negatives import LabelSettings, MixingSettings, NegativeSettings, WeightSettings
from opera.config.optimisation import OptimisationSettings
from opera.config.yaml import parse_assignments
from opera.core.arguments import MOST, expand_user
from opera.core.errors import SettingError, raise_first
from opera.core.settings import Settings, extra_of, resolved, setting

LONGEST_PROMPT = 10_000
"""Characters."""


class EncodingSettings(Settings):
    """How the model reads texts, in training and when it encodes a corpus."""

    kind: Literal["dense", "sparse", "multi-vector"] | None = setting(
        None,
        "the kind of model to make of the folder's; auto: what its files say, else dense",
        "docs/kinds.md",
        flag="--kind",
    )
    max_query_length: int = setting(
        128, "most tokens of a query, up to the model's limit", "Appendix C.2", ge=1, le=MOST
    )
    max_passage_length: int = setting(
        512,
        "most tokens of a document, up to the model's limit",
        "Appendix C.2",
        ge=1,
        le=MOST,
    )
    passages: int | None = setting(
        None,
        "split longer documents into passages of at most so many tokens, between sentences; train "
        "on the passage that matches its query best, and rank a document by its best passage; "
        "0: whole documents; auto: as the run that made the model, else 0",
        "docs/long-documents.md",
        ge=0,
        le=MOST,
        flag="--passages",
    )
    query_prompt: str | None = setting(
        None,
        "prompt before each query, used verbatim; empty for none; auto: the data's or the model's "
        "prompt",
        "docs/models.md",
        max_length=LONGEST_PROMPT,
    )
    document_prompt: str | None = setting(
        None,
        "prompt before each document, used verbatim; empty for none; auto: the model's prompt",
        "docs/models.md",
        max_length=LONGEST_PROMPT,
    )
    corpus_text: Literal["title_text", "text"] = setting(
        "title_text",
        "the parts of a document that are encoded; the release encodes only the text",
        "erratum 11",
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = setting(
        "auto",
        "autocast in training and encoding; auto: bf16 if the device supports it",
        "OPERA",
    )
    dropout: float | None = setting(
        None, "dropout rate in training; auto: the model's rate", "OPERA", ge=0, lt=1
    )

    @classmethod
    def chosen(cls, **values: Any) -> dict[str, Any]:
        """Check the encoding settings among the values that are not ``None``, and return them.

        They are arguments of :func:`opera.retrieval.encoder.open_encoder`, for which ``None`` means
        the model's setting.

        Raises:
            SettingError: with every value that breaks a rule.
        """
        chosen = {name: values[name] for name in cls.model_fields if values.get(name) is not None}
        return cls.parse(chosen).model_dump(exclude_unset=True)


EXAMPLE = "r=16,alpha=32,dropout=0.05,target=query;value,merge=false"


class LoraOptions(Settings):
    """LoRA trains B ``[out, r]`` and A ``[r, in]`` of W + alpha/r · B A. The weights W stay.

    Attributes:
        r: rank.
        alpha: weight of the product, times r.
        dropout: dropout rate of A's input.
        target: names of layers, separated by semicolons; ``all-linear`` for all linear layers.
        merge: whether the saved model holds W + alpha/r · B A. If not, it holds A, B and the name
            of the base model.
    """

    listing = f"such as lora={EXAMPLE}"

    r: int = setting(16, "rank", "peft", ge=1, le=10_000)
    alpha: float | None = setting(
        None, "weight of the product, times r; auto: 2 r", "OPERA", gt=0, le=100_000
    )
    dropout: float = setting(0.0, "dropout rate", "peft", ge=0, lt=1)
    target: str = setting("all-linear", "layers", "arXiv:2305.14314")
    merge: bool = setting(True, "add the product to the weights when the model is saved", "OPERA")

    @property
    def targets(self) -> str | list[str]:
        """The layers, in peft's form."""
        return self.target if self.target == "all-linear" else self.target.split(";")

    @property
    def scale(self) -> float:
        """Alpha, or its automatic value."""
        return 2.0 * self.r if self.alpha is None else self.alpha


def lora_options(text: str) -> LoraOptions:
    """Read the text of the setting ``lora``.

    Raises:
        SettingError: with the option, the rule and the value.
    """
    return LoraOptions.parse(parse_assignments(text.split(","), "lora", EXAMPLE))


def _check_lora(value: Any) -> Any:
    """Check the options, as a text, as a mapping, or as the number r."""
    text = f"r={value}" if type(value) is int else value
    if isinstance(text, Mapping):
        text = ",".join(f"{name}={option}" for name, option in text.items())
    if not isinstance(text, str):
        raise ValueError(f"must be a rank such as 16, or {EXAMPLE}")
    try:
        lora_options(text)
    except SettingError as error:
        raise ValueError("; ".join(error.lines)) from None
    return text


class AdapterSettings(Settings):
    """Train a residual projection over frozen vectors, or LoRA's matrices, instead of the model."""

    adapter: Literal["query", "both"] | None = setting(
        None,
        "train a projection over frozen vectors instead of the model: of queries, so that an index "
        "of documents stays valid, or of both sides; auto: query with query_vectors, else none",
        "OPERA",
        flag="--adapter",
    )
    query_vectors: (
        Annotated[str, AfterValidator(partial(expand_user, name="query_vectors"))] | None
    ) = setting(
        None,
        "file of the queries' vectors, .npy or .parquet, if the model cannot be loaded",
        "OPERA",
        flag="--query-vectors",
    )
    document_vectors: (
        Annotated[str, AfterValidator(partial(expand_user, name="document_vectors"))] | None
    ) = setting(
        None,
        "file of the documents' vectors, .npy or .parquet",
        "OPERA",
        flag="--document-vectors",
    )

    lora: Annotated[str, BeforeValidator(_check_lora)] | None = setting(
        None,
        "train LoRA matrices of rank r on the frozen weights of a transformer, such as r=16; more "
        "options after commas: alpha=32 (auto: 2 r), dropout=0.05, target=query;value (auto: "
        "all-linear), and merge=false, which saves only the matrices; auto: none",
        "arXiv:2106.09685",
        flag="--lora",
    )

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if self.lora is not None and self.adapter_kind is not None:
            raise ValueError(
                f"lora: with adapter={self.adapter_kind} the model itself does not train; give one "
                "of them"
            )
        if (self.query_vectors is None) != (self.document_vectors is None):
            present, absent = ("query", "document") if self.query_vectors else ("document", "query")
            raise ValueError(f"{present}_vectors needs {absent}_vectors: give both files")
        return self

    @property
    def adapter_kind(self) -> Literal["query", "both"] | None:
        """The side with a projection; ``None`` if the model itself trains."""
        return self.adapter or ("query" if self.query_vectors else None)

    @property
    def lora_options(self) -> LoraOptions | None:
        """The options of LoRA; ``None`` without LoRA."""
        return None if self.lora is None else lora_options(self.lora)


class GuardSettings(Settings):
    """How the final model is chosen on the dev split."""

    expected_documents: Literal["known", "new", "both", "like-test"] | None = setting(
        None,
        "documents that future queries will ask about: known (documents of the training pairs), "
        "new (other documents), both (neither kind may lose), or like-test (as new as those of the "
        "test split); auto: like-test if the data has a test split, else by how often train "
        "queries share documents",
        "docs/did-it-help.md",
        flag="--expected-documents",
    )
    guard: bool = setting(
        True,
        "mix the weights of the base and the fine-tuned model, with the mixing weight λ chosen on "
        "the dev split; false: the final model has the fine-tuned weights",
        "docs/did-it-help.md",
    )
    refit: bool | None = setting(
        None,
        "train again with the dev split back in train, and with the λ of the first training; "
        "auto: if dev was split off and has more than 5% of the train queries or pairs, for "
        "static models, adapters and at most 200 steps, and eval_steps is not set",
        "docs/did-it-help.md",
    )
    bm25: bool | None = setting(
        None,
        "measure keyword search, and choose its weight in hybrid search on dev; auto: up to "
        "200,000 documents",
        "docs/keyword-search.md",
    )


class TrainSettings(
    GuardSettings,
    MixingSettings,
    WeightSettings,
    LabelSettings,
    NegativeSettings,
    AdapterSettings,
    EncodingSettings,
    OptimisationSettings,
):
    """All settings of a run except those of its method, as one flat list of names."""

    @model_validator(mode="after")
    def _refit_is_possible(self) -> Self:
        raise_first(
            ValueError,
            (
                self.refit and not self.guard,
                "refit=true needs guard=true; remove one of the two settings",
            ),
            (
                self.refit and self.evaluates_on_dev,
                f"refit=true with eval_steps={self.eval_steps}: the second training has no dev "
                "split to evaluate; remove one of the two settings",
            ),
        )
        return self

    def documents_per_pass(self, processes: int) -> int:
        """Return how many documents a query is compared with in a forward pass of all processes."""
        return self.queries_per_pass(processes) * (1 + self.n_negatives)

    def draws_per_document(self, documents: float, processes: int) -> float:
        """Return how often a training draws each document as a random negative, on average.

        Args:
            documents: the number of documents that may be drawn.
            processes: the number of processes that train together.
        """
        draws = resolved(self.max_steps) * self.queries_per_step(processes) * self.n_negatives
        return draws / max(documents, 1)

    @property
    def evaluates_on_dev(self) -> bool:
        """Whether the dev split is evaluated during training."""
        return self.eval_steps is not None

    @property
    def needs_dev(self) -> bool:
        """Whether the run uses the dev split, during training or after it."""
        return self.evaluates_on_dev or self.guard


FILES = ("decisions", "teacher_scores", "query_vectors", "document_vectors")
"""Settings that name files. A run is identified by their contents, not by their names."""


def reads_lists(values: Mapping[str, Any]) -> bool:
    """Whether settings name lists of pairs. The encoding of tables then applies to them too."""
    return bool(values.get("decisions") or values.get("teacher_scores"))


FLAGS = {
    name: flag
    for name, field in TrainSettings.model_fields.items()
    if (flag := extra_of(field, "flag"))
}
"""The options of ``opera train``, by setting."""


def flag_of(name: str) -> str:
    """Return the option of a setting, in the commands that have one for it."""
    return FLAGS.get(name, f"--{name.replace('_', '-')}")


GROUPS: dict[str, type[Settings]] = {
    "training": OptimisationSettings,
    "encoding": EncodingSettings,
    "adapter": AdapterSettings,
    "negatives": NegativeSettings,
    "labels": LabelSettings,
    "weights": WeightSettings,
    "several data sets": MixingSettings,
    "guard": GuardSettings,
}
"""The groups of settings, in the order of ``opera train --help-settings``."""
