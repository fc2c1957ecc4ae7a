"""Write the data of a run without the pairs that decisions call wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opera.core.errors import DataError, SettingError
from opera.core.files import check_folder, check_output
from opera.core.terminal import counted, log
from opera.data import load_all
from opera.data.cleaning import CleanedFile, write_clean_files
from opera.data.decisions import read_decisions
from opera.data.names import DataName, TableSource, source_title
from opera.data.sources import kind_of_files
from opera.data.table_files import table_suffix
from opera.run_folder.folder import Run


def write_clean(
    run: Run, target: Path, files: Sequence[str], *, with_missing: bool, overwrite: bool
) -> list[CleanedFile]:
    """Write the files of pairs of a run without the wrong pairs.

    Args:
        run: the run.
        target: the file; or a folder, if the data have several files of pairs.
        files: files of decisions.
        with_missing: whether to add a row for each missing pair.
        overwrite: whether an existing file may be replaced.

    Raises:
        SettingError: without decisions, and for an invalid target.
        DataError: if the data are not tables in files, or differ from those of the run; and as
            :func:`opera.data.cleaning.write_clean_files`.
    """
    if not files:
        raise SettingError("--clean: pass the saved decisions with --decisions FILE")
    recorded = run.record.data_sets
    tables = [_tables(data_set.source) for data_set in recorded]
    mixture = load_all(tables)
    for data_set, known in zip(mixture.data_sets, recorded, strict=True):
        if data_set.fingerprint != known.fingerprint:
            raise DataError(
                f"{source_title(known.source)}: has changed since the run {run.path}; train again, "
                "or restore the file"
            )
    decisions, notes = read_decisions(mixture, files)
    for note in notes:
        log.info("note: %s", note)

    def paths(sources: Sequence[Path]) -> list[Path]:
        if len(tables) == len(sources) == 1:
            suffix = table_suffix(sources[0])
            check_output(target, "--clean", (suffix,), overwrite=overwrite, reads=sources)
            return [target]
        check_folder(target, "--clean")
        target.mkdir(exist_ok=True)
        for path in sources:
            check_output(target / path.name, "--clean", (path.suffix,), overwrite=overwrite)
        return [target / path.name for path in sources]

    written = []
    for set_number, (data_set, source) in enumerate(zip(mixture.data_sets, tables, strict=True)):
        of_set = decisions.of_data_set(mixture, set_number)
        written += write_clean_files(data_set, source, of_set, paths, with_missing=with_missing)
    for file in written:
        removed, added = counted(file.removed, "row"), counted(file.added, "row")
        log.info("%s: %s with wrong pairs left out, %s added", file.path, removed, added)
    return written


def _tables(source: DataName) -> TableSource:
    if isinstance(source, TableSource):
        return source
    if kind_of_files(source) != "tables":
        raise DataError(f"{source}: is not a table in a file, so OPERA cannot clean it")
    return TableSource.of(source)
