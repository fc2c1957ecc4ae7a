"""Which data sets a reproduction takes, and where each is read from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from opera.core.errors import DataError, InputError, SettingError, nearest
from opera.core.paths import expand_user
from opera.core.terminal import shown
from opera.data import load_data
from opera.data.catalogue import PAPER_SETS, CountDifference, PaperSet, find_set
from opera.data.irds_source import is_here as is_cached
from opera.data.names import PUBLISHED
from opera.experiments.paper.cells import sets_of_table
from opera.experiments.paper.scale import Scale
from opera.experiments.paper.tables import PaperTable


def choose_sets(
    table: PaperTable, scale: Scale, given: Sequence[str] | None
) -> tuple[dict[str, str], dict[str, str]]:
    """Choose the data sets by ``--data``, or all of the table's that fit the scale. Looks at no data.

    Args:
        table: the table.
        scale: the size of the reproduction.
        given: ``NAME``, several of them with commas between, or ``NAME=SOURCE``; ``None`` for all.

    Returns:
        Where each is read from, by its name in the catalogue, and why others are left out.

    Raises:
        SettingError: for a name that is none of the table's, one given twice, or no name at all; and where the scale
            takes none of the table's sets without being asked.
    """
    known = {entry.name: entry for entry in sets_of_table(table)}
    if given is not None:
        return _named_sources(table, list(known), given), {}
    large = {
        name: f"{entry.documents:,} documents are many for --scale {scale.name}; --data {name} takes it all the same"
        for name, entry in known.items()
        if scale.most_documents is not None and entry.documents > scale.most_documents
    }
    sources = {name: entry.source for name, entry in known.items() if name not in large}
    if not sources:
        raise SettingError(*(f"{name}: {reason}" for name, reason in large.items()))
    return sources, large


def _named_sources(table: PaperTable, known: Sequence[str], given: Sequence[str]) -> dict[str, str]:
    words = [
        word
        for text in given
        for word in ([text] if "=" in text else text.split(","))
        if word.strip()
    ]
    if not words:
        raise SettingError("--data: give at least one data set")
    sources: dict[str, str] = {}
    for word in words:
        name, equals, source = word.strip().partition("=")
        if name not in known:
            raise SettingError(
                f"--data {shown(name)[1:-1]}: table {table.name} has no such data set{nearest(name, known)} "
                f"(it has: {', '.join(known)})"
            )
        if name in sources:
            raise SettingError(f"--data: {name} is given twice")
        sources[name] = expand_user(source, f"--data {name}") if equals else PAPER_SETS[name].source
    return sources


def fetch_sets(sources: Mapping[str, str], only: Collection[str]) -> list[str]:
    """Load some data sets, fetching what is not here; return where their counts differ from Table 8.

    Args:
        sources: where all data sets are read from, by name.
        only: names of those to load.

    Raises:
        DataError: naming every data set that cannot be had, and what to do.
    """
    missing: dict[str, str] = {}
    notes: list[str] = []
    for name in (name for name in sources if name in only):
        try:
            entry, loaded = PAPER_SETS[name], load_data(sources[name])
            notes += count_notes(entry, entry.differences(loaded))
        except InputError as error:
            missing[name] = " ".join(error.lines)
    if not missing:
        return notes
    advice = []
    if any(sources[name] == PAPER_SETS[name].source for name in missing):
        advice.append("--data NAME=FOLDER takes one that you have")
    if here := [name for name in sources if name not in missing]:
        advice.append(f"--data {','.join(here)} goes without")
    cannot = f"{len(missing)} of {len(sources)} data sets cannot be had; {', '.join(advice)}"
    raise DataError(
        *(f"{name}: {reason}" for name, reason in missing.items()), *([cannot] if advice else [])
    )


def count_notes(entry: PaperSet, differences: Sequence[CountDifference]) -> list[str]:
    """A sentence on counts that differ from Table 8, with the reasons that are known; none where they agree."""
    differing = [
        f"{count.name} {count.found:,}, there {count.table:,}{f' ({count.reason})' if count.reason else ''}"
        for count in differences
    ]
    return (
        [f"{entry.name} has other counts than Table 8: {'; '.join(differing)}."]
        if differing
        else []
    )


def is_here(source: str) -> bool:
    """Whether a data set is read without a network, or refused so: a path that does not exist needs none either."""
    if source.startswith("paper:"):
        return is_cached(find_set(source.removeprefix("paper:")).splits)
    return not source.startswith(PUBLISHED)
