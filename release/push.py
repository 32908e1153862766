"""Push a release to a registry: first the contents by digest, which are not visible to users, then the tags.

A registry that denies the push does so for the contents. A tag is a request of a few bytes, with permissions that have just
been used, so it fails only if the connection is lost. In that case, the tags that were already pushed are removed, or
reported if they cannot be removed.
"""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ome_operator.errors import UserError
from release import programs


@dataclass(frozen=True)
class Item:
    """An image or a chart that is pushed."""

    repository: str
    """Repository of the item, without the registry's address."""
    digest: str


def push(items: Sequence[Item], layout: Path, registry: str, version: str) -> None:
    """Push all items. The last item is the chart that users install.

    Raises UserError. After an error, either no item has a tag, or the message lists the items that have a tag.
    """
    oras = programs.program(programs.ORAS)
    waiting = [item for item in items if not _published(oras, item, registry, version)]
    for item in reversed(
        waiting
    ):  # the charts are small, so a registry that denies the push does so before gigabytes are sent
        place = f"{registry}/{item.repository}"
        _oras(
            oras,
            "cp",
            "--from-oci-layout",
            f"{layout}@{item.digest}",
            place,
            reason=f"{place} was refused, and nothing has a name yet",
        )
    named: list[Item] = []
    for item in waiting:
        place = f"{registry}/{item.repository}"
        try:
            _oras(oras, "tag", f"{place}@{item.digest}", version, reason=f"{place}:{version} could not be named")
        except UserError as error:
            raise UserError(f"{error} {_taken_back(oras, named, registry, version)}") from error
        named.append(item)


def _published(oras: Path, item: Item, registry: str, version: str) -> bool:
    """Return whether the tag already exists. Raises UserError if the tag has another digest, because a release never
    changes.
    """
    place = f"{registry}/{item.repository}:{version}"
    found = _resolved(oras, place)
    if found not in ("", item.digest):
        raise UserError(
            f"{place} exists with other content ({found}), and a release never changes: take a newer VERSION "
            "(nothing was pushed)."
        )
    return bool(found)


def _resolved(oras: Path, place: str) -> str:
    """Return the digest of a tag, or "" if the tag does not exist. If the registry does not respond, the next push
    reports the error.
    """
    done = subprocess.run([str(oras), "resolve", place], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _taken_back(oras: Path, named: Sequence[Item], registry: str, version: str) -> str:
    """Remove the tags that were pushed, the newest first. Return the result as a sentence for the user."""
    for item in reversed(named):
        place = f"{registry}/{item.repository}@{item.digest}"
        subprocess.run([str(oras), "manifest", "delete", "--force", place], capture_output=True, check=False)
    left = [item.repository for item in named if _resolved(oras, f"{registry}/{item.repository}:{version}")]
    if not left:
        return "No name is left of this release; run the same command again."
    return f"{', '.join(left)} kept the name {version}, and no chart refers to them by it; run the same command again."


def _oras(oras: Path, *words: str, reason: str) -> None:
    done = subprocess.run([str(oras), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["(no output)"]
        raise UserError(f"{reason}: {next((line for line in lines if 'rror' in line), lines[-1]).strip()}.")
