"""Which data sets a reproduction takes, and where each is read from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from opera.core.errors import DataError, InputError, SettingError, nearest
from opera.core.paths import expand_user, kind_of_place
from opera.core.terminal import shown
from opera.data import load_data
from opera.data.catalogue import PAPER_SETS, CountDifference, PaperSet, find_set
from opera.data.irds_source import is_here as is_cached
from opera.data.names import PUBLISHED
from opera.data.sources import find_source
from opera.experiments.paper import PaperTable
from opera.experiments.reproduce.cells import sets_of_table
from opera.experiments.reproduce.scale import Scale


@dataclass(frozen=True)
class ChosenSets:
    """The data sets of a reproduction.

    Attributes:
        sources: where each is read from, by its name in the catalogue.
        left_out: why each of the table's other sets that were not left out by name is left out.
        optional: names of those that are left out, and not an error, where they cannot be had.
        notes: where the counts of loaded data differ from Table 8.
        counts: those of loaded data, by name, as ``PaperSet.table_counts`` names them.
    """

    sources: Mapping[str, str]
    left_out: Mapping[str, str] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def without(self, reasons: Mapping[str, str]) -> ChosenSets:
        """These data sets but some, by name with the reason."""
        here = {name: source for name, source in self.sources.items() if name not in reasons}
        return replace(self, sources=here, left_out={**self.left_out, **reasons})


def choose_sets(table: PaperTable, scale: Scale, given: Sequence[str] | None) -> ChosenSets:
    """Choose the data sets by ``--data``, or all of the table's that fit the scale. Looks at no data.

    Args:
        table: the table.
        scale: the size of the reproduction.
        given: ``NAME``, several of them with commas between, or ``NAME=SOURCE``; ``None`` for all.

    Raises:
        SettingError: for a name that is none of the table's, one given twice, or no name at all; and where the scale
            takes none of the table's sets without being asked.
    """
    known = {entry.name: entry for entry in sets_of_table(table)}
    if given is not None:
        return ChosenSets(_named_sources(table, list(known), given))
    large = {
        name: f"{entry.documents:,} documents are many for --scale {scale.name}; --data {name} takes it all the same"
        for name, entry in known.items()
        if scale.most_documents is not None and entry.documents > scale.most_documents
    }
    sources = {name: entry.source for name, entry in known.items() if name not in large}
    if not sources:
        raise SettingError(*(f"{name}: {reason}" for name, reason in large.items()))
    return ChosenSets(sources, large, frozenset(sources) if scale.small else frozenset())


def _named_sources(table: PaperTable, known: Sequence[str], given: Sequence[str]) -> dict[str, str]:
    words = [word for text in given for word in ([text] if "=" in text else text.split(",")) if word.strip()]
    if not words:
        raise SettingError("--data: give at least one data set")
    sources: dict[str, str] = {}
    for word in words:
        name, equals, source = word.strip().partition("=")
        _refuse_several(word, known)
        if name not in known:
            raise SettingError(
                f"--data {shown(name)[1:-1]}: table {table.name} has no such data set{nearest(name, known)} "
                f"(it has: {', '.join(known)})"
            )
        if name in sources:
            raise SettingError(f"--data: {name} is given twice")
        sources[name] = expand_user(source, f"--data {name}") if equals else PAPER_SETS[name].source
    return sources


def _refuse_several(word: str, known: Sequence[str]) -> None:
    """Refuse several data sets in one ``NAME=SOURCE``; a comma may also be part of a path that exists."""
    name, equals, source = word.strip().partition("=")
    parts = word.strip().split(",")
    several = len(parts) > 1 and all(part.partition("=")[0].strip() in known for part in parts)
    if equals and several and not (name in known and kind_of_place(Path(source))):
        advice = " ".join(f"--data {part.strip()}" for part in parts)
        raise SettingError(f"--data {shown(word)[1:-1]}: several data sets in one; give {advice}")


def check_sources(chosen: ChosenSets) -> None:
    """Check that each data set's source is one that OPERA reads, without reading it.

    Raises:
        DataError: for the first that is none, such as a path that does not exist.
    """
    for name, source in chosen.sources.items():
        try:
            find_source(source)
        except DataError as error:
            raise DataError(f"--data {name}: {' '.join(error.lines)}") from None


def fetch_sets(chosen: ChosenSets, only: Collection[str] | None = None) -> ChosenSets:
    """Load data sets, fetching what is not here, and compare their counts with Table 8.

    Those that are optional and cannot be had are left out.

    Args:
        chosen: the data sets.
        only: names of those to load; ``None`` for all.

    Raises:
        DataError: naming every data set that cannot be had, and what to do.
    """
    missing: dict[str, str] = {}
    notes: list[str] = []
    counts: dict[str, Mapping[str, int]] = {}
    for name, source in chosen.sources.items():
        if only is not None and name not in only:
            continue
        try:
            entry, loaded = PAPER_SETS[name], load_data(source)
            counts[name] = entry.counts_of(loaded)
            notes += count_notes(entry, entry.differing_counts(counts[name], loaded.left_out))
        except InputError as error:
            missing[name] = " ".join(error.lines)
    here = {name: source for name, source in chosen.sources.items() if name not in missing}
    if missing.keys() - chosen.optional or not here:
        raise DataError(*(f"{name}: {reason}" for name, reason in missing.items()), *_advice(chosen, missing, here))
    return replace(chosen.without(missing), notes=tuple(notes), counts=counts)


def _advice(chosen: ChosenSets, missing: Collection[str], here: Collection[str]) -> list[str]:
    """What to do where data sets cannot be had; nothing more than its error where the user's own is the only one."""
    advice = []
    if any(chosen.sources[name] == PAPER_SETS[name].source for name in missing):
        advice.append("--data NAME=FOLDER takes one that you have")
    if here:
        advice.append(f"--data {','.join(here)} goes without")
    if not advice:
        return []
    return [f"{len(missing)} of {len(chosen.sources)} data sets cannot be had; {', '.join(advice)}"]


def count_notes(entry: PaperSet, differences: Sequence[CountDifference]) -> list[str]:
    """A sentence on counts that differ from Table 8, with the reasons that are known; none where they agree."""
    differing = [
        f"{count.name} {count.found:,}, there {count.table:,}{f' ({count.reason})' if count.reason else ''}"
        for count in differences
    ]
    return [f"{entry.name} has other counts than Table 8: {'; '.join(differing)}."] if differing else []


def is_here(source: str) -> bool:
    """Whether a data set is read without a network, or refused so: a path that does not exist needs none either."""
    if source.startswith("paper:"):
        return is_cached(find_set(source.removeprefix("paper:")).splits)
    return not source.startswith(PUBLISHED)
