"""``hf:``: the library's own loading code on folders laid out as on the hub."""

import json
from types import SimpleNamespace

import datasets
import pytest
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

from hub_world import write_beir_hub, write_mteb
from opera.core.errors import DataError
from opera.data import RetrievalData, files_read, load_data
from tiny_world import judged


def hub_error(kind: type[HfHubHTTPError]) -> HfHubHTTPError:
    """An error of the hub, without the response that the hub's library reads it from."""
    return kind.__new__(kind)


def test_the_layout_of_mteb_is_read(tmp_path):
    folder = write_mteb(tmp_path / "small")
    data = load_data(f"hf:{folder}")

    assert list(data.splits) == ["train", "dev", "test"]
    assert data.corpus.texts() == ["Title one", "two", ""]
    assert judged(data, "dev") == [("q2", "d1", 1), ("q2", "d2", 1)]
    assert "left out 3 judgements of missing documents, such as 'd9'" in data.notes
    assert data.name == "small"
    assert files_read(f"hf:{folder}") == [folder]
    assert list(load_data(f"hf:{folder}:test").splits) == ["test"]


def test_the_layout_of_beir_is_read(tmp_path):
    data = load_data(f"hf:{write_beir_hub(tmp_path / 'small')}")
    assert judged(data, "train") == [("q1", "1", 2), ("q1", "2", 0)]
    assert list(data.splits) == ["train", "test"]


def test_a_changed_folder_is_read_anew(tmp_path, monkeypatch):
    folder = write_mteb(tmp_path / "small")
    monkeypatch.chdir(folder)
    assert judged(load_data("hf:."), "dev") == [("q2", "d1", 1), ("q2", "d2", 1)]
    path = folder / "qrels" / "validation.jsonl"
    path.unlink()
    (tmp_path / "linked").write_text('{"query-id": "q3", "corpus-id": "d1", "score": 1}\n')
    path.symlink_to(tmp_path / "linked")  # as in the hub's own cache
    assert judged(load_data("hf:."), "dev") == [("q3", "d1", 1)]


def test_a_single_split_is_train_unless_its_name_says_otherwise(tmp_path):
    for split, ours in (("pairs", "train"), ("validation", "dev")):
        folder = write_mteb(tmp_path / split)
        card = (folder / "README.md").read_text().split("- config_name: default")[0]
        only = f"- config_name: default\n  data_files:\n  - split: {split}\n    path: qrels/test.jsonl\n"
        (folder / "README.md").write_text(f"{card}{only}---\n")
        assert list(load_data(f"hf:{folder}").splits) == [ours]


