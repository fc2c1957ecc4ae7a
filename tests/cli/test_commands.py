"""Commands end to end, in this process: what they print, write and refuse."""

import io
import json
import logging
import shlex
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opera
from backbones import write_reranker
from commands import QUICK
from grids import RunsFolder, around
from opera.cli.compare import print_results
from opera.cli.inspect import print_inspection
from opera.cli.options import Screen
from opera.cli.train import print_labels, print_next
from opera.experiments.results import analyse_runs
from opera.experiments.verdict import conclusion, title
from opera.run_folder.folder import Run


def test_evaluate_measures_a_run(run_opera, trained, beir, tmp_path):
    command = ["evaluate", beir, "--model", trained.path]
    result = json.loads(run_opera(*command, "--full", "--json", "--run-file", "out.trec").stdout)
    assert len(result["measures"]) == 30
    after = json.loads((trained.path / "measures.json").read_text())["final"]
    assert {name: result["measures"][name] for name in after} == pytest.approx(after)
    assert result["queries"] == 16
    assert all(low <= result["measures"][name] <= high for name, (low, high) in result["intervals"].items())
    assert (tmp_path / "out.trec").read_text().startswith("test0 Q0 d")
    text = run_opera(*command).stdout
    assert "95% interval" in text
    assert "warning: 16 test queries are few to measure by" in text


def test_evaluate_shows_a_reranker_beside_its_first_stage(run_opera, beir, tmp_path):
    model = write_reranker(tmp_path / "reranker")
    command = ["evaluate", beir, "--reranker", model, "--depth", 7, "--precision", "fp32"]
    text = run_opera(*command).stdout
    assert f"bm25 on {beir}, test: 16 queries; {model} sorts the best 7 again" in text
    assert "the reranker read 112 pairs, 7 per query: " in text
    assert "warning: 16 test queries are few to measure by" in text
    result = json.loads(run_opera(*command, "--json", "--run-file", "out.trec").stdout)
    reranked, change = result["reranked"], result["reranked"]["changes"]["nDCG@10"]
    assert [result["model"], reranked["reranker"], reranked["depth"], reranked["pairs"]] == ["bm25", str(model), 7, 112]
    assert change["difference"] == pytest.approx(reranked["measures"]["nDCG@10"] - result["measures"]["nDCG@10"])
    assert change["low"] <= change["difference"] <= change["high"]
    best = opera.evaluate(beir, reranker=model, depth=7, precision="fp32").reranked.top_documents[0][0]
    assert (tmp_path / "out.trec").read_text().startswith(f"test0 Q0 {best} 1 ")


def test_bm25_is_the_first_stage_next_to_a_folder_of_this_name(run_opera, beir, tmp_path, trained):
    """The run in this folder trained on the queries, but BM25 did not."""
    model = write_reranker(tmp_path / "reranker")
    shutil.copytree(trained.path, tmp_path / "bm25")
    command = ["evaluate", beir, "--reranker", model, "--split", "train", "--depth", 1, "--run-file", "out.trec"]
    assert "bm25 was trained on" not in run_opera(*command).stderr
    shutil.rmtree(tmp_path / "bm25")
    (tmp_path / "bm25").mkdir()  # holds no model
    run_opera(*command, "--overwrite")


def test_train_prints_whether_a_reranker_is_better_than_its_first_stage(run_opera, beir, tmp_path):
    model = write_reranker(tmp_path / "reranker")
    options = ["--batch-size", 4, "--steps", 2, "--depth", 5, "--set", "precision=fp32", "--max-length", 40]
    command = ["train", beir, "--kind", "reranker", "--model", model, "--out", "run", *options]
    done = run_opera(*command, "--lr", 1e-9, "--require-gain", status=3)
    assert "than BM25 alone on held-out questions: nDCG@10" in done.stdout
    assert "Base reranker to final: nDCG@10" in done.stdout
    assert "ft, 2 steps, learning rate 1e-09" in done.stdout
    assert "model = CrossEncoder('run/model')" in done.stdout
    record = json.loads(run_opera(*command, "--overwrite", "--json").stdout)
    assert record["verdict"] in ("worse", "no gain", "better")
    assert [record["steps"], record["settings"]["max_length"]] == [2, 40]
    measured = run_opera("evaluate", beir, "--reranker", "run", "--depth", 5, "--precision", "fp32", "--json")
    assert json.loads(measured.stdout)["reranked"]["measures"]["nDCG@10"] == record["measures"]["final"]["nDCG@10"]


