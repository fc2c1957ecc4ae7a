"""The README.md in a trained model's folder, which the Hugging Face Hub shows, and its recipe.

Both name files without their folders.
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
"""Models that have another name on the hub."""
MODEL_CARD = """---
{metadata}
---

# {base}, adapted with OPERA

`{base}` adapted to `{data}` by {method} over {steps:,} steps (seed {seed}).

## Figures

{figures}

## Data

`{data}`: {counts}.{refitted}

Training read {lengths}, and began {prompts}. {stored}
`mask_known_positives` was {masked}.

## Use

```python
from sentence_transformers import SentenceTransformer
model = SentenceTransformer("path/to/this/folder")
scores = model.similarity(model.encode_query(["a question"]), model.encode_document(["a document"]))
```

## Repeat

```sh
{command}
```

`recipe.yaml` is in this folder. Replace the names of files and folders by your paths. {versions}.
"""

VECTORS_CARD = """# An adapter for the vectors of `{base}`, made with OPERA

Adapted to `{data}` by {method} over {steps:,} steps (seed {seed}).

## Figures

{figures}

## Use

`adapter.py` needs NumPy alone; copy it with `adapter.npz`.

```python
import adapter
queries = adapter.queries(vectors)  # vectors of the service, [n, d]; the result has length 1
documents = adapter.documents(vectors){note}
```

## Repeat

```sh
{command}
```

{versions}.
"""

REFITTED = " The final model was trained again with the queries of dev in train."

STORED = {
    False: "This folder stores these settings; `encode_query`, `encode_document` and `similarity` "
    "use them.",
    True: "This folder holds the base model with its own settings.",
}
"""What the folder stores, by whether the base model is kept."""

Measured = Mapping[str, Mapping[str, float]]


def write_model_card(
    folder: Path, record: RunRecord, measures: Measured, changes: Mapping[str, Change], queries: int
) -> None:
    """Write the README.md of a run's model, and the recipe that it names.

    Args:
        folder: the model's folder.
        record: the run, with how training went.
        measures: ``base``, ``fine_tuned`` and ``final``, as in ``measures.json``.
        changes: the change of each measure, with its interval.
        queries: how many test queries there are.
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
        figures=_figures(record, measures, changes, queries),
        refitted=REFITTED if record.guard is not None and record.guard.refit else "",
        counts=", ".join(counts),
        note="  # normalised only" if settings["adapter"] != "both" else "",
        masked=json.dumps(settings["mask_known_positives"]),
        lengths=lengths,
        stored=STORED[record.guard is not None and record.guard.mixing_weight == 0],
        prompts=" and ".join(f"{what} with `{json.dumps(text)}`" for what, text in prompts.items()),
        command=repeat_command(record),
        versions=", ".join(f"{name} {number}" for name, number in record.versions.items()),
    )
    replace_file(folder / CARD_FILE, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    write_recipe(folder, record)


def metadata(record: RunRecord, final: Mapping[str, float]) -> ModelCardData:
    """Describe a run's model for the hub, with its measures ``final`` on test."""
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
    """Return the id of a model on the hub; ``None`` for a folder, which nobody else has."""
    name = HUB_NAMES.get(source, source)
    return name if HUB_ID.fullmatch(name) and not is_place(source) else None


def is_place(text: str) -> bool:
    """Whether a text, such as a prompt, happens to be the path of something here."""
    return os.path.exists(text)  # noqa: PTH110 - Path.exists fails if the name is too long


def repeat_command(record: RunRecord) -> str:
    """Return the ``opera train`` command that repeats a run; data in memory are ``DATA``."""
    first, *others = _sources(record)
    if first.startswith(TABLES):
        data = shlex.join(TableSource.parse(first).options())
    else:
        data = "DATA" if first.startswith(MEMORY) else shlex.quote(_short(first))
    also = [
        str(TableSource.parse(source).without_folders())
        if source.startswith(TABLES)
        else _short(source)
        for source in others
    ]
    words = [
        f"opera train {data}",
        *(f"--also {shlex.quote(source)}" for source in also),
        f"--model {shlex.quote(_short(record.model.source))}",
        f"--config {RECIPE_FILE}",
        "--out run",
    ]
    return " \\\n  ".join(words)


def write_recipe(folder: Path, record: RunRecord) -> None:
    """Write the settings that are not at their defaults as a recipe."""
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
    """What a data set or a model is called, for readers elsewhere: of a path its last part."""
    if source.startswith(TABLES):
        return ", ".join(TableSource.parse(source).without_folders().files)
    return Path(source).name if is_place(source) else source


def _sources(record: RunRecord) -> list[str]:
    return [data_set.source for data_set in record.sets] if record.sets else [record.data.source]


def _short_data(record: RunRecord) -> str:
    return " + ".join(map(_short, _sources(record)))


def _base_name(source: str) -> str:
    return HUB_NAMES.get(source, _short(source))


def _figures(
    record: RunRecord, measures: Measured, changes: Mapping[str, Change], queries: int
) -> str:
    """Measures on test with the interval of their change, the verdict, and a table of sets and
    sizes."""
    guard, main, moments = record.guard, DEFAULT_MEASURES[0], ("base", "fine_tuned", "final")
    warning = (few_queries(queries) or "").removeprefix("warning: ").capitalize()
    change = "change in points (95% interval)"
    head = f"test split, {queries:,} queries | base | fine-tuned | final | {change}"
    rows = [
        [name, *(f"{measures[when][name]:.4f}" for when in moments), changes[name].in_points()]
        for name in DEFAULT_MEASURES
    ]
    parts = [
        _table(head, rows),
        "The intervals are Student's t over the test queries; they hold for this model, not for "
        "other seeds." + (f" {warning}." if warning else ""),
        f"Verdict: {verdict_sentence(guard)}. {weight_sentence(guard)}"
        if guard
        else "The weights are the fine-tuned ones.",
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
            [name, *(f"{test[when][main]:.4f}" for when in moments[::2])] for name, test in tests
        ]
        parts.append(_table(f"{main} | base | final", rows))
    if record.cutoffs is not None:
        parts.append("When not to answer. " + " ".join(record.cutoffs.sentences))
    return "\n\n".join(parts)


def _table(head: str, rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {head} |", "|" + "---|" * (head.count("|") + 1)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
