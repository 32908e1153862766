"""Tests of which files of a folder are read."""

import os
from pathlib import Path

import pytest
import yaml

from ome_operator.cli.manifests import files_in, read_files
from ome_operator.core.observed.objects import Ref
from ome_operator.errors import QuestionUnanswered
from tests.support import yamls


def test_only_regular_files_of_a_folder_are_read(tmp_path: Path) -> None:
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


def test_path_named_by_the_user_may_be_a_pipe(tmp_path: Path) -> None:
    """A path that the user names is read whatever it is, because a shell passes the output of a command as a pipe."""
    os.mkfifo(tmp_path / "pipe")
    named = [tmp_path / "pipe", Path("-"), tmp_path / "missing.yaml"]
    assert list(files_in(named)) == named


def test_objects_of_other_kinds_in_the_files_count_as_created(tmp_path: Path) -> None:
    """`ome diff` takes into account all objects that the files create, including those of kinds that the operator does not
    manage. So it does not report a claim as missing that the same files create.
    """
    claim, secret = (
        "kind: PersistentVolumeClaim\nmetadata: {name: weights}",
        "kind: Secret\nmetadata: {name: hub, namespace: a}",
    )
    unnamed = "kind: ConfigMap\nmetadata: []"
    (tmp_path / "a.yaml").write_text("\n---\n".join(f"apiVersion: v1\n{each}" for each in (claim, secret, unnamed)))
    others = read_files([tmp_path], "team").others
    assert others == {Ref("PersistentVolumeClaim", "team", "weights"), Ref("Secret", "a", "hub")}


@pytest.mark.parametrize(
    "text", ["- {op: add, path: /spec/engine, value: {}}", "- 1", "a text", "7", "- {apiVersion: v1, kind: ConfigMap}"]
)
def test_document_that_is_no_object_is_named_and_not_checked(text: str, tmp_path: Path) -> None:
    """A document that is no Kubernetes object is named as unchecked, and the other files are read. A folder may contain
    other YAML files, such as the JSON patches of kustomize.
    """
    (tmp_path / "model.yaml").write_text(yaml.safe_dump(yamls.model()))
    (tmp_path / "patch.yaml").write_text(text)
    found = read_files([tmp_path], "team")
    assert ([one["metadata"]["name"] for one in found.objects], found.refused) == (["tiny"], ())
    assert found.unchecked == (f"a document without kind in {tmp_path / 'patch.yaml'}",)


@pytest.mark.parametrize("more", [{}, {"apiVersion": "v1"}, {"kind": "ClusterBaseModl"}])
def test_a_list_of_objects_of_the_operator_is_refused(more: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(yaml.safe_dump([{"op": "add"}, {**yamls.model(), **more}]))
    with pytest.raises(QuestionUnanswered, match="a document is a list: write each object as a document of its own"):
        read_files([tmp_path], "team")