def test_a_run_alone_knows_its_data_and_its_model(run_opera, trained, beir):
    for name, *rest in (["search", "t1w5 t1w6"], ["evaluate"]):
        alone = run_opera(name, trained.path, *rest, "--json")
        both = run_opera(name, beir, *rest, "--model", trained.path, "--json")
        assert alone.stdout == both.stdout != ""
    assert opera.evaluate(trained.path).measures == opera.evaluate(beir, model=trained.path).measures


def test_a_run_whose_data_moved_or_changed_says_so(run_opera, trained, beir, tmp_path, caplog):
    run = shutil.copytree(trained.path, tmp_path / "run")
    record = (run / "run.json").read_text()
    (run / "run.json").write_text(record.replace(str(beir), "elsewhere"))
    said = "elsewhere: no such file or folder; the run trained on it; pass DATA --model run"
    assert said in run_opera("evaluate", "run", status=2).stderr
    shutil.copytree(beir, tmp_path / "elsewhere")
    with (tmp_path / "elsewhere" / "corpus.jsonl").open("a") as file:
        file.write('{"_id": "new", "title": "", "text": "t1w1"}\n')
    with caplog.at_level("INFO", logger="opera"):
        run_opera("search", "run", "t1w1")
    assert "elsewhere has changed since the run was trained on it" in caplog.text


def test_lines_are_searched_for_one_by_one(run_opera, trained, monkeypatch):
    one = run_opera("search", trained.path, "t1w5 t1w6").stdout
    for end in ("", "\n", "\nt2w1\n"):
        monkeypatch.setattr("sys.stdin", io.StringIO("t1w5 t1w6\nt1w5 t1w6\n" + end))
        done = run_opera("search", trained.path, "--interactive")
        assert done.stdout == one + one


def test_commands_that_write_a_file_print_its_name_as_json(run_opera, trained, beir, static_model, tmp_path):
    def printed(*command: object) -> dict[str, object]:
        done = run_opera(*command, "--json")
        values = json.loads(done.stdout)
        assert (tmp_path / str(values["file"])).is_file()
        return values

    model = ("--model", static_model, "--precision", "fp32")
    mined = printed("mine", beir, *model, "--range", "2:30", "--out", "mined.tsv")
    assert mined["negatives"] == len((tmp_path / "mined.tsv").read_text().splitlines()) - 1
    run_opera("mine", beir, *model, "--range", "2:30", "--out", "mined.jsonl")
    again = run_opera("train", "mined.jsonl", "--model", static_model, "--out", "again", *QUICK, "--json")
    assert json.loads(again.stdout)["run"] == "again", "mined negatives can be trained on"
    scored = printed("score", beir, *model, "--out", "pairs.tsv")
    assert scored["pairs"] == len((tmp_path / "pairs.tsv").read_text().splitlines()) - 1
    assert scored["similarity"].keys() == {"lowest", "25%", "median", "75%", "highest"}
    assert "quantile" in run_opera("score", beir, *model, "--out", "pairs.parquet").stdout
    body = "Knead the dough for ten minutes, let it rest for an hour, and bake it until the crust is brown."
    (tmp_path / "notes.md").write_text(f"# How to bake bread\n\n{body}\n")
    weak = printed("pairs", "notes.md", "--out", "weak.csv")
    assert (weak["pairs"], weak["origins"]) == (1, {"title": 1})
    assert printed("show", trained.path, "--out", "searches.html").keys() == {"file"}
    assert "opera train " in str(printed("review", trained.path, "--out", "page.html")["command"])


def test_inspect_prints_what_the_python_function_finds(run_opera, beir, static_model):
    command = ("inspect", beir, "--model", static_model)
    seen = opera.inspect(beir, model=static_model, show=2)
    done = run_opera(*command, "--show", 2, "--json")
    assert json.loads(done.stdout) == json.loads(json.dumps(seen.as_dict())), done.stderr
    without = run_opera(*command, "--show", 0)
    assert "Hardest for this model" not in without.stdout
    without = run_opera("inspect", beir, "--json")
    assert json.loads(without.stdout) == json.loads(json.dumps(opera.inspect(beir).as_dict()))
    assert "Add --model MODEL to see noise" in run_opera("inspect", beir).stdout


