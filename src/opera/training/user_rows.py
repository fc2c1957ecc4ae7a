"""Read the relevant rows of a user's data set for :class:`opera.PairPruning`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, LargeList, List, concatenate_datasets
from numpy.typing import NDArray

from opera.core.arrays import IntArray
from opera.core.errors import DataError
from opera.core.terminal import counted, log, shown

LABEL_COLUMNS = ("label", "labels", "score", "scores")
"""sentence-transformers takes the first of these columns that exists as the label."""
Prompts = str | Mapping[str, Any] | None
"""``args.prompts``: one prompt, or prompts by column, by data set, or by data set and column."""


class UserRows(NamedTuple):
    """The rows of a user's data set.

    Attributes:
        dataset: a row for each positive, a column for each negative.
        label: the column of labels, if there is one.
        columns: the text columns, in the order of the loss.
        lists: the columns that each column with lists of negatives has become.
        relevant: int64 ``[N]``, the rows that train.
        texts: the texts of the relevant rows by column.
    """

    dataset: Dataset
    label: str | None
    columns: list[str]
    lists: dict[str, list[str]]
    relevant: NDArray[np.int64]
    texts: dict[str, list[str]]


def read_rows(dataset: Any, place: str) -> UserRows:
    """Read a data set; ``place`` names it in messages.

    Raises:
        DataError: if it is empty, has fewer than two text columns, or holds values that are not
            texts.
    """
    if not isinstance(dataset, Dataset):
        raise DataError(
            f"{place}: must be a datasets.Dataset or DatasetDict, got {shown(type(dataset))}"
        )
    names = dataset.column_names
    label = next((column for column in LABEL_COLUMNS if column in names), None)
    text_columns = [column for column in names if column not in (label, "dataset_name")]
    if len(text_columns) < 2:
        raise DataError(
            f"{place}: must have two text columns, the query and its positive document, got "
            f"{shown(tuple(text_columns))}"
        )
    dataset, user_row, lists = without_lists(dataset, text_columns, place)
    if len(dataset) == 0:
        raise DataError(f"{place}: must have at least one row, got an empty data set")
    relevant = _relevant_rows(dataset, label)
    if left_out := len(dataset) - len(relevant):
        log.warning(
            "%s: skipped %d of %s: their label is 0",
            *(place, left_out, counted(len(dataset), "row")),
        )
    texts = dataset[relevant]
    columns = [name for column in text_columns for name in lists.get(column, [column])]
    for number, column in enumerate(columns):
        column_place = f"{place}: row %d, column {column!r}"
        _check_texts(column_place, user_row[relevant], texts[column], may_be_empty=number > 1)
    return UserRows(dataset, label, columns, lists, relevant, texts)


def without_lists(
    rows: Dataset, columns: list[str], place: str
) -> tuple[Dataset, NDArray[np.int64], dict[str, list[str]]]:
    """Turn a list of positives into a row for each, and a list of negatives into a column for each.

    All rows get as many columns of negatives as the shortest list has texts.

    Args:
        rows: the data set.
        columns: its text columns: query, positive, negatives.
        place: of the data set, for messages.

    Returns:
        The new rows, the row of the data set that each of them comes from, and the names of the new
        columns by the name of the column with lists.

    Raises:
        DataError: for an empty list, and for lists in a data set with a transform.
    """
    lists, user_row = dict[str, list[str]](), np.arange(len(rows))
    for name in reversed(columns[1:]):  # so that the positives, which add rows, come last
        if not isinstance(rows.features[name], List | LargeList):
            continue
        if rows.format["type"] == "custom":
            raise DataError(
                f"{place}: column {name!r}: a data set with a transform must not have lists; "
                "apply the transform with dataset.map"
            )
        values = rows.select_columns([name]).with_format("arrow")[:][name].combine_chunks()
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy()
        if len(lengths) and lengths.min() == 0:
            raise DataError(
                f"{place}: row {lengths.argmin()}, column {name!r}: must be a list of at least one "
                "text, as in other rows"
            )
        if name == columns[1]:
            user_row = np.repeat(user_row, lengths)
            rows, new = rows.select(user_row), {name: pc.list_flatten(values)}
        else:
            lists[name] = [f"{name}_{number + 1}" for number in range(min(lengths, default=0))]
            new = {
                column: pc.list_element(values, position)
                for position, column in enumerate(lists[name])
            }
        others = rows.remove_columns(name)
        rows = concatenate_datasets([others, Dataset(pa.table(new))], axis=1)
    return rows, user_row, lists


def with_list_prompts(prompts: Any, lists: Mapping[str, list[str]]) -> Any:
    """Repeat the prompt of a column with lists for the columns that the lists have become."""
    if not isinstance(prompts, Mapping):
        return prompts
    repeated = {name: with_list_prompts(prompt, lists) for name, prompt in prompts.items()}
    for name in lists.keys() & prompts.keys():
        repeated.update(dict.fromkeys(lists[name], prompts[name]))
    return repeated


def _check_texts(place: str, rows: IntArray, texts: list[Any], may_be_empty: bool) -> None:
    """Raise a :class:`DataError` for the first value of a column that is not a text."""
    rule = "a text" if may_be_empty else "a text that is not empty"
    for row, text in zip(rows.tolist(), texts, strict=True):
        if not isinstance(text, str) or not (may_be_empty or text.strip()):
            raise DataError(
                f"{place % row}: must be {rule}, got {shown(text)}; except for a label "
                f"({', '.join(LABEL_COLUMNS)}), the columns are the query, its positive, then "
                "negatives; remove columns with dataset.remove_columns, rows with dataset.filter"
            )


def _relevant_rows(dataset: Dataset, label: str | None) -> NDArray[np.int64]:
    """Return the rows whose label is above 0.

    All rows are relevant if no label is above 0, as in examples of sentence-transformers. They are
    also relevant if labels are lists or have fractions: then they are scores for the loss.
    """
    rows = np.arange(len(dataset))
    if label is None:
        return rows
    labels = dataset.select_columns([label]).with_format("arrow")[:][label].combine_chunks()
    kind = labels.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        return rows
    values = np.asarray(labels.cast(pa.float64()).to_numpy(zero_copy_only=False))
    relevant = ~(values <= 0)
    return rows if (values % 1 > 0).any() or not relevant.any() else rows[relevant]


def prompt_of(prompts: Prompts, name: str, column: str) -> str:
    """Return the prompt for a column of the data set ``name``, as sentence-transformers' collator
    chooses it; empty for none."""
    if isinstance(prompts, Mapping):
        prompts = prompts.get(name, prompts) if name else prompts
    if isinstance(prompts, Mapping):
        prompts = prompts.get(column)
    return prompts if isinstance(prompts, str) else ""
