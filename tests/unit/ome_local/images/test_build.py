"""Tests of images: what their Dockerfiles pin, on what their keys depend, and what is mounted from this machine."""

import itertools
import json
import os
import re
import tomllib
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from ome_local.images import build, buildah, debian
from ome_local.lock import locked
from ome_operator.errors import UserError

ROOT = Path(__file__).parents[4]
BASE = "docker.io/library/debian:bookworm-slim"
DIGEST = re.compile(r"\S+:\S+@sha256:[0-9a-f]{64}")
OURS = [
    folder for folder in ROOT.iterdir() if folder.is_dir() and folder.name[0] != "." and folder.name not in ("build", "dist")
]
DOCKERFILES = sorted(file for folder in OURS for file in folder.rglob("*Dockerfile*"))


def pins(file: Path) -> dict[str, str]:
    """Return the pinned version of each package."""
    return dict(re.findall(r"^([a-z0-9._-]+)==([^\s\\;]+)", file.read_text(), re.MULTILINE | re.IGNORECASE))


def foreign(text: str) -> set[str]:
    """Return the images to which a Dockerfile refers by FROM and --from=, without its own stages."""
    values = dict(re.findall(r"^ARG (\w+)=(\S+)$", text, re.MULTILINE))
    named = re.findall(r"^FROM (?:--\S+ )*(\S+)", text, re.MULTILINE) + re.findall(r"--(?:mount=\S*,)?from=([^\s,]+)", text)
    stages = set(re.findall(r"^FROM .+ AS (\S+)$", text, re.MULTILINE))
    return {re.sub(r"\$\{?(\w+)\}?", lambda name: values[name[1]], name) for name in named} - stages


class TestPins:
    """Tests of pinned versions. Docker and `ome local` read them from the same files."""

    @pytest.mark.parametrize("name", build.REFERENCES)
    def test_dockerfiles_share_their_first_stage(self, name: str) -> None:
        """All Dockerfiles begin with the same stage, so that the images share its layers."""
        begin, own = (self.instructions(each) for each in ("operator", name))
        assert own[:3] == begin[:3]
        assert own[0].startswith(f"ARG BASE={BASE}@sha256:") and own[1] == "FROM ${BASE} AS base"
        assert own[-2:-1] == ["USER 65532:65532"]

    @pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: str(file.relative_to(ROOT)))
    def test_every_base_image_is_pinned_by_digest(self, file: Path) -> None:
        """Each base image (a FROM that names no stage) is named by its digest: a tag may be another image tomorrow."""
        begins = foreign(file.read_text())
        assert begins and [name for name in begins if not DIGEST.fullmatch(name)] == []

    def test_foreign_image_references_are_found(self) -> None:
        text = "ARG A=x:1\nARG B=x:1@sha256:{0}\nFROM ${{A}} AS low\nFROM $B\nFROM low\n"
        text += "COPY --chown=1 --from=y:2 a b\nCOPY --from=low a b\n"
        assert foreign(text.format("0" * 64)) == {"x:1", f"x:1@sha256:{'0' * 64}", "y:2"}
        assert {file.parent.name for file in DOCKERFILES} >= build.REFERENCES.keys()

    @staticmethod
    def instructions(name: str) -> list[str]:
        """Return the instructions of a Dockerfile, with continued lines joined and without comments."""
        text = build.dockerfile(name, ROOT).read_text()
        lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        return "\n".join(lines).replace("\\\n", "").splitlines()

    @pytest.mark.parametrize("name", build.REFERENCES)
    def test_image_requirements_have_hashes(self, name: str) -> None:
        """The packages of an image have hashes, with which pip refuses a changed download."""
        text = (ROOT / "images" / name / "Dockerfile").read_text()
        assert f"COPY images/{name}/requirements.txt" in text
        assert "--require-hashes" in text
        lines = (ROOT / "images" / name / "requirements.txt").read_text().split("\n")
        for line, after in itertools.pairwise(lines):
            assert "==" not in line or after.strip().startswith("--hash=sha256:")

    def test_image_tags_contain_the_pinned_versions(self) -> None:
        """The tag of an image is the pinned version of its engine or router, because flags of runtimes are checked against
        the version in the tag.
        """
        engine, router = (pins(ROOT / "images" / name / "requirements.txt") for name in ("engine-cpu", "router"))
        assert build.REFERENCES["engine-cpu"].endswith(f":{engine['sglang']}")
        assert build.REFERENCES["router"].endswith(f":{router['sglang-router']}")

    def test_engine_image_files_name_the_same_packages(self) -> None:
        """Both files of the engine's image name the same packages, so that no version is resolved during the build."""
        wanted, locked = (pins(ROOT / "images" / "engine-cpu" / f"requirements.{end}") for end in ("in", "txt"))
        assert {name.lower().replace("_", "-"): version for name, version in wanted.items()} == locked

    def test_operator_image_contains_the_packages_of_the_lock_file(self) -> None:
        """The operator's image has the packages of requirements.lock, with which the tests run, and they include everything
        that pyproject.toml requires.
        """
        tested, packed = pins(ROOT / "requirements.lock"), pins(ROOT / "images" / "operator" / "requirements.txt")
        assert packed.items() <= tested.items()
        asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
        assert {re.split(r"[<>=\[]", wanted)[0] for wanted in asked} <= packed.keys()

    def test_dockerignore_excludes_locally_compiled_files(self) -> None:
        """.dockerignore excludes the files that were compiled on this machine, so that they are not part of an image."""
        assert {f"**/{pattern}" for pattern in build.NOT_COPIED} <= set((ROOT / ".dockerignore").read_text().split())


