"""Compares two outcomes of a service. The result states which objects differ, and how."""

from collections.abc import Iterable, Iterator, Mapping
from difflib import unified_diff
from typing import TYPE_CHECKING, NamedTuple

import yaml

from ome_operator import keys
from ome_operator.core.observed.managed_fields import digest
from ome_operator.core.observed.objects import Manifest
from ome_operator.util.kubeyaml import PlainDumper
from ome_operator.util.wording import count

if TYPE_CHECKING:  # loads the reconciliation, which `ome status` does not need
    from ome_operator.describe.outcome import TargetOutcome

ADDED, CHANGED, REMOVED = "+", "~", "-"
_CONTEXT = 3
_HIDDEN = frozenset({"ownerReferences", "resourceVersion", "uid"})
Key = tuple[str, ...]


class Change(NamedTuple):
    """An object that changes, or several objects that change in the same way."""

    mark: str
    kind: str
    before: tuple[str, ...]
    """Names of the objects before the change; () for added objects."""
    after: tuple[str, ...]
    """Names of the objects after the change; () for removed objects."""
    lines: tuple[str, ...] = ()
    """A unified diff of the change. The diff leaves out the name of the revision, because every object of a new revision
    differs in this name.
    """

    @property
    def title(self) -> str:
        """Short description of the change, such as `Deployment a → b (and 11 more alike)`."""
        old, new = (self.before or ("",))[0], (self.after or ("",))[0]
        name = f"{old} → {new}" if old and new and old != new else new or old
        more = max(len(self.before), len(self.after)) - 1
        return f"{self.kind} {name}" + (f" (and {more} more alike)" if more else "")


def changes(before: "TargetOutcome | None", after: "TargetOutcome | None") -> tuple[Change, ...]:
    """Return the objects that are added, changed and removed between two outcomes. An outcome is None if the service does
    not exist. Two objects of different revisions that correspond to each other (same kind, component and group) are returned
    as one changed object.
    """
    old, new = _parts(before), _parts(after)
    found = [*_one_by_one(old, new, before.revision if before else "", after.revision if after else "")]
    alike: dict[tuple[str, str, tuple[str, ...]], Change] = {}
    for item in found:
        known = alike.get((item.mark, item.kind, item.lines)) if item.lines else None
        if known is not None:
            item = known._replace(before=known.before + item.before, after=known.after + item.after)
        alike[item.mark, item.kind, item.lines or (*item.before, *item.after)] = item
    return tuple(alike.values())


def _one_by_one(old: Mapping[Key, Manifest], new: Mapping[Key, Manifest], was: str, will: str) -> Iterator[Change]:
    for key in [*old, *(key for key in new if key not in old)]:
        left, right = old.get(key), new.get(key)
        if left is None and right is not None:
            yield Change(ADDED, key[0], (), (_name(right),))
        elif right is None and left is not None:
            yield Change(REMOVED, key[0], (_name(left),), ())
        elif left is not None and right is not None and (_name(left) != _name(right) or digest(left) != digest(right)):
            lines = [*unified_diff(_text(left, was), _text(right, will), lineterm="", n=_CONTEXT)][2:]
            # Line numbers differ between leaders and workers of one edit, and refer to a text that the user does not have.
            hunks = tuple("…" if line.startswith("@@") else line for line in lines)
            yield Change(CHANGED, key[0], (_name(left),), (_name(right),), hunks)


def _name(manifest: Manifest) -> str:
    return str(manifest["metadata"]["name"])


def _parts(item: "TargetOutcome | None") -> dict[Key, Manifest]:
    """Return the objects of an outcome by a key that is the same in every revision. For an object of a revision, the key
    consists of the kind, the component, whether the object has the leaders of groups, and the number of the group. For any
    other object, it consists of the kind and the name.

    Stored revisions are left out, because they repeat the content of the StatefulSets.
    """
    found = item.manifests if item else ()
    return {_part(manifest): manifest for manifest in found if manifest["kind"] != "ControllerRevision"}


def _part(manifest: Manifest) -> Key:
    labels = manifest["metadata"].get("labels") or {}
    if keys.REVISION not in labels:
        return manifest["kind"], _name(manifest)
    leads = "leaders" if keys.WORKER_INDEX in labels else ""
    return manifest["kind"], labels.get(keys.COMPONENT, ""), leads, labels.get(keys.GROUP_INDEX, "")


def _text(manifest: Manifest, revision: str) -> list[str]:
    """Return the lines of an object's YAML, without the parts that differ between the groups of a role."""
    metadata = {name: value for name, value in manifest["metadata"].items() if name not in _HIDDEN}
    notes = {name: value for name, value in (metadata.pop("annotations", None) or {}).items() if name != keys.HASH}
    group = metadata.get("labels", {}).get(keys.GROUP_INDEX)
    del metadata["name"]
    body = {**manifest, "metadata": {**metadata, **({"annotations": notes} if notes else {})}}
    text = yaml.dump(body, Dumper=PlainDumper, sort_keys=True, allow_unicode=True, width=200)
    if revision:
        text = text.replace(revision, "REVISION")
    return [line for line in text.splitlines() if not (group and line.strip() == f"{keys.GROUP_INDEX}: '{group}'")]


def count_changes(found: Iterable[Change]) -> str:
    """Return a text with the numbers of changes, such as `2 objects added, 1 changed`; "" for no changes."""
    counts = {ADDED: 0, CHANGED: 0, REMOVED: 0}
    for item in found:
        counts[item.mark] += max(len(item.before), len(item.after))
    verbs = {ADDED: "added", CHANGED: "changed", REMOVED: "removed"}
    counted = [(number, verbs[mark]) for mark, number in counts.items() if number]
    return ", ".join(
        f"{number if place else count(number, 'object')} {verb}" for place, (number, verb) in enumerate(counted)
    )
