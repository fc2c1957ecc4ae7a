"""The model card (README.md) and the recipe in the final model's folder.

Neither contains the paths of folders.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from huggingface_hub import EvalResult, ModelCardData
from ruamel.yaml import YAML

from opera.config.recipe import make_recipe
from opera.core.files import replace_file
from opera.core.intervals import few_queries
from opera.core.terminal import counted
from opera.data.names import MEMORY, TABLES
from opera.data.table_files import TableSource
from opera.retrieval.locate import MINILM
from opera.retrieval.measures import DEFAULT_MEASURES
from opera.runs.changes import Change
from opera.runs.folder import CARD_FILE, RECIPE_FILE
from opera.runs.names import hub_key
from opera.runs.record import RunRecord, mean_of_sets
from opera.runs.verdict import verdict_sentence, weight_sentence

TAGS = ["sentence-transformers", "feature-extraction", "dense-retrieval", "opera"]
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
HUB_NAMES = {MINILM: "sentence-transformers/all-MiniLM-L6-v2"}
"""The hub ids of models with a short name."""
MODEL_CARD = """---
{metadata}
---

# {base}, adapted with OPERA

`{base}` adapted to `{data}` by {method} over {steps:,} steps (seed {seed}).

## Measures

{measures}

## Data

`{data}`: {counts}.{refitted}

Training read {lengths}. Prompts: {prompts}. {stored}
`mask_known_positives` was {masked}.

## Use

```python
from sentence_transformers import SentenceTransformer
model = SentenceTransformer("path/to/this/folder")
scores = model.similarity(model.encode_query(["a question"]), model.encode_document(["a document"]))
```

## Reproduce

```sh
{command}
```

`recipe.yaml` is in this folder. Replace the names of files and folders by your paths. {versions}.
"""

VECTORS_CARD = """# An adapter for the vectors of `{base}`, made with OPERA

Adapted to `{data}` by {method} over {steps:,} steps (seed {seed}).

## Measures

{measures}

## Use

`adapter.py` needs only NumPy. Copy it with `adapter.npz`.

```python
import adapter
queries = adapter.queries(vectors)  # your service's vectors, [n, d]; the results have length 1
documents = adapter.documents(vectors){note}
```

## Reproduce

```sh
{command}
```

{versions}.
"""

REFITTED = " The final model was trained again with the dev queries in train."

STORED = {
    False: "This folder stores these settings, and `encode_query`, `encode_document` and "
    "`similarity` use them.",
    True: "This folder holds the base model with its own settings.",
}
"""The settings in the folder, by whether the final model is the base model."""

Measured = Mapping[str, Mapping[str, float]]


def write_model_card(
    folder: Path, record: RunRecord, measures: Measured, changes: Mapping[str, Change], queries: int
) -> None:
    """Write the README.md of a run's model, and its recipe.

    Args:
        folder: the model's folder.
        record: the run's record, including the training.
        measures: the contents of ``measures.json``.
        changes: the change of each measure, with its interval.
        queries: the number of test queries.
    """
    assert record.training is not None
    settings = record.settings
    from_files = settings["query_vectors"] is not None
    query, document = settings["max_query_length"], settings["max_passage_length"]
    lengths = "whole texts"
    if query is not None and document is not None:
        lengths = f"{query} tokens of a query and {document} of a document"
    prompts = {
        "queries": settings["query_prompt"] or "",
        "documents": settings["document_prompt"] or "",
    }
    header = metadata(record, {name: measures["final"][name] for name in DEFAULT_MEASURES})
    counts = [f"{count:,} {name.replace('_', ' ')}" for name, count in record.data.counts.items()]
    text = (VECTORS_CARD if from_files else MODEL_CARD).format(
        metadata=header.to_yaml().strip(),
        base=_base_name(record.model.source),
        data=_short_data(record),
        method=settings["method"],
        steps=record.training.steps,
        seed=record.seed,
        measures=_measures(record, measures, changes, queries),
        refitted=REFITTED if record.guard is not None and record.guard.refit else "",
        counts=", ".join(counts),
        note="  # normalised only" if settings["adapter"] != "both" else "",
        masked=json.dumps(settings["mask_known_positives"]),
        lengths=lengths,
        stored=STORED[record.guard is not None and record.guard.mixing_weight == 0],
        prompts=", ".join(f"{name} `{json.dumps(prompt)}`" for name, prompt in prompts.items()),
        command=repeat_command(record),
        versions=", ".join(f"{name} {number}" for name, number in record.versions.items()),
    )
    replace_file(folder / CARD_FILE, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    write_recipe(folder, record)


def metadata(record: RunRecord, final: Mapping[str, float]) -> ModelCardData:
    """Describe a run's model for the hub, with the measures of the final model on test."""
    data = _short_data(record)
    dataset = data.removeprefix("hf:").partition("@")[0] if data.startswith("hf:") else ""
    known = dataset if HUB_ID.fullmatch(dataset) else None
    results = [
        EvalResult(
            task_type="information-retrieval",
            task_name="Information Retrieval",
            dataset_type=known or re.sub(r"[^\w.-]+", "-", data).strip("-") or "data",
            dataset_name=data,
            dataset_split="test",
            metric_type=hub_key(name),
            metric_name=name,
            metric_value=round(value, 5),
        )
        for name, value in final.items()
    ]
    return ModelCardData(
        base_model=hub_id(record.model.source),
        datasets=None if known is None else [known],
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=TAGS,
        model_name=f"{_base_name(record.model.source)} adapted to {data}",
        eval_results=results,
    )


