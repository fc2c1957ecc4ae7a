"""``make audit``: a copy of the vulnerability database is read as the standard has it, and silence is no clean bill."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("audit", ROOT / "tools" / "audit.py")
assert spec is not None
assert spec.loader is not None
audit = importlib.util.module_from_spec(spec)
spec.loader.exec_module(audit)


def advisory(name: str = "Some.Package", **affected: Any) -> dict[str, Any]:
    return {"id": "X-1", "summary": "bad", "affected": [{"package": {"name": name}, **affected}]}


def between(*events: dict[str, str]) -> dict[str, Any]:
    return {"ranges": [{"type": "ECOSYSTEM", "events": list(events)}]}


@pytest.mark.parametrize(
    ("affected", "known"),
    [
        ({"versions": ["1.9", "1.10"]}, True),
        ({"versions": ["1.1"]}, False),
        (between({"introduced": "0"}), True),
        (between({"introduced": "0"}, {"fixed": "1.10"}), False),
        (between({"introduced": "0"}, {"fixed": "1.9"}, {"introduced": "1.10"}), True),
        (between({"introduced": "1.2"}, {"last_affected": "1.10"}), True),
        (between({"introduced": "1.2"}, {"last_affected": "1.9"}), False),
        (between({"introduced": "2"}), False),
        ({"ranges": [{"type": "GIT", "events": [{"introduced": "0"}]}]}, False),
    ],
)
def test_affected_versions_are_found(affected: dict[str, Any], known: bool) -> None:
    assert audit.concerns(advisory(**affected), "some-package", "1.10") is known
    assert not audit.concerns(advisory(**affected), "other-package", "1.10")
    assert not audit.concerns({**advisory(**affected), "withdrawn": "2026-01-01"}, "some-package", "1.10")


def test_the_page_lists_the_licence_of_every_pinned_package() -> None:
    rows = dict(re.findall(r"^\| (.+) \| (\S+ \S+.*) \|$", audit.licences(), re.MULTILINE))
    listed = dict(package.split() for packages in rows.values() for package in packages.split(", ") if " " in package)
    assert audit.pinned().items() <= listed.items()
    assert "not stated" not in rows


def test_what_opera_needs_to_run_is_pinned_apart_from_what_development_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["quickstart"]]
    needed: set[tuple[str, frozenset[str]]] = set()
    while asked:
        requirement = Requirement(asked.pop())
        key = (audit.normalised(requirement.name), frozenset(requirement.extras))
        marker, extras = requirement.marker, requirement.extras
        if key in needed or not (marker is None or marker.evaluate()):
            continue
        needed.add(key)
        for line in distribution(requirement.name).requires or []:
            condition = Requirement(line).marker
            if condition is None or any(condition.evaluate({"extra": extra}) for extra in {"", *extras}):
                asked.append(line.partition(";")[0])
    packages = {name for name, _ in needed} - {"setuptools"}  # torch's need, which any version meets
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").split()
    assert packages == {audit.normalised(line.partition("==")[0]) for line in lines}
