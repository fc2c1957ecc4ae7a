"""Turn columns of lists into rows and columns of texts, which a loss can read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, LargeList, List, concatenate_datasets
from numpy.typing import NDArray

from opera.core.errors import DataError


def expand_lists(
    data_set: Dataset, columns: list[str], title: str
) -> tuple[Dataset, NDArray[np.int64], dict[str, list[str]]]:
    """Turn a list of positives into a row for each, and a list of negatives into a column for each.

    All rows get as many columns of negatives as the shortest list has texts.

    Args:
        data_set: the user's data set.
        columns: its text columns: query, positive, negatives.
        title: of the data set, for messages.

    Returns:
        The new data set, the table row that each of its rows comes from, and the names of the new
        columns by the name of the column with lists.

    Raises:
        DataError: for an empty list, and for lists in a data set with a transform.
    """
    expanded, table_rows, lists = data_set, np.arange(len(data_set)), dict[str, list[str]]()
    for name in reversed(columns[1:]):  # so that the positives, which add rows, come last
        if not isinstance(expanded.features[name], List | LargeList):
            continue
        if expanded.format["type"] == "custom":
            raise DataError(
                f"{title}: column {name!r}: a data set with a transform must not have lists; "
                "apply the transform with dataset.map"
            )
        values = expanded.select_columns([name]).with_format("arrow")[:][name].combine_chunks()
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy()
        if len(lengths) and lengths.min() == 0:
            raise DataError(
                f"{title}: row {lengths.argmin()}, column {name!r}: must be a list of at least one "
                "text, as in other rows"
            )
        if name == columns[1]:
            table_rows = np.repeat(table_rows, lengths)
            expanded, new = expanded.select(table_rows), {name: pc.list_flatten(values)}
        else:
            lists[name] = [f"{name}_{number + 1}" for number in range(min(lengths, default=0))]
            new = {
                column: pc.list_element(values, position)
                for position, column in enumerate(lists[name])
            }
        texts = Dataset(pa.table(new))
        expanded = concatenate_datasets([expanded.remove_columns(name), texts], axis=1)
    return expanded, table_rows, lists
