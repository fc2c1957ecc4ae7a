"""Paths as users give them: expanded once, and refused if the system cannot look them up."""

from opera.core.arguments import without_parents


def test_a_folder_above_is_that_of_a_links_target(tmp_path):
    (tmp_path / "far" / "target").mkdir(parents=True)
    (tmp_path / "link").symlink_to("far/target")
    assert without_parents(tmp_path / "link" / ".." / "run") == tmp_path.resolve() / "far" / "run"