class TestKeys:
    """Tests that the key of an image changes if and only if the image would."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        """Return a checkout with a Dockerfile that copies one folder from the checkout, and another from a stage."""
        (tmp_path / "src").mkdir()
        (tmp_path / "src" / "a.py").write_text("1")
        (tmp_path / "images" / "x").mkdir(parents=True)
        text = f"FROM {BASE} AS low\nCOPY src /src\nFROM low\nCOPY --from=low /nowhere /x\n"
        build.dockerfile("x", tmp_path).write_text(text)
        return tmp_path

    def test_image_key_ignores_compiled_files_and_times(self, root: Path) -> None:
        """The key stays the same if Python files are compiled, or if a file gets another modification time."""
        before = build.key("x", root)
        (root / "src" / "__pycache__").mkdir()
        (root / "src" / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"x")
        os.utime(root / "src" / "a.py", (1, 1))
        assert build.key("x", root) == before

    def test_image_key_depends_on_dockerfile_text_and_copied_files(self, root: Path) -> None:
        before = build.key("x", root)
        (root / "src" / "a.py").write_text("2")
        copied = build.key("x", root)
        build.dockerfile("x", root).write_text(build.dockerfile("x", root).read_text() + "USER 1\n")
        assert len({before, copied, build.key("x", root)}) == 3

    def test_image_key_depends_on_file_names_and_modes(self, root: Path) -> None:
        """The key of an image changes if a copied file is renamed or becomes executable."""
        before = build.content(root / "src", root)
        (root / "src" / "a.py").chmod(0o755)
        runs = build.content(root / "src", root)
        (root / "src" / "a.py").rename(root / "src" / "b.py")
        assert len({before, runs, build.content(root / "src", root)}) == 3

    def test_missing_copied_file_is_named_in_the_error(self, root: Path) -> None:
        """If a Dockerfile copies a file that does not exist, the error names the file."""
        build.dockerfile("x", root).write_text(f"FROM {BASE}\nCOPY nowhere /x\n")
        with pytest.raises(UserError, match=r"There is no nowhere in"):
            build.key("x", root)


def test_unknown_image_name_is_refused() -> None:
    """An unknown name of an image is refused, with the known names."""
    with pytest.raises(UserError, match="There is no image 'x': use one of operator, engine-cpu, router"):
        build.build(["x"])


def test_image_build_without_root_or_docker_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without root and without Docker, a build is refused, and the message states what is missing."""
    monkeypatch.setenv("OME_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(
        UserError,
        match=r"Image router can be built only as root on Linux amd64 or with Docker, but buildah needs root on Linux, and",
    ):
        build.build(["router"])


