"""The folder dist/, which contains all files of a release of one commit. A part of these files is pushed."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from ome_local.progress import step
from ome_operator.errors import UserError
from release import changelog, charts, checkout, images, sbom
from release.layout import Layout
from release.push import Item

RECORD, SUMS, NOTES, LAYOUT = "release.json", "SHA256SUMS", "NOTES.md", "oci"
EXAMPLE = "registry.example.com"
"""Registry in the charts of a release that is not pushed."""


@dataclass(frozen=True)
class Release:
    """The release in dist/. The file RECORD stores its fields."""

    version: str
    commit: str
    registry: str
    items: tuple[Item, ...]
    """Images and charts in the order in which they are tagged."""
    platforms: tuple[str, ...]

    @classmethod
    def load(cls, out: Path) -> "Release | None":
        """Return the release in the folder `out`, or None if the folder contains no complete release."""
        try:
            kept = json.loads((out / RECORD).read_text())
        except FileNotFoundError:
            return None
        return cls(**{**kept, "items": tuple(Item(**item) for item in kept["items"]), "platforms": tuple(kept["platforms"])})


def make(root: Path, version: str, registry: str, out: Path) -> Release:
    """Build dist/ unless it already contains the release of this commit and registry. A repeated call therefore results
    in the same bytes.
    """
    commit = checkout.git(root, "rev-parse", "HEAD").strip()
    known = Release.load(out)
    if known and (known.version, known.commit, known.registry) == (version, commit, registry):
        return known
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    layout = Layout.new(out / LAYOUT)
    built = root / "build" / "images" / commit[:12]
    images.make(root, built)
    platforms, items, named = set[str](), list[Item](), dict[str, tuple[str, str]]()
    for name, repository in images.IMAGES.items():
        there = images.existing_layouts(name, built)
        digest = layout.join(list(there.values()), f"{repository}-{version}")
        platforms |= there.keys()
        items.append(Item(repository, digest))
        named[name] = (f"{registry}/{repository}", digest)
        for platform, image in there.items():
            text = sbom.bom(repository, version, image.files(image.only()["digest"]))
            (out / f"{repository}-{version}-{platform}.cdx.json").write_text(text)
    for name in charts.CHARTS:
        packed = charts.package(root, name, version, named, out)
        items.append(Item(f"charts/{name}", charts.store(layout, root, name, version, packed)))
    with step("wheel and sdist"):
        _python(root, out)
    for wheel in out.glob("*.whl"):
        locks = [(root / "images" / name / "requirements.txt").read_text() for name in ("operator", "agent")]
        (out / f"{wheel.name}.cdx.json").write_text(sbom.wheel_bom(wheel, *locks))
    done = Release(version, commit, registry, tuple(items), tuple(sorted(platforms)))
    (out / NOTES).write_text(notes(done, (root / "CHANGELOG.md").read_text(encoding="utf-8")))
    (out / SUMS).write_text(sums(out))
    (out / RECORD).write_text(
        json.dumps(asdict(done), indent=2) + "\n"
    )  # written last, because the file marks the release as complete
    return done


def _python(root: Path, out: Path) -> None:
    """Build the wheel and the sdist with the commit's time as timestamp, so that their bytes are reproducible."""
    when = checkout.git(root, "log", "-1", "--format=%ct").strip()
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": when}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"The wheel could not be built: {done.stderr.strip().splitlines()[-1:]}")


def sums(out: Path) -> str:
    """Return lines for `sha256sum --check`, one for each file that is uploaded."""
    files = sorted(file for file in out.iterdir() if file.is_file() and file.name not in (SUMS, RECORD))
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)


def notes(release: Release, text: str) -> str:
    """Return the release notes: the changes, the installation and the digests. `text` is the text of CHANGELOG.md."""
    section = next(entry for entry in changelog.sections(text) if entry.version == release.version)
    helm = "helm upgrade --install"
    lines = [
        section.text, "", "### Install", "", "```sh",
        f"{helm} ome-crd oci://{release.registry}/charts/ome-crd --version {release.version} --namespace ome "
        "--create-namespace",
        f"{helm} ome oci://{release.registry}/charts/ome-resources --version {release.version} --namespace ome",
        "helm test ome --namespace ome", "```", "",
        f"### Images and charts ({', '.join(f'linux/{platform}' for platform in release.platforms)})", "",
        *(f"- `{release.registry}/{item.repository}@{item.digest}`" for item in release.items),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"
