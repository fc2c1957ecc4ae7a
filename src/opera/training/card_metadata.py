"""The header of a model card, as the Hugging Face Hub reads it. What is not known is left out, never guessed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from huggingface_hub import EvalResult, ModelCardData

from opera.retrieval.locate import MINILM
from opera.runs.record import RunRecord
from opera.training.repeat import is_place, short_data, short_source

TAGS = ["sentence-transformers", "feature-extraction", "dense-retrieval", "opera"]
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
HUB_NAMES = {MINILM: "sentence-transformers/all-MiniLM-L6-v2"}
"""Models that have another name on the hub."""
TASK = "information-retrieval"


def base_name(source: str) -> str:
    """What the pretrained model is called: its id on the hub, or the name of its folder."""
    return HUB_NAMES.get(source, short_source(source))


def hub_id(source: str) -> str | None:
    """Return the id of a model on the hub; ``None`` for a folder, which nobody else has."""
    name = HUB_NAMES.get(source, source)
    return name if HUB_ID.fullmatch(name) and not is_place(source) else None


def metadata(
    record: RunRecord, after: Mapping[str, float], language: Sequence[str] = ()
) -> ModelCardData:
    """Describe a run's model for the hub.

    Args:
        record: the run.
        after: measures on test of the model handed over, by name.
        language: codes of the texts' languages, if the user named them.
    """
    data, base = short_data(record), hub_id(record.model.source)
    dataset = data.removeprefix("hf:") if data.startswith("hf:") else None
    known = dataset if dataset and HUB_ID.fullmatch(dataset) else None
    results = [
        EvalResult(
            task_type=TASK,
            task_name="Information Retrieval",
            dataset_type=known or re.sub(r"[^\w.-]+", "-", data).strip("-") or "data",
            dataset_name=data,
            dataset_split="test",
            metric_type=name.lower().replace("@", "_at_"),
            metric_name=name,
            metric_value=round(value, 5),
        )
        for name, value in after.items()
    ]
    return ModelCardData(
        base_model=base,
        datasets=None if known is None else [known],
        language=list(language) or None,
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=TAGS,
        model_name=f"{base_name(record.model.source)} adapted to {data}",
        eval_results=results,
    )