def test_docker_builds_the_same_dockerfile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a machine with Docker, a user who is not root builds the same Dockerfile. A fake docker records its arguments."""
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


def test_image_archives_are_deleted_when_no_checkout_uses_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Archives of images are deleted when no checkout uses them any more. Several checkouts share the cache, and each image
    has its own archives.
    """
    monkeypatch.setenv("OME_CACHE", str(tmp_path))
    monkeypatch.setattr(buildah, "require", lambda: None)
    monkeypatch.setattr(buildah, "commit", lambda *words, log: None)
    monkeypatch.setattr(buildah, "archive", lambda name, reference, out: out.write_text(reference + file.read_text()))
    file, mine, yours = tmp_path / "file", tmp_path / "mine", tmp_path / "yours"

    def used(content: str, root: Path, name: str = "x") -> list[str]:
        """Return the archives in the cache after this checkout has built an image with this content."""
        root.mkdir(exist_ok=True)
        monkeypatch.setattr(build, "checkout", lambda: root)
        file.write_text(content)
        build.single(name, f"local/{name}:", {file: "/"})
        return sorted(archived.read_text() for archived in build.folder().glob("*.tar"))

    assert used("1", mine) == ["local/x:1"]
    assert used("1", mine, "xy") == ["local/x:1", "local/xy:1"]
    assert used("2", yours) == ["local/x:1", "local/x:2", "local/xy:1"]
    assert used("3", mine) == ["local/x:2", "local/x:3", "local/xy:1"], "no checkout uses the first archive any more"
    assert used("3", yours) == ["local/x:3", "local/xy:1"]
    yours.rmdir()
    assert used("2", mine) == ["local/x:2", "local/xy:1"], "a deleted checkout uses no archive"


def test_image_of_files_does_not_wait_for_dockerfile_builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An image that consists of files only is built without waiting for builds of Dockerfiles. The first image of the real
    node is of this kind; the build of SGLang's image takes minutes and holds the lock.
    """
    monkeypatch.setenv("OME_CACHE", str(tmp_path))
    monkeypatch.setattr(buildah, "require", lambda: None)
    monkeypatch.setattr(buildah, "commit", lambda *words, log: None)
    monkeypatch.setattr(buildah, "archive", lambda name, reference, out: out.write_text(reference))
    (tmp_path / "pause").write_text("program")
    with locked(build.folder(), create=True), ThreadPoolExecutor(1) as pool:
        made = pool.submit(build.single, "pause", "local/pause:1", {tmp_path / "pause": "/pause"})
        done = wait([made], timeout=20).done
    assert done and made.result().read_text() == "local/pause:1"


class TestSettings:
    """Tests that the machine's download settings are mounted into builds, so that no image contains them."""

    @pytest.fixture(autouse=True)
    def nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Remove all download settings."""
        for name in ("SSL_CERT_FILE", "PIP_CERT", *buildah._PIP):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(debian, "apt_settings", lambda: "")

    def test_build_without_machine_settings_has_no_mounts(self) -> None:
        with buildah._settings() as mounts:
            assert mounts == {}

    def test_package_index_and_certificates_reach_the_build(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "ca.pem").write_text("certificates")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        monkeypatch.setenv("PIP_INDEX_URL", "https://index.example.com/simple")
        with buildah._settings() as mounts:
            inside = {place: Path(file).read_text() for file, place in mounts.items()}
        assert inside == {
            "/run/ome/ca.crt": "certificates",
            "/etc/pip.conf": "[global]\nindex-url = https://index.example.com/simple\ncert = /run/ome/ca.crt\n",
        }


def test_last_message_of_buildah_is_the_error() -> None:
    """The error of a failed build is buildah's last message, and not the line after it."""
    assert buildah._last_line("STEP 1\nError: no such image\nexit status 125") == "Error: no such image"
    assert buildah._last_line("") == "(no output)"


