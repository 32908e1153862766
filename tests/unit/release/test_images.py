"""Tests of the images of a release, as the workflow builds them."""

from pathlib import Path

import pytest

from ome_local.images import buildah
from ome_operator.errors import UserError
from release import __main__ as command
from release import checkout, images


def test_release_workflow_uses_only_the_pinned_base_image(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The release workflow uses no other base image than the pinned one. If the registry does not answer for some seconds,
    the release must fail.
    """
    for name in images.IMAGES:
        (tmp_path / "images" / name).mkdir(parents=True)
        (tmp_path / "images" / name / "Dockerfile").write_text(f"ARG BASE=x.io/d:1@sha256:{'1' * 64}\nFROM ${{BASE}}\n")
    monkeypatch.setenv("OME_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(checkout, "git", lambda *words: "0" * 40)
    monkeypatch.setattr(buildah, "require", lambda: None)
    monkeypatch.setattr(buildah, "run", lambda *words, log=None: "")
    monkeypatch.setattr(buildah.releases, "is_registry", lambda address: False)
    with pytest.raises(UserError, match=r"does not respond, and this machine does not store x\.io/d@sha256:1+"):
        command.run("images", root=tmp_path)
    assert not list((tmp_path / "build").rglob("index.json"))