@pytest.mark.parametrize(
    ("home", "form", "path"),
    [
        *(("small", "data_files: {}", path) for path in (
            "hf://datasets/someone/something/x.csv", "https://there/x.csv", "zip://x.csv::../x.zip",
            "/etc/x", "~/x.csv", "in/../../secret.csv", ".hidden/x.csv")),
        ("small", "data_files: [{{split: '\\\"', path: [in.csv, {}]}}]", "/etc/x"),
        ("small-qrels", "data_dir: {}", "../secret.csv"),
    ],
)  # fmt: skip
def test_a_card_names_files_of_its_own_folder_only(path, form, home, tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.get_dataset_config_names", None)  # nothing is looked for before the card is read
    folder = write_mteb(tmp_path / "small")
    (tmp_path / home).mkdir(exist_ok=True)
    value = form.format(json.dumps(path))
    (tmp_path / home / "README.md").write_text(f"---\nconfigs:\n- config_name: a\n  {value}\n---\n")
    with pytest.raises(DataError, match=rf"/{home}/README\.md: configs: must name files in this folder, got "):
        load_data(f"hf:{folder}")


def test_a_card_in_another_place_or_that_is_none_is_refused(tmp_path):
    folder = write_mteb(tmp_path / "small")
    for name, content in (("README.md", "---\n[\n---\n"), (".huggingface.yaml", "configs: []")):
        (folder / name).write_text(content)
        with pytest.raises(DataError):
            load_data(f"hf:{folder}")


def test_no_file_is_opened_because_a_row_names_it(tmp_path):
    """A card may call a column of texts one of images, which the library then opens or fetches."""
    folder = write_mteb(tmp_path / "small")
    kinds = "dataset_info:\n- config_name: corpus\n  features:\n" + "".join(
        f"  - name: {name}\n    dtype: {kind}\n"
        for name, kind in (("_id", "string"), ("title", "string"), ("text", "image"))
    )
    card = (folder / "README.md").read_text()
    (folder / "README.md").write_text(card.replace("---\n", f"---\n{kinds}", 1))
    with pytest.raises(DataError, match=r"column 'text' must contain texts or whole numbers, but its type is struct<"):
        load_data(f"hf:{folder}")


def test_a_revision_is_read_and_its_judgements_elsewhere_are_not_pinned(monkeypatch):
    texts = {"_id": ["1"], "text": ["a"]}
    columns = {"corpus": texts, "queries": texts, "default": {"query-id": ["1"], "corpus-id": ["1"], "score": [1]}}
    asked = []

    def configs(place: str, revision: str | None = None) -> list[str]:
        return ["default"] if place.endswith("-qrels") else ["corpus", "queries"]

    def load(place: str, config: str, cache_dir: str, revision: str | None) -> datasets.DatasetDict:
        asked.append((place, config, revision))
        return datasets.DatasetDict(train=datasets.Dataset.from_dict(columns[config]))

    monkeypatch.setattr("datasets.get_dataset_config_names", configs)
    monkeypatch.setattr("datasets.load_dataset", load)
    pinned = load_data("hf:o/n@v1")
    assert judged(pinned, "train") == [("1", "1", 1)]
    assert asked == [("o/n", "corpus", "v1"), ("o/n", "queries", "v1"), ("o/n-qrels", "default", None)]


def test_a_data_set_of_the_hub_is_read_again_when_it_has_a_new_commit(tmp_path, monkeypatch):
    first, second = "a" * 40, "b" * 40
    for commit in (first, second):
        write_beir_hub(tmp_path / commit)
    judgements = {first: "q1\t1\t1", second: "q1\t2\t1"}
    on_hub: dict[str, str | Exception] = {"o/n": first, "o/n-qrels": first}
    read_from_library = []
    load, configs = datasets.load_dataset, datasets.get_dataset_config_names

    def folder(place: str, revision: str | None) -> str:
        read_from_library.append(revision)
        return str(tmp_path / f"{revision}{'-qrels' * place.endswith('-qrels')}")

    def dataset_info(place: str, revision: str | None = None, timeout: float | None = None) -> SimpleNamespace:
        if isinstance(on_hub[place], Exception):
            raise on_hub[place]
        return SimpleNamespace(sha=on_hub[place])

    monkeypatch.setattr("huggingface_hub.dataset_info", dataset_info)
    monkeypatch.setattr("datasets.get_dataset_config_names", lambda place, revision: configs(folder(place, revision)))
    monkeypatch.setattr(
        "datasets.load_dataset",
        lambda place, config, cache_dir, revision: load(folder(place, revision), config, cache_dir=cache_dir),
    )
    for commit, judgement in judgements.items():
        path = tmp_path / f"{commit}-qrels" / "train.tsv"
        path.write_text(f"query-id\tcorpus-id\tscore\n{judgement}\n")

    def loaded() -> RetrievalData:
        read_from_library.clear()
        return load_data("hf:o/n")

    old = loaded()
    assert judged(old, "train") == [("q1", "1", 1)]
    assert f"read at commit {first[:12]}" in old.notes
    assert loaded().fingerprint == old.fingerprint
    assert not read_from_library
    on_hub["o/n-qrels"] = second  # only the judgements change, in a repository that belongs to them
    assert judged(loaded(), "train") == [("q1", "2", 1)]
    on_hub["o/n"] = second
    new = loaded()
    assert f"read at commit {second[:12]}" in new.notes
    for error, problem in (
        (ConnectionError(), "the hub cannot be reached"),
        (hub_error(RepositoryNotFoundError), "hf:o/n does not exist on the hub or is private"),
    ):
        on_hub["o/n"] = error
        cached = loaded()
        assert not read_from_library
        assert cached.fingerprint == new.fingerprint
        assert cached.notes[-1] == f"{problem}, so OPERA reads commit {second[:12]} from its cache"


@pytest.mark.parametrize("kind", [RepositoryNotFoundError, RevisionNotFoundError])
def test_a_data_set_that_the_hub_does_not_have_is_an_error(kind, monkeypatch):
    def dataset_info(*_: object, **__: object) -> None:
        raise hub_error(kind)

    monkeypatch.setattr("huggingface_hub.dataset_info", dataset_info)
    with pytest.raises(DataError, match=r"^hf:o/gone@v1 does not exist on the hub or is private; correct the name, or"):
        load_data("hf:o/gone@v1")


def test_offline_it_says_what_to_fetch():
    with pytest.raises(DataError, match="hf download --repo-type dataset nobody/nothing --revision v1 --local-dir"):
        load_data("hf:nobody/nothing@v1")


def test_a_published_document_with_a_title_only_is_a_document(tmp_path):
    rows = [("a", "Title", ""), ("b", "", ""), ("c", "", "text")]
    lines = [json.dumps(dict(zip(("query", "title", "document"), row, strict=True))) for row in rows]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    data = load_data(f"hf:{tmp_path}")
    assert data.corpus.texts(None, "title_text") == ["Title", "text"]
