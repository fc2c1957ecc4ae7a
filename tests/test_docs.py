"""README, CONTRIBUTING, CHANGELOG and docs/: modules, links, commands and names on these pages exist."""

import importlib
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import opera
from documents import ROOT, find, parse
from opera.core.processor import DEFAULTS

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "reproduction/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", read(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_modules_on_the_page_of_the_architecture_exist():
    named = set(re.findall(r"`([\w/]+\.py)`", read(ROOT / "CONTRIBUTING.md")))
    assert len(named) > 10
    homes = (Path(opera.__file__).parent, ROOT)
    assert [name for name in named if not any((home / name).is_file() for home in homes)] == []


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_tables_are_whole(page):
    for target in re.findall(r"\]\(([^)]+)\)", read(page)):
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert target.startswith("http") or (linked.exists() and (not anchor or anchor in anchors(linked))), target
    for table in re.findall(r"(?:^\|.*\n)+", read(page), re.MULTILINE):
        rows = table.splitlines()
        assert re.fullmatch(r"[|-]+", rows[1]), table
        assert len({len(re.split(r"(?<!\\)\|", row)) for row in rows}) == 1, table


def test_commands_in_indented_blocks_are_valid():
    found = {}
    for page in PAGES:
        joined = re.sub(r" *\\\n *", " ", read(page))
        found[str(page.relative_to(ROOT))] = re.findall(
            r"^    (?:.*-m )?(?:\.venv/bin/)?opera ([a-z].*)$", joined, re.MULTILINE
        )
    assert all(found[name] for name in ("README.md", "docs/compare.md", "docs/scale.md", "docs/benchmarks.md"))
    for command in [command for of_page in found.values() for command in of_page]:
        parse(shlex.split(command, comments=True))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_of_the_package_and_files_exist(page):
    for name in re.findall(r"`(opera(?:\.\w+)+)\b", read(page)):
        find(name)
    ours = re.sub(r"https?://\S+", "", read(page))
    files = re.findall(r"\b((?:tests|reproduction/studies|benchmarks|tools|src)/[\w/-]*\w(?:\.\w+)?)", ours)
    assert [file for file in files if not (ROOT / file).exists()] == []


def test_the_readme_has_two_commands_and_650_words():
    text = read(ROOT / "README.md")
    assert re.findall(r"^    (make \w+)", text, re.MULTILINE) == ["make quickstart", "make test"]
    assert len(text.split()) <= 650


def test_the_page_of_benchmarks_shows_what_is_stored(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    goals = importlib.import_module("goals")
    assert goals.KINDS.keys() == DEFAULTS.keys()
    copy = tmp_path / "benchmarks.md"
    copy.write_text(read(goals.PAGE), encoding="utf-8")
    monkeypatch.setattr(goals, "PAGE", copy)
    goals.fill_page()
    assert read(copy) == read(ROOT / "docs" / "benchmarks.md")


@pytest.mark.parametrize(("limit", "is_most", "value", "met"), [(1.6, False, 1.6, True), (1.6, False, 1.45, False)])
def test_a_goal_is_met_on_its_side_of_the_limit(limit, is_most, value, met, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    goals = importlib.import_module("goals")
    assert goals.Goal(limit, is_most).is_met(value) is met
    assert goals.Goal(limit, not is_most).is_met(value) is (value == limit or not met)


@pytest.mark.slow
def test_the_search_of_the_site_works_from_disk_without_a_network(tmp_path):
    """Browsers read no JSON and start no worker from a page on disk: the index is a script, and so is a stand-in."""
    pytest.importorskip("material")
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    assert (tmp_path / "search" / "search_index.js").is_file()
    loaded = re.findall(r'<script[^>]* src="?([^" >]+)', (tmp_path / "start.html").read_text(encoding="utf-8"))
    assert "site/iframe-worker.js" in loaded
    assert [script for script in loaded if not (tmp_path / script).is_file()] == []


def test_the_lock_file_pins_each_dependency():
    def package(requirement: str) -> str:
        return re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-")

    needed = tomllib.loads(read(ROOT / "pyproject.toml"))["project"]["dependencies"]
    pinned = read(ROOT / "requirements.lock").splitlines()
    assert {package(line) for line in needed} <= {package(line) for line in pinned}


def block(language: str) -> str:
    """Return the only block of a language in docs/scale.md."""
    (text,) = re.findall(rf"```{language}\n(.*?)```", read(ROOT / "docs" / "scale.md"), re.DOTALL)
    return str(text)


def kubernetes_command() -> str:
    job = yaml.safe_load(block("yaml"))
    worker = job["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert worker["replicas"] == job["spec"]["elasticPolicy"]["minReplicas"]
    (container,) = worker["template"]["spec"]["containers"]
    volumes = {volume["name"] for volume in worker["template"]["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    return re.sub(r"\$\(.*\)", "--resume", container["command"][2])


@pytest.mark.parametrize("command", [kubernetes_command(), block("bash")], ids=["kubernetes", "slurm"])
def test_the_command_of_a_cluster_is_valid(command):
    torchrun, arguments = command.split("-m opera ")
    assert "torchrun" in torchrun
    parse(arguments.split())


def test_the_tests_of_other_environments_exist():
    source = (ROOT / "tools" / "environments.py").read_text(encoding="utf-8")
    files = set(re.findall(r'"(tests/[\w/]+\.py)', source))
    assert files
    assert not [file for file in files if not (ROOT / file).is_file()]
