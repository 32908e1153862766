"""Images: what their Dockerfiles pin, what their keys depend on, and layers made from trees."""

import itertools
import json
import os
import re
import subprocess
import tarfile
import tomllib
from pathlib import Path

import pytest

from ome_local.images import build, rootfs
from ome_local.images.builder import NOT_COPIED, Builder
from ome_local.images.dockerfile import Copy, Stage, parse
from ome_operator.errors import UserError

ROOT = Path(__file__).parents[4]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="ownership and chroot need root")


def pins(file: Path) -> dict[str, str]:
    """Package -> version."""
    return dict(re.findall(r"^([a-z0-9._-]+)==([^\s\\;]+)", file.read_text(), re.MULTILINE | re.IGNORECASE))


class TestPins:
    """One list of versions for Docker and for us, because one file is read by both."""

    @pytest.mark.parametrize("name", build.REFERENCES)
    def test_every_dockerfile_is_understood(self, name: str) -> None:
        """And begins with the stage that all images share, so they share its layer."""
        stages = build.stages_of(name, ROOT)
        shared = build.stages_of("operator", ROOT)["base"]
        assert stages["base"] == shared
        assert shared.parent == build.BASE
        assert stages[""].user == "65532:65532"

    @pytest.mark.parametrize("name", build.REFERENCES)
    def test_packages_come_with_hashes(self, name: str) -> None:
        """A changed byte on the way is noticed."""
        text = (ROOT / "images" / name / "Dockerfile").read_text()
        assert f"COPY images/{name}/requirements.txt" in text
        assert "--require-hashes" in text
        lines = (ROOT / "images" / name / "requirements.txt").read_text().split("\n")
        for line, after in itertools.pairwise(lines):
            assert "==" not in line or after.strip().startswith("--hash=sha256:")

    def test_references_say_the_pinned_versions(self) -> None:
        """A tag that lies would hide which engine a runtime's flags are checked against."""
        engine, router = (pins(ROOT / "images" / name / "requirements.txt") for name in ("engine-cpu", "router"))
        assert build.REFERENCES["engine-cpu"].endswith(f":{engine['sglang']}")
        assert build.REFERENCES["router"].endswith(f":{router['sglang-router']}")

    def test_the_engine_has_all_it_was_asked_for(self) -> None:
        """Nothing is resolved: its two files name the same packages."""
        wanted, locked = (pins(ROOT / "images" / "engine-cpu" / f"requirements.{end}") for end in ("in", "txt"))
        assert {name.lower().replace("_", "-"): version for name, version in wanted.items()} == locked

    def test_the_operator_runs_with_what_it_was_tested_with(self) -> None:
        """Its packages are those of requirements.lock, and all that pyproject.toml asks for."""
        tested, packed = pins(ROOT / "requirements.lock"), pins(ROOT / "images" / "operator" / "requirements.txt")
        assert packed.items() <= tested.items()
        asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
        assert {re.split(r"[<>=\[]", wanted)[0] for wanted in asked} <= packed.keys()

    def test_docker_leaves_out_what_we_leave_out(self) -> None:
        """Compiled files of this machine are no part of an image."""
        assert {f"**/{pattern}" for pattern in NOT_COPIED} <= set((ROOT / ".dockerignore").read_text().split())


class TestKeys:
    """A key changes when the image would, and only then."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        """A checkout with one file to copy."""
        (tmp_path / "src").mkdir()
        (tmp_path / "src" / "a.py").write_text("1")
        return tmp_path

    @staticmethod
    def keys(root: Path, text: str) -> dict[str, str]:
        """Of a Dockerfile whose image stands on two stages."""
        return build.keys_of(parse(f"FROM {build.BASE} AS low\n{text}\nFROM low\nCOPY --from=low /x /x\n"), root)

    def test_same_input_same_keys(self, root: Path) -> None:
        """Also after compiling, and whatever the files' times are."""
        before = self.keys(root, "COPY src /src")
        (root / "src" / "__pycache__").mkdir()
        (root / "src" / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"x")
        os.utime(root / "src" / "a.py", (1, 1))
        assert self.keys(root, "COPY src /src") == before

    def test_a_stage_below_changes_all_above(self, root: Path) -> None:
        """Its text or a file that it copies."""
        before = self.keys(root, "COPY src /src")
        assert self.keys(root, "COPY src /src2")[""] != before[""]
        (root / "src" / "a.py").write_text("2")
        after = self.keys(root, "COPY src /src")
        assert after["low"] != before["low"]
        assert after[""] != before[""]
        assert after[build.BASE] == before[build.BASE]

    def test_names_and_rights_count(self, root: Path) -> None:
        """A renamed file and one that may be run are other files."""
        before = build.content(root / "src", root)
        (root / "src" / "a.py").chmod(0o755)
        runs = build.content(root / "src", root)
        (root / "src" / "a.py").rename(root / "src" / "b.py")
        assert len({before, runs, build.content(root / "src", root)}) == 3

    def test_an_unknown_base_is_a_sentence(self, root: Path) -> None:
        """Only Debian can be made here."""
        with pytest.raises(UserError, match="'ubuntu' is neither"):
            build.keys_of(parse("FROM ubuntu"), root)

    def test_a_missing_file_is_a_sentence(self, root: Path) -> None:
        """It names the file."""
        with pytest.raises(UserError, match=r"There is no nowhere in"):
            self.keys(root, "COPY nowhere /x")


def test_unknown_image() -> None:
    """The names that there are."""
    with pytest.raises(UserError, match="There is no image 'x'; there are operator, engine-cpu, router"):
        build.build(["x"])


