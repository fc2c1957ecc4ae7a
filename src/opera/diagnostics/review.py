"""``opera.review``: a page of labels and queries to check, or a table for another reviewer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePath

from opera.core.arguments import expand_paths, flag, user_path, whole_number
from opera.core.errors import SettingError, raise_first
from opera.core.files import check_output, free_path
from opera.core.terminal import command_line
from opera.data.names import command_words, source_name, source_title, without_folders
from opera.diagnostics.judge import JUDGE_PAIRS, JudgeOptions, ask_judge, judge_options
from opera.labels.review import SUFFIXES, NextStep, ReviewPage, chosen_items, with_suggestions
from opera.run_folder.folder import RECIPE_FILE, REVIEW_FILE, TEST_REVIEW_FILE, Run


def review(
    run: str | Path | Run,
    out: str | Path | None = None,
    *,
    items: int = 200,
    split: str = "train",
    clean: str | Path | None = None,
    decisions: str | Path | Sequence[str | Path] = (),
    with_missing: bool = False,
    judge: str | Path | None = None,
    judge_pairs: int = JUDGE_PAIRS,
    judge_thresholds: str | tuple[float, float] | None = None,
    yes: bool = False,
    overwrite: bool = False,
) -> Path:
    """Write a page to review a finished run; or, with ``clean``, write its data without the pairs
    that decisions call wrong.

    The page shows labels that look wrong, a random sample of other labels, documents without a
    label, and the test queries that changed most.

    Args:
        run: the run's folder. Its model and data are not read.
        out: the page to write, or a table if the name ends in ``.csv``; by default
            ``review.html`` in the run.
        items: the maximum number of items.
        split: the labels to review: ``train``, or ``test`` to correct the labels that the run was
            measured with.
        clean: write the file of pairs that the run trained on, without the wrong pairs, instead of
            a page; several files go into a folder, under their names. Columns, order and encoding
            stay.
        decisions: the files of decisions for ``clean``; by default those that the run trained
            with.
        with_missing: whether ``clean`` adds a row for each missing pair.
        judge: a model that suggests decisions about the items of the page: a cross-encoder, by
            folder or hub id; or ``openai:MODEL`` at an endpoint that speaks OpenAI's protocol,
            which gets the texts. The run's folder keeps the opinions, and later pages show them.
        judge_pairs: the maximum number of pairs to judge, in the order of the page.
        judge_thresholds: a cross-encoder's scores up to the first mean wrong, from the second on
            correct, as ``"LOW:HIGH"`` or a pair; by default from the pairs that training trusts
            most and least.
        yes: whether to send texts to a language model without a question.
        overwrite: whether a file at ``out`` or ``clean`` may be replaced.

    Returns:
        The path of the file, or of the folder.

    Raises:
        SettingError: if there is no such split, or ``items`` is below 1; and for options that do
            not fit together.
        ModelError: if the judge cannot be used.
        DataError: if the run's data are not files, or have changed.
        RunFolderError: if the folder holds no finished run.

    Examples:
        >>> opera.review("my-run").name
        'review.html'
    """
    run = run if isinstance(run, Run) else Run.open(run)
    if split not in ("train", "test"):
        raise SettingError(f"split={split}: must be train or test")
    with_missing = flag(with_missing, "with_missing")
    options = judge_options(judge, judge_pairs, judge_thresholds, yes)
    if clean is not None:
        raise_first(
            SettingError,
            (out is not None, "--clean: writes data, not a page; leave --out out"),
            (judge is not None, "--judge: needs a page; leave --clean out"),
        )
        from opera.run_folder.clean import write_clean  # a page needs no reader of data

        files = expand_paths(decisions, "decisions") or run.settings["decisions"] or []
        target = user_path(clean, "--clean")
        write_clean(run, target, files, with_missing=with_missing, overwrite=overwrite)
        return target
    raise_first(
        SettingError,
        (bool(decisions), "--decisions: needs --clean; to use decisions, train with them"),
        (with_missing, "--with-missing: needs --clean"),
    )
    default = REVIEW_FILE if split == "train" else TEST_REVIEW_FILE
    file = run.path / default if out is None else user_path(out, "--out")
    if out is not None:
        check_output(file, "--out", SUFFIXES, overwrite=overwrite)
    _write_page(run, file, split, whole_number(items, "items", 1), options)
    return file


def _write_page(run: Run, file: Path, split: str, count: int, judge: JudgeOptions | None) -> None:
    """Write a page of ``count`` items with the opinions of a judge, or with the saved ones."""
    contents = run.review()
    items = chosen_items(contents[split], contents["changed"], count)
    record = run.judge(split) if judge is None else ask_judge(run, split, items, judge)
    if record is not None:
        items = with_suggestions(items, record.opinions)
    labels = "Labels" if split == "train" else "Test labels"
    data = source_title(without_folders(run.record.data.source))
    title = f"{labels} of {data} in {run.path.name}"
    name = None if record is None else record.judge
    ReviewPage(title, split, contents[split], items, next_step(run, split), name).write(file)


def next_step(run: Run, split: str, file: str | None = None) -> NextStep:
    """Return the file of a review's decisions, and the command that uses it.

    After a review of train, the command repeats the run with the decisions of all rounds, and
    writes to a new folder. After a review of test, it measures the run with the corrected labels.

    Args:
        run: the reviewed run.
        split: the reviewed split.
        file: the file of the decisions; by default a name that no earlier round has.
    """
    earlier = [] if split == "test" else [str(path) for path in run.settings["decisions"] or []]
    if file is None:
        source = run.record.data.source
        data = (
            run.path.name if run.record.sets else source_name(source) or PurePath(str(source)).stem
        )
        name = re.sub(r"[^\w-]+", "-", data).strip("-")
        name += "_test_decisions" if split == "test" else "_decisions"
        used = {PurePath(path).name for path in earlier}
        names = (f"{name}{number}.csv" for number in ("", *range(2, len(used) + 2)))
        file = next(name for name in names if name not in used)
    command = ["report", str(run.path)] if split == "test" else _train_again(run)
    decisions = [word for path in (*earlier, file) for word in ("--decisions", path)]
    return NextStep(file, command_line(*command, *decisions))


def _train_again(run: Run) -> list[str]:
    """Return the words that train on a run's data once more, with its settings, to a new folder."""
    record = run.record
    first, *also = (command_words(data_set.source) for data_set in record.data_sets)
    recipe = run.model_path / RECIPE_FILE
    return [
        "train",
        *first,
        *(word for source in also for word in ("--also", *source)),
        *("--model", record.model.source),
        *(["--config", str(recipe)] if recipe.exists() else []),
        *("--out", str(free_path(run.path))),
    ]