def hub_id(source: str) -> str | None:
    """Return the id of a model on the hub; ``None`` for a local folder."""
    name = HUB_NAMES.get(source, source)
    return name if HUB_ID.fullmatch(name) and not is_local_path(source) else None


def is_local_path(text: str) -> bool:
    """Whether a text, such as a prompt, is the path of an existing file or folder."""
    return os.path.exists(text)  # noqa: PTH110 - Path.exists fails if the name is too long


def repeat_command(record: RunRecord) -> str:
    """Return the ``opera train`` command that repeats a run, with ``DATA`` for data in memory."""
    first, *further = [
        str(TableSource.parse(source).without_folders())
        if source.startswith(TABLES)
        else _short(source)
        for source in _sources(record)
    ]
    words = [
        f"opera train {'DATA' if first.startswith(MEMORY) else shlex.quote(first)}",
        *(f"--also {shlex.quote(source)}" for source in further),
        f"--model {shlex.quote(_short(record.model.source))}",
        f"--config {RECIPE_FILE}",
        "--out run",
    ]
    return " \\\n  ".join(words)


def write_recipe(folder: Path, record: RunRecord) -> None:
    """Write the settings that differ from their defaults as a recipe."""
    method = record.identity["method"]
    values = {"method": method}
    for name, default in make_recipe({"method": method}).flat().items():
        value = record.identity.get(name, default)
        if value != default:
            values[name] = _short(value) if isinstance(value, str) and os.sep in value else value
    yaml = YAML(typ="safe")
    yaml.default_flow_style = False
    replace_file(folder / RECIPE_FILE, lambda temporary: yaml.dump(values, temporary))


def _short(source: str) -> str:
    """Return the name of a data set or a model without folders, which readers do not have."""
    if source.startswith(TABLES):
        return ", ".join(TableSource.parse(source).without_folders().files)
    return Path(source).name if is_local_path(source) else source


def _sources(record: RunRecord) -> list[str]:
    return [data_set.source for data_set in record.sets] if record.sets else [record.data.source]


def _short_data(record: RunRecord) -> str:
    return " + ".join(map(_short, _sources(record)))


def _base_name(source: str) -> str:
    return HUB_NAMES.get(source, _short(source))


def _measures(
    record: RunRecord, measures: Measured, changes: Mapping[str, Change], queries: int
) -> str:
    """Return the measures on test with the intervals of their changes, the verdict, and the
    measures of each data set and size.
    """
    guard, main, models = record.guard, DEFAULT_MEASURES[0], ("base", "fine_tuned", "final")
    warning = (few_queries(queries) or "").removeprefix("warning: ").capitalize()
    change = "change in points (95% interval)"
    head = f"{counted(queries, 'test query')} | base | fine-tuned | final | {change}"
    rows = [
        [name, *(f"{measures[model][name]:.4f}" for model in models), changes[name].in_points()]
        for name in DEFAULT_MEASURES
    ]
    parts = [
        _table(head, rows),
        "The intervals (Student's t over the test queries) apply to this model, not to other "
        "seeds." + (f" {warning}." if warning else ""),
        f"Verdict: {verdict_sentence(guard)}. {weight_sentence(guard)}."
        if guard
        else "The final model has the fine-tuned weights.",
    ]
    tests = [(part.name, part.test) for part in record.sets or () if part.test is not None]
    if tests and (mean := mean_of_sets(record.sets or [])):
        tests.append(("mean of the sets", mean))
    tests += [
        (f"`truncate_dim={part.size}`", {"base": part.base, "final": part.final})
        for part in record.matryoshka or ()
    ]
    if tests:
        rows = [
            [name, *(f"{test[model][main]:.4f}" for model in ("base", "final"))]
            for name, test in tests
        ]
        parts.append(_table(f"{main} | base | final", rows))
    if record.cutoffs is not None:
        parts.append("When not to answer. " + " ".join(record.cutoffs.sentences))
    return "\n\n".join(parts)


def _table(head: str, rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {head} |", "|" + "---|" * (head.count("|") + 1)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