def test_nobody_but_root_builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And is told what is missing."""
    monkeypatch.setenv("OME_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UserError, match=r"Image router is built as root on Linux amd64, or by Docker: neither is here"):
        build.build(["router"])


def test_docker_builds_the_same_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where it is, and we may not. This docker only writes down what it was asked."""
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n[ "$1" = build ] || echo archive > "$3"\n')
    docker.chmod(0o755)
    monkeypatch.setenv("OME_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    made = build.build(["router"])["router"]
    assert made.read_text() == "archive\n"
    assert build.build(["router"])["router"] == made, "once"
    first, second = (tmp_path / "asked").read_text().splitlines()
    assert first == "build --platform=linux/amd64 -f images/router/Dockerfile -t local/sglang-router:0.3.2 ."
    assert second.startswith("save -o ") and second.endswith(" local/sglang-router:0.3.2")


def test_older_archives_and_unused_layers_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those of other images stay, with their layers."""
    monkeypatch.setenv("OME_CACHE", str(tmp_path))
    layers = build.folder() / "layers"
    layers.mkdir(parents=True)
    for layer in ("old", "new", "shared"):
        (layers / f"{layer}.tar").touch()
    old, new = "0" * 16, "1" * 16
    for archive, layer in ((f"router-{old}", "old"), (f"router-{new}", "new"), (f"operator-{old}", "shared")):
        (build.folder() / f"{archive}.tar").touch()
        (build.folder() / f"{archive}.json").write_text(json.dumps({"layers": [f"{layer}.tar"]}))
    build.claim("router", {"": new}, tmp_path)
    assert sorted(path.name for path in layers.iterdir()) == ["new.tar", "shared.tar"]
    assert [path.stem for path in sorted(build.folder().glob("*.tar"))] == [f"operator-{old}", f"router-{new}"]


def test_checkouts_that_share_the_cache_keep_each_others_archives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An archive goes when the last checkout that uses it has another, or is gone itself."""
    monkeypatch.setenv("OME_CACHE", str(tmp_path))
    build.folder().mkdir()
    mine, yours = tmp_path / "mine", tmp_path / "yours"

    def used(key: str, root: Path) -> list[str]:
        """The archives that are there once this checkout has built this one."""
        root.mkdir(exist_ok=True)
        build.place("router", {"": key}).touch()
        build.claim("router", {"": key}, root)
        return sorted(path.stem[-1] for path in build.folder().glob("*.tar"))

    one, two, three = (letter * 16 for letter in "abc")
    assert used(one, mine) == ["a"]
    assert used(two, yours) == ["a", "b"]
    assert used(three, mine) == ["b", "c"], "nobody uses the first any more"
    assert used(three, yours) == ["c"]
    yours.rmdir()
    assert used(two, mine) == ["b"], "a checkout that is gone uses nothing"


@needs_root
class TestLayers:
    """A layer is what changed, and layers over each other are the tree again."""

    @staticmethod
    def listing(tree: Path) -> list[tuple[str, int, str]]:
        """Path, rights and content (of links: where they point)."""
        return sorted(
            (str(path.relative_to(tree)), path.lstat().st_mode,
             str(path.readlink()) if path.is_symlink() else path.read_text() if path.is_file() else "")
            for path in tree.rglob("*")
        )  # fmt: skip

    def test_round_trip(self, tmp_path: Path) -> None:
        """Added, changed, deleted, linked, made executable; a folder that became a file."""
        tree = tmp_path / "tree"
        (tree / "keep").mkdir(parents=True)
        for name in ("keep/a", "keep/gone", "same", "run"):
            (tree / name).write_text(name)
        (tree / "goes").mkdir()
        (tree / "goes" / "too").write_text("x")
        (tree / "turns").mkdir()
        empty = rootfs.state(tmp_path / "nothing")
        rootfs.write_layer(tree, empty, tmp_path / "0.tar")
        before = rootfs.state(tree)
        (tree / "keep" / "a").write_text("A")
        (tree / "keep" / "gone").unlink()
        (tree / "goes" / "too").unlink()
        (tree / "goes").rmdir()
        (tree / "turns").rmdir()
        (tree / "turns").write_text("file")
        (tree / "run").chmod(0o755)
        (tree / "link").symlink_to("same")
        rootfs.write_layer(tree, before, tmp_path / "1.tar")
        with tarfile.open(tmp_path / "1.tar") as layer:
            assert layer.getnames() == ["keep/a", "link", "run", "turns", ".wh.goes", "keep/.wh.gone"]
        rootfs.unpack([tmp_path / "0.tar", tmp_path / "1.tar"], tmp_path / "again")
        assert self.listing(tmp_path / "again") == self.listing(tree)

    def test_copy_like_docker(self, tmp_path: Path) -> None:
        """A folder's content into the target; a file becomes it, or goes into it after a slash."""
        root, work = tmp_path / "root", tmp_path / "work"
        (root / "d" / "__pycache__").mkdir(parents=True)
        for name in ("d/one", "two", "d/__pycache__/x.pyc"):
            (root / name).write_text(name)
        work.mkdir()
        stage = Stage("s", "base", [Copy(("d",), "/into", None), Copy(("two",), "/x/as", None), Copy(("two",), "/x/", None)])
        builder = Builder(
            "i", {"s": stage}, {"s": "1", "base": "0"}, root=root, base="base", store=work, work=work, log=work / "log"
        )  # fmt: skip
        subprocess.run(["tar", "-cf", work / "0.tar", "-T", "/dev/null"], check=True)
        layers = builder.layers("s")
        with tarfile.open(layers[-1]) as layer:
            assert layer.getnames() == ["into", "into/one", "x", "x/as", "x/two"]