class TestDebian:
    """Tests of the base image of Dockerfiles, with a storage that only stores names."""

    ONE, TWO = ("1" * 64, "2" * 64)

    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
        """Return the commands that buildah received, one per line. No registry answers."""
        said: list[str] = []
        names: set[str] = set()

        def run(*words: str, log: Path | None = None) -> str:
            said.append(" ".join(words))
            if words[0] == "tag":
                names.add(words[2])
            return "0123456789ab" if words[0] == "pull" else ""

        monkeypatch.setenv("OME_CACHE", str(tmp_path))
        buildah.storage().mkdir(parents=True)
        monkeypatch.setattr(buildah, "run", run)
        monkeypatch.setattr(buildah, "has_image", names.__contains__)
        monkeypatch.setattr(buildah, "commit", lambda name, files, log: names.add(name) or said.append(f"made {name}"))
        monkeypatch.setattr(debian, "tree", lambda out, log: out.touch())
        monkeypatch.setattr(buildah.releases, "is_registry", lambda address: False)
        return said

    def built(self, folder: Path, digest: str) -> None:
        """Run a Dockerfile that begins at this digest."""
        (folder / "Dockerfile").write_text(f"# x\nARG BASE={BASE}@sha256:{digest}\nFROM ${{BASE}} AS base\n")
        buildah.bud(folder / "Dockerfile", folder, "local/x:1", folder / "log")

    def test_base_image_is_pulled_by_digest(self, asked: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """The base image is downloaded once for all images. Another digest means another image."""
        monkeypatch.setattr(buildah.releases, "is_registry", lambda address: True)
        for digest in (self.ONE, self.ONE, self.TWO):
            self.built(tmp_path, digest)
        pulls = [line for line in asked if line.startswith("pull")]
        assert pulls == [f"pull --quiet docker.io/library/debian@sha256:{digest}" for digest in (self.ONE, self.TWO)]
        assert f"tag 0123456789ab localhost/debian-pulled:{self.ONE}" in asked
        builds = [line for line in asked if line.startswith("bud")]
        assert [f"--build-arg BASE=localhost/debian-pulled:{self.ONE} " in line for line in builds] == [True, True, False]

    def test_base_image_is_built_without_hub(
        self, asked: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """If Docker Hub does not answer, a similar base image is built once. It never gets the name of the published image,
        which is pulled as soon as the hub answers.
        """
        self.built(tmp_path, self.ONE)
        self.built(tmp_path, self.ONE)
        assert [line for line in asked if line.startswith("made")] == [f"made localhost/debian-made:{self.ONE}"]
        assert f"--build-arg BASE=localhost/debian-made:{self.ONE} " in asked[-1]
        monkeypatch.setattr(buildah.releases, "is_registry", lambda address: True)
        self.built(tmp_path, self.ONE)
        assert f"--build-arg BASE=localhost/debian-pulled:{self.ONE} " in asked[-1]

    def test_release_is_built_only_from_the_published_base_image(self, asked: list[str], tmp_path: Path) -> None:
        """A release is only built from the published base image. A base image that was built locally with the same
        contents is not used.
        """
        self.built(tmp_path, self.ONE)
        with pytest.raises(
            UserError, match=f"does not respond, and this machine does not store docker.io/library/debian@sha256:{self.ONE}"
        ):
            buildah.base_image(tmp_path / "Dockerfile", tmp_path / "log", published=True)

    def test_base_image_without_digest_is_refused(self, asked: list[str], tmp_path: Path) -> None:
        (tmp_path / "Dockerfile").write_text(f"ARG BASE={BASE}\nFROM ${{BASE}}\n")
        with pytest.raises(
            UserError, match=r"Dockerfile has no line `ARG BASE=REPOSITORY:TAG@sha256:…` that names the base image"
        ):
            buildah.bud(tmp_path / "Dockerfile", tmp_path, "local/x:1", tmp_path / "log")
        assert not any(line.startswith(("pull", "bud")) for line in asked)


def test_working_containers_of_interrupted_builds_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The working containers of interrupted builds are removed. Those of images that consist of files stay, because such a
    build may be running.
    """
    asked: list[tuple[str, ...]] = []
    listed = [
        {"id": "1", "imageid": "03125ee37096", "containername": "debian-working-container"},
        {"id": "2", "imageid": "", "containername": "working-container"},
    ]

    def run(*words: str, log: Path | None = None) -> str:
        asked.append(words)
        return json.dumps(listed) if words[0] == "containers" else ""

    monkeypatch.setattr(buildah, "run", run)
    buildah._remove_interrupted()
    listed.clear()
    buildah._remove_interrupted()
    assert asked == [("containers", "--json"), ("rm", "1"), ("containers", "--json")]
