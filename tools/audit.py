"""Check the pinned dependencies for known vulnerabilities, and list their licences.

    OSV_DATABASE=all.zip .venv/bin/python tools/audit.py    # a download of osv.dev's database for PyPI; no network
    .venv/bin/python tools/audit.py --pip-audit PATH        # asks PyPI by pip-audit
    .venv/bin/python tools/audit.py --licences              # prints them, by what is installed; a page of the site

Exit status: 0 all were checked and nothing is known, 1 a vulnerability is known, 3 not all could be checked. The
database is https://osv-vulnerabilities.storage.googleapis.com/PyPI/all.zip, or a folder of its .json files.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, files, metadata
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parents[1]
LOCKS = ROOT / "requirements.lock", ROOT / "requirements-dev.lock"
NOT_CHECKED = 3
MAX_LICENCE = 80
HEAD = """# Licences of the dependencies

Every package that `requirements.lock` and `requirements-dev.lock` pin, with the licence that its own metadata
states. OPERA includes none of them; pip installs them.

| licence | packages |
|---|---|
"""


def pinned() -> dict[str, str]:
    """Return the version of each pinned package, by its normalised name."""
    lines = [line for lock in LOCKS for line in lock.read_text(encoding="utf-8").splitlines() if "==" in line]
    return {normalised(name): version for name, version in (line.split("==") for line in lines)}


def normalised(name: str) -> str:
    """Write a package's name as the index does."""
    return re.sub(r"[-_.]+", "-", name).lower()


def advisories(database: Path) -> Iterator[dict[str, Any]]:
    """Read the advisories of a copy of osv.dev's database: a .zip file or a folder of .json files."""
    if database.is_dir():
        for path in sorted(database.glob("*.json")):
            yield json.loads(path.read_text(encoding="utf-8"))
        return
    with zipfile.ZipFile(database) as archive:
        for name in archive.namelist():
            yield json.loads(archive.read(name))


def concerns(advisory: Mapping[str, Any], name: str, version: str) -> bool:
    """Whether an advisory that is not withdrawn says that a version is affected."""
    return "withdrawn" not in advisory and any(
        normalised(affected.get("package", {}).get("name", "")) == name
        and (version in affected.get("versions", []) or any(in_range(part, version) for part in ranges(affected)))
        for affected in advisory.get("affected", [])
    )


def ranges(affected: Mapping[str, Any]) -> list[list[dict[str, str]]]:
    """Return the events of each range of versions."""
    return [part["events"] for part in affected.get("ranges", []) if part.get("type") == "ECOSYSTEM"]


def in_range(events: list[dict[str, str]], version: str) -> bool:
    """Whether a version lies between an event that introduces a fault and the one that ends it."""
    inside = False
    for event in events:
        kind, at = next(iter(event.items()))
        try:
            reached = at == "0" or Version(version) >= Version(at)
            past = kind == "last_affected" and Version(version) > Version(at)
        except InvalidVersion:
            continue
        if kind == "introduced" and reached:
            inside = True
        elif (kind == "fixed" and reached) or past:
            inside = False
    return inside


def known_locally(database: Path) -> list[str]:
    """Return a line per vulnerability that a copy of the database knows."""
    wanted = pinned()
    return [
        f"{name} {wanted[name]}: {advisory['id']}: {advisory.get('summary', '')}"
        for advisory in advisories(database)
        for name in sorted({normalised(a.get("package", {}).get("name", "")) for a in advisory.get("affected", [])})
        if name in wanted and concerns(advisory, name, wanted[name])
    ]


def known_online(pip_audit: str) -> tuple[list[str], int]:
    """Return a line per vulnerability that pip-audit finds, and how many packages it could not check."""
    files = [word for lock in LOCKS for word in ("--requirement", str(lock))]
    command = [pip_audit, *files, "--no-deps", "--disable-pip", "--format", "json"]
    done = subprocess.run([*command, "--progress-spinner", "off"], capture_output=True, text=True, check=False)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except ValueError:
        return [], len(pinned())
    lines = [
        f"{package['name']} {package['version']}: {fault['id']}"
        for package in packages
        for fault in package.get("vulns", [])
    ]
    return lines, len(pinned()) - sum("skip_reason" not in package for package in packages)


def licence(name: str) -> str:
    """Return the licence that an installed package states: in its metadata, or as the title of its licence file."""
    stated = metadata(name)
    classifiers = [line.split(" :: ")[-1] for line in stated.get_all("Classifier") or [] if line.startswith("License")]
    free_text = (stated.get("License") or "").strip().partition("\n")[0]
    exact = stated.get("License-Expression") or ", ".join(line for line in classifiers if line != "DFSG approved")
    return exact or free_text[:MAX_LICENCE] or _title_of_its_file(name) or "not stated"


def _title_of_its_file(name: str) -> str:
    texts = [file.read_text() for file in files(name) or [] if file.name.upper().startswith("LICENSE")]
    return texts[0].strip().partition("\n")[0][:MAX_LICENCE] if texts else ""


def licences() -> str:
    """Return the page of licences."""
    by_licence: dict[str, list[str]] = {}
    for name, version in sorted(pinned().items()):
        by_licence.setdefault(licence(name), []).append(f"{name} {version}")
    rows = sorted(by_licence.items(), key=lambda row: (-len(row[1]), row[0]))
    return HEAD + "".join(f"| {stated} | {', '.join(packages)} |\n" for stated, packages in rows)


def main() -> int:
    """Run it; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--licences", action="store_true")
    parser.add_argument("--pip-audit", metavar="PATH")
    arguments = parser.parse_args()
    if arguments.licences:
        try:
            print(licences())
        except PackageNotFoundError as error:
            sys.exit(f"{error.name} is pinned and not installed: run make install")
        return 0
    lines: list[str] = []
    unchecked, database = len(pinned()), os.environ.get("OSV_DATABASE")
    if database:
        lines, unchecked = known_locally(Path(database)), 0
    elif arguments.pip_audit:
        lines, unchecked = known_online(arguments.pip_audit)
    print(*lines, sep="\n", end="\n" if lines else "")
    checked = len(pinned()) - unchecked
    print(f"{checked} of {len(pinned())} pinned packages checked, {len(lines)} known vulnerabilities")
    if unchecked:
        print("the others were not checked: no answer from PyPI; set OSV_DATABASE to a copy of osv.dev's database")
    return 1 if lines else NOT_CHECKED if unchecked else 0


if __name__ == "__main__":
    sys.exit(main())
