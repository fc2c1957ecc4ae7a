"""Packages of extras: what is missing is said before any work, with the command that installs it."""

import re
import tomllib
from pathlib import Path

import pytest

from opera.core import environment
from opera.core.environment import EXTRAS, require
from opera.core.errors import MissingExtraError

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_a_missing_package_is_named_with_its_command(monkeypatch):
    monkeypatch.setattr(environment, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"^--this: needs the package .*: pip install "):
        require(next(iter(EXTRAS)), "--this")


@pytest.mark.parametrize("module", EXTRAS)
def test_the_project_offers_the_extra(module):
    requirement, extra = EXTRAS[module]
    offered = [re.split("[>=]", line)[0] for line in PROJECT["optional-dependencies"][extra]]
    assert requirement.strip("'") in offered
