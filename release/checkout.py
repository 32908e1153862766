"""The checkout from which a release is built, and the reasons why the checkout may be unsuitable. Only `read_checkout` and
`git` have side effects.
"""

import json
import re
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from packaging.version import InvalidVersion, Version

from ome_operator.errors import UserError
from release import changelog

_FORM = re.compile(r"\d+\.\d+\.\d+(-rc\.\d+)?")
_FEW = 3


@dataclass(frozen=True)
class Checkout:
    """The facts that decide whether a release can be built."""

    commit: str
    dirty: Sequence[str]
    """Paths with uncommitted changes."""
    tags: Mapping[str, str]
    """Name of a tag -> commit of the tag."""
    versions: Mapping[str, str]
    """Path of a file -> version of the project in this file."""
    changelog: str


def read_checkout(root: Path) -> Checkout:
    """Read the facts of a checkout."""
    tags = [
        line.split()
        for line in git(
            root, "for-each-ref", "--format=%(refname:short) %(*objectname) %(objectname)", "refs/tags"
        ).splitlines()
    ]
    said = re.search(r'__version__ = "([^"]+)"', (root / "ome_operator/__init__.py").read_text(encoding="utf-8"))
    versions = {"ome_operator/__init__.py": said[1] if said else ""}
    versions["pyproject.toml"] = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    for chart in sorted((root / "charts").glob("*/Chart.yaml")):
        facts = yaml.safe_load(chart.read_text(encoding="utf-8"))
        for field in ("version", "appVersion"):
            versions[f"{chart.relative_to(root)} ({field})"] = str(facts[field])
    return Checkout(
        commit=git(root, "rev-parse", "HEAD").strip(),
        dirty=[line[3:] for line in git(root, "status", "--porcelain").splitlines()],
        tags={tag: commits[0] for tag, *commits in tags},
        versions=versions,
        changelog=(root / "CHANGELOG.md").read_text(encoding="utf-8"),
    )


def why_not(version: str, checkout: Checkout) -> str | None:
    """Return why this version cannot be built from this checkout, as a sentence with a remedy; None if it can be built."""
    if not _FORM.fullmatch(version):
        return f"VERSION is {json.dumps(version)}: write three numbers such as 0.2.0, or a pre-release such as 0.2.0-rc.1."
    if checkout.dirty:
        more = f" and {len(checkout.dirty) - _FEW} more" if len(checkout.dirty) > _FEW else ""
        named = ", ".join(checkout.dirty[:_FEW]) + more
        return f"The working tree has changes ({named}): commit or revert them, because a release is built from a commit."
    return _tags(version, checkout) or _versions(version, checkout) or changelog.why_not(checkout.changelog, version)


def _tags(version: str, checkout: Checkout) -> str | None:
    own = checkout.tags.get(f"v{version}")
    if own and own != checkout.commit:
        at = f"it is at commit {own[:12]} and this is {checkout.commit[:12]}"
        return f"VERSION is {version}, and tag v{version} exists ({at}): a release never changes, so choose a newer version."
    released = [number for tag in checkout.tags if (number := _number(tag))]
    newest = max(released, default=None)
    if newest and Version(version) < newest:
        return f"VERSION is {version}, and {newest} is already tagged: choose a newer version."
    return None


def _number(tag: str) -> Version | None:
    try:
        return Version(tag.removeprefix("v")) if tag.startswith("v") else None
    except InvalidVersion:
        return None


def _versions(version: str, checkout: Checkout) -> str | None:
    others = {file: said for file, said in checkout.versions.items() if said != version}
    if not others:
        return None
    named = ", ".join(f"{file} says {said}" for file, said in others.items())
    return f"VERSION is {version}, and {named}: write {version} there, and commit."


def git(root: Path, *words: str) -> str:
    """Run git and return its output. Raises UserError with its error message."""
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"`git {' '.join(words[:2])}` failed in {root}: {done.stderr.strip()}")
    return done.stdout
