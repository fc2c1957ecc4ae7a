"""Uploads to the hub: what is sent, to whom it is shown, and what refusals and lost connections say. No network."""

import json
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi, ModelCard
from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled
from huggingface_hub.utils import filter_repo_objects, get_session

import opera
from opera.run_folder.folder import ORIGIN_FILE

NAME = "someone/a-model"
HTTP = import_module(type(get_session()).__module__.partition(".")[0])
"""The library by which this version of huggingface_hub connects."""
Sent = dict[str, Any]


@pytest.fixture
def sent(monkeypatch) -> Sent:
    """What the hub got."""
    got = {}
    monkeypatch.setattr(HfApi, "create_repo", lambda self, name, **options: got.update(name=name, **options) or name)

    def upload_folder(self: HfApi, folder_path: Path, allow_patterns: list[str], **options: Any) -> None:
        names = [str(path.relative_to(folder_path)) for path in folder_path.rglob("*") if path.is_file()]
        got["files"] = dict.fromkeys(filter_repo_objects(names, allow_patterns=allow_patterns))

    def upload_file(self: HfApi, path_or_fileobj: bytes, path_in_repo: str, **options: Any) -> None:
        got["files"][path_in_repo] = path_or_fileobj

    monkeypatch.setattr(HfApi, "upload_folder", upload_folder)
    monkeypatch.setattr(HfApi, "upload_file", upload_file)
    return got


def refusal(status: int) -> HfHubHTTPError:
    return HfHubHTTPError("no", response=HTTP.Response(status, request=HTTP.Request("POST", "https://hub/api")))


def test_a_run_is_uploaded_privately_with_its_card(trained, sent):
    assert opera.push(trained.path, NAME, language=["en"]) == NAME
    assert (sent["name"], sent["private"], sent["exist_ok"]) == (NAME, True, True)
    files = {str(path.relative_to(trained.model_path)) for path in trained.model_path.rglob("*") if path.is_file()}
    assert set(sent["files"]) == files - {ORIGIN_FILE}
    card = ModelCard(sent["files"]["README.md"].decode())
    data = card.data
    assert data.model_name == NAME
    assert f'SentenceTransformer("{NAME}")' in card.text


def test_the_hashes_of_the_training_queries_are_uploaded_only_if_asked_for(trained, sent):
    assert (trained.model_path / ORIGIN_FILE).is_file()
    opera.push(trained.path, NAME, keep_run=True)
    assert ORIGIN_FILE in sent["files"]


def test_only_what_opera_wrote_is_uploaded(trained, sent, tmp_path, caplog):
    """A link, which may lead to anything of the user's, is refused: the table of bad inputs has one."""
    caplog.set_level("INFO", "opera")
    opera.push(trained.path, NAME)
    before = set(sent["files"])
    model = tmp_path / "run" / "model"
    shutil.copytree(trained.path, tmp_path / "run")
    (model / ".git").mkdir()
    (model / ".git" / "config").write_text("[core]")
    opera.push(tmp_path / "run", NAME)
    assert set(sent["files"]) == before
    assert "note: these files are not uploaded, as OPERA did not write them: .git/config" in caplog.messages


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (LocalTokenNotFoundError("x"), opera.SettingError),
        (refusal(401), opera.SettingError),
        (refusal(500), opera.StorageError),
        (OfflineModeIsEnabled("offline\nmode"), opera.StorageError),
        (HTTP.ConnectError("no route"), opera.StorageError),
    ],
)
def test_a_failure_is_one_line(trained, monkeypatch, error, kind):
    def fail(*arguments: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(HfApi, "create_repo", fail)
    with pytest.raises(kind) as raised:
        opera.push(trained.path, NAME)
    assert "\n" not in str(raised.value)


def test_matrices_that_belong_to_a_folder_here_stay_here(sent, static_model, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "modules.json").write_text("[]")
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(static_model)}))
    with pytest.raises(opera.ModelError, match="nobody else can load it; train with merge=true"):
        opera.push(folder, NAME)
    assert not sent
