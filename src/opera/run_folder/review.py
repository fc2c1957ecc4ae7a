"""``opera.review``: a page of labels and queries to check, or a table for another reviewer."""

from __future__ import annotations

from pathlib import Path

from opera.core.arguments import user_path, whole_number
from opera.core.errors import SettingError
from opera.core.files import check_output
from opera.data.names import source_title
from opera.labels.review import SUFFIXES, chosen_items, write_review
from opera.run_folder.folder import REVIEW_FILE, TEST_REVIEW_FILE, Run


def review(
    run: str | Path | Run,
    out: str | Path | None = None,
    *,
    items: int = 200,
    split: str = "train",
    overwrite: bool = False,
) -> Path:
    """Write a page to review a finished run.

    It shows labels that look wrong, a random sample of other labels, documents without a label, and
    the test queries that changed most.

    Args:
        run: the run's folder. Its model and data are not read.
        out: the page to write, or a table if the name ends in ``.csv``; by default
            ``review.html`` in the run.
        items: the maximum number of items.
        split: the labels to review: ``train``, or ``test`` to correct the labels that the run was
            measured with.
        overwrite: whether a file at ``out`` may be replaced.

    Returns:
        The path of the file.

    Raises:
        SettingError: if there is no such split, or ``items`` is below 1.
        RunFolderError: if the folder holds no finished run.

    Examples:
        >>> opera.review("my-run").name
        'review.html'
    """
    run = run if isinstance(run, Run) else Run.open(run)
    if split not in ("train", "test"):
        raise SettingError(f"split={split}: must be train or test")
    items = whole_number(items, "items", 1)
    contents = run.review()
    default = REVIEW_FILE if split == "train" else TEST_REVIEW_FILE
    file = run.path / default if out is None else user_path(out, "--out")
    if out is not None:
        check_output(file, "--out", SUFFIXES, overwrite=overwrite)
    chosen = chosen_items(contents[split], contents["changed"], items)
    labels = "Labels" if split == "train" else "Test labels"
    title = f"{labels} of {source_title(run.record.data.source)} in {run.path.name}"
    write_review(file, title, split, contents[split], chosen)
    return file
