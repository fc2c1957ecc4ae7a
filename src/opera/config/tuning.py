"""Settings of what trains in place of all weights: an adapter over frozen vectors, or LoRA's matrices."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, model_validator

from opera.config.lora import LoraOptions, LoraText, lora_options
from opera.core.paths import expand_user
from opera.core.settings import Settings, setting


class AdapterSettings(Settings):
    """What trains instead of the whole model: a residual projection over frozen vectors, or LoRA's matrices."""

    adapter: Literal["query", "both"] | None = setting(
        None,
        "train a projection over frozen vectors instead of the model (--adapter): of queries, so that an index of "
        "documents stays valid, or of both sides; auto: query with query_vectors, else none",
        "OPERA",
    )
    query_vectors: (
        Annotated[str, AfterValidator(partial(expand_user, name="query_vectors"))] | None
    ) = setting(
        None,
        "file of the queries' vectors, .npy or .parquet, for a model that cannot be loaded (--query-vectors)",
        "OPERA",
    )
    document_vectors: (
        Annotated[str, AfterValidator(partial(expand_user, name="document_vectors"))] | None
    ) = setting(None, "file of the documents' vectors, likewise (--document-vectors)", "OPERA")

    lora: LoraText | None = setting(
        None,
        "train matrices of rank r beside the frozen weights of a transformer (--lora r=16); more options after commas: "
        "alpha=32 (auto: 2 r), dropout=0.05, target=query;value (auto: all-linear), and merge=false, which saves the "
        "matrices by themselves; auto: none",
        "arXiv:2106.09685",
    )

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if self.lora is not None and self.adapter_kind is not None:
            raise ValueError(
                f"lora: with adapter={self.adapter_kind} the model itself does not train; give one of them"
            )
        if (self.query_vectors is None) != (self.document_vectors is None):
            given, absent = ("query", "document") if self.query_vectors else ("document", "query")
            raise ValueError(f"{given}_vectors needs {absent}_vectors: give both files")
        return self

    @property
    def adapter_kind(self) -> Literal["query", "both"] | None:
        """Which side is projected; ``None`` where the whole model trains."""
        return self.adapter or ("query" if self.query_vectors else None)

    @property
    def lora_options(self) -> LoraOptions | None:
        """The options of LoRA; ``None`` where the weights themselves train."""
        return None if self.lora is None else lora_options(self.lora)
