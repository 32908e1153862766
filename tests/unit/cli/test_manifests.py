"""Tests of which files of a folder are read."""

import os
from pathlib import Path

from ome_operator.cli.manifests import files_in, read_files
from ome_operator.core.observed.objects import Ref


def test_in_a_folder_of_somebody_else_only_files_are_read(tmp_path: Path) -> None:
    """Only regular files in a folder are read. A checkout of another user may contain a link to a device such as /dev/zero,
    and an archive may contain a pipe to which nobody writes.
    """
    (tmp_path / "a.yaml").write_text("")
    (tmp_path / "below").mkdir()
    (tmp_path / "below/b.json").write_text("")
    (tmp_path / "linked.yml").symlink_to("a.yaml")
    (tmp_path / "endless.yaml").symlink_to("/dev/zero")
    (tmp_path / "gone.yaml").symlink_to("nowhere")
    (tmp_path / "folder.yaml").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    assert [path.name for path in files_in([tmp_path])] == ["a.yaml", "b.json", "linked.yml"]


def test_what_a_user_names_is_read_whatever_it_is(tmp_path: Path) -> None:
    """A path that the user names is read whatever it is, because a shell passes the output of a command as a pipe."""
    os.mkfifo(tmp_path / "pipe")
    named = [tmp_path / "pipe", Path("-"), tmp_path / "missing.yaml"]
    assert list(files_in(named)) == named


def test_the_objects_that_the_files_create_beside_the_operators_are_known(tmp_path: Path) -> None:
    """`ome diff` takes into account all objects that the files create, also those of kinds that the operator does not
    manage, so it does not report a claim as missing that the same files create.
    """
    claim, secret = (
        "kind: PersistentVolumeClaim\nmetadata: {name: weights}",
        "kind: Secret\nmetadata: {name: hub, namespace: a}",
    )
    unnamed = "kind: ConfigMap\nmetadata: []"
    (tmp_path / "a.yaml").write_text("\n---\n".join(f"apiVersion: v1\n{each}" for each in (claim, secret, unnamed)))
    others = read_files([tmp_path], "team").others
    assert others == {Ref("PersistentVolumeClaim", "team", "weights"), Ref("Secret", "a", "hub")}