def test_the_command_line_and_python_show_a_warning_once(run_opera, beir, static_model, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # none of pytest's: what Python shows where none is set up
    e5, bge = (shutil.copytree(static_model, tmp_path / name) for name in ("e5-small", "bge-small-en-v1.5"))
    for _ in range(2):
        opera.search(beir, "t1w1", model=bge)
    warning = "warning: {}: models of the family {} need a query prompt (model card of "
    assert capsys.readouterr().err.count(warning.format(bge, "bge-en")) == 1
    assert run_opera("search", beir, "t1w1", "--model", e5).stderr.count(warning.format(e5, "e5")) == 1


def test_a_signal_in_the_quickstart_prints_how_to_start_again(run_opera, monkeypatch):
    monkeypatch.setattr("opera.run.adapt.load_python", lambda *_: signal.raise_signal(signal.SIGTERM))
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    done = run_opera("quickstart", status=130)
    signal.signal(signal.SIGTERM, before)
    assert "interrupted; the same command with --overwrite starts again" in done.stderr


def test_an_adapter_of_vectors_from_files(run_opera, beir, tmp_path):
    data, rng = opera.load_data(beir), np.random.default_rng(0)
    for name, table in (("q", data.queries), ("d", data.corpus)):
        np.save(tmp_path / f"{name}.npy", rng.normal(size=(len(table), 8)))
        (tmp_path / f"{name}.txt").write_text("\n".join(table.ids()))
    options = ["--query-vectors", "q.npy", "--document-vectors", "d.npy", "--model", "service-1"]
    done = run_opera("train", beir, *options, "--out", "run", *QUICK)
    assert "import adapter  # run/model/adapter.py" in done.stdout
    assert json.loads((tmp_path / "run/run.json").read_text())["model"]["source"] == "service-1"


def printed(by: Callable[..., None], *results: Any, width: int = 400) -> str:
    file = io.StringIO()
    by(Screen(file, width), *results)
    return file.getvalue()


def test_a_grid_has_the_verdict_of_each_data_set_with_its_best_model(tmp_path):
    folder = RunsFolder(tmp_path / "runs")
    folder.add(method="ft", final=around(0.5, 1), base=[0.3] * 9)
    best = folder.add(method="dp", final=around(0.6, 2), base=[0.3] * 9)
    for method, mean in (("ft", 0.05), ("dp", 0.02)):
        folder.add(method=method, data="data/[bold]two", final=around(mean), base=[0.1] * 9)
    unfinished = folder.add(method="sp", status="running")
    comparison = analyse_runs(folder.home)
    text = printed(print_results, comparison, Path("grid"))
    lines = text.splitlines()
    for table in comparison.final_tables():
        assert lines[lines.index(title(table)) + 1] == f"{conclusion(table, 'ft')}."
    assert [line for line in lines if line.startswith("Model: ")] == [f"Model: {best / 'model'}"]
    assert "[bold]two" in text
    assert f"left out: {unfinished}: is not finished" in text


def test_an_inspection_fits_on_one_page(beir, static_model):
    page = printed(print_inspection, opera.inspect(beir, model=static_model), width=100)
    wanted = ["train queries", "Findings", "16 test queries are few", "Next steps", "Hardest"]
    assert sorted(wanted, key=page.index) == wanted
    assert len(page.splitlines()) <= 40


def test_printed_commands_run_when_pasted(run_opera, trained, tmp_path):
    folder = shutil.copytree(trained.path, tmp_path / "Ana's runs" / "my run")
    noisy = {"noise_rate": 0.3, "low": 0.2, "high": 0.4, "visited": 9, "suspicious": 1}
    record = json.loads((folder / "run.json").read_text()) | {"noisy_labels": noisy}
    (folder / "run.json").write_text(json.dumps(record))
    run = Run.open(folder)
    text = printed(print_labels, run, width=40) + printed(print_next, run, width=40)
    commands = [shlex.split(line, comments=True) for line in text.splitlines() if line.startswith("  opera ")]
    assert [words[1] for words in commands] == ["review", "review", "show", "search", "report"]
    for words in commands:
        assert str(run.path) in words
        run_opera(*words[1:], *(["--overwrite"] if words[1] in ("show", "report") else []))
    run_opera("review", run.path, "--out", "my decisions.csv")
    again = run_opera("review", run.path, "--out", "my decisions.csv", "--overwrite").stdout.splitlines()[-1]
    assert shlex.split(again)[-4:] == ["--out", f"{run.path}-2", "--decisions", "my decisions.csv"]


def test_data_of_one_pair_without_other_splits_is_inspected(tmp_path, static_model):
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps({"query": "t1w5", "pos": ["t1w1"]}))
    assert "The data has only train" in printed(print_inspection, opera.inspect(path, model=static_model))
