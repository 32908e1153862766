"""Finds the objects and fields in files that a cluster would refuse, before the files are applied.

`ome lint`, `ome render`, `ome diff` and `ome preflight` read their files with the same functions, so each of them refuses
the same objects, and names the objects that it does not check.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.api import pod_fields, strict
from ome_operator.api.invalid import split_error
from ome_operator.api.kinds import KINDS
from ome_operator.util.kubeyaml import RepeatedKey

NOT_ACCEPTED, POD_FIELD, KIND_UNKNOWN = "object-refused", "pod-field-unknown", "kind-unknown"
OBJECT_TWICE, KEY_TWICE = "object-twice", "key-twice"
"""IDs of the rules of `ome lint` about objects and keys that occur twice in files."""
_GROUPS = (keys.GROUP, "sglang.ai")
_KINDS = frozenset(
    {
        "InferenceService", "ClusterBaseModel", "BaseModel", "ClusterServingRuntime", "ServingRuntime", "AcceleratorClass",
        "FineTunedWeight", "BenchmarkJob",
    }
)  # fmt: skip
"""Kinds of this operator. An object of such a kind with the apiVersion of another group was probably meant for this
operator."""


class WrittenObject(NamedTuple):
    """An object as it stands in a file, before defaults are applied."""

    source_path: str
    """Path of the file, or "standard input"."""
    body: Mapping[str, Any]
    repeats: tuple[RepeatedKey, ...]
    """The keys that maps in the document of the object contain twice."""

    @property
    def group(self) -> str:
        """The API group; "" for the core group."""
        return str(self.body.get("apiVersion") or "").rpartition("/")[0]

    @property
    def is_known_kind(self) -> bool:
        """Whether the object is of a kind that the operator defines."""
        return strict.kind_of(str(self.body.get("apiVersion")), str(self.body.get("kind"))) is not None

    @property
    def resembles_known_kind(self) -> bool:
        """Whether the object was probably meant for this operator, although its kind is not one of the operator's."""
        ours = any(self.group == group or self.group.endswith(f".{group}") for group in _GROUPS)
        return not self.is_known_kind and (ours or self.body.get("kind") in _KINDS)

    def full_name(self, namespace: str = "") -> str:
        """Return kind and name, with the object's own namespace or `namespace` in front of the name."""
        metadata = self.body.get("metadata")
        of = metadata if isinstance(metadata, Mapping) else {}
        place = [str(part) for part in (of.get("namespace") or namespace, of.get("name")) if part]
        return " ".join([str(self.body.get("kind") or "a document without kind"), *(["/".join(place)] if place else [])])


class FileRefusal(NamedTuple):
    """Something in a file that a cluster would refuse, or of which it would ignore a part without a message."""

    rule: str
    """ID of the rule of `ome lint`."""
    object: str
    """Kind and name of the object."""
    field: str
    says: str
    """A statement of what is wrong, as a sentence without its full stop."""
    remedy: str
    """An instruction that tells how to correct the mistake, without capital letter and full stop."""

    def __str__(self) -> str:
        subject = "" if self.says.startswith(self.object) else f"{self.object}: "
        return f"{subject}{self.says}: {self.remedy}"

    @property
    def meant_path(self) -> str:
        """Path of the field that the remedy tells the user to write instead of this field; "" if the
        remedy names no field.
        """
        above, _, key = self.field.rpartition(".")
        if found := re.fullmatch(r"move it to (spec[\w.]*)(, with less indentation)?", self.remedy):
            return f"{found[1]}.{key}"
        if found := re.fullmatch(r"write (\w[\w.]*)( in (spec[\w.]*))?( instead)?", self.remedy):
            place = found[3] or ("" if found[1].startswith("spec.") else above)
            return f"{place}.{found[1]}" if place else found[1]
        return ""

    def causes(self, sentence: str) -> bool:
        """Return whether a sentence about a missing field is only a consequence of this refusal: the value of the missing
        field was written at `field` instead.
        """
        found = re.match(r"(spec[\w.]*) is missing\b", sentence)
        return found is not None and f"{self.meant_path}.".startswith(f"{found[1]}.")


def describe_mistake(mistake: strict.Mistake) -> tuple[str, str]:
    """Return a statement of the mistake, and the instruction that corrects the mistake, in the words of `ome lint`."""
    message, remedy = split_error(mistake.sentence)
    return message, re.sub(r"^did you mean (.+)\?$", r"write \1", remedy) or "correct the value"


def refusals(parts: Iterable[WrittenObject], namespace: str) -> Iterator[FileRefusal]:
    """Yield each object and field in files that a cluster would refuse. `namespace` is the namespace of objects that state
    no namespace.
    """
    seen: dict[tuple[str, str], WrittenObject] = {}
    for part in parts:
        kind = strict.kind_of(str(part.body.get("apiVersion")), str(part.body.get("kind")))
        if kind is None:
            if part.resembles_known_kind:
                yield _foreign(part)
            continue
        name = part.full_name(namespace if kind.namespaced else "")
        found = [
            FileRefusal(POD_FIELD if mistake.of_pod else NOT_ACCEPTED, name, mistake.field, *describe_mistake(mistake))
            for mistake in strict.find_mistakes(kind, part.body)
        ]
        yield from (each for each in found if not any(other.causes(each.says) for other in found))
        for repeat in part.repeats:
            said = f"{repeat.key} is given twice in one map, in lines {repeat.first} and {repeat.last} of {part.source_path}"
            yield FileRefusal(
                KEY_TWICE,
                name,
                repeat.key,
                said,
                f"keep one of the two values; the value in line {repeat.last} is in effect",
            )
        if (first := seen.setdefault((kind.group, name), part)) is not part:
            places = (
                part.source_path
                if first.source_path == part.source_path
                else f"{first.source_path} and in {part.source_path}"
            )
            remedy = "keep one of the two objects, or rename one; the last object is in effect"
            yield FileRefusal(OBJECT_TWICE, name, "metadata.name", f"{name} is written twice, in {places}", remedy)


def _foreign(part: WrittenObject) -> FileRefusal:
    """Return the `FileRefusal` for an object whose apiVersion or kind the operator does not define."""
    version, kind = str(part.body.get("apiVersion") or ""), str(part.body.get("kind") or "")
    right = next((one for one in _versions() if one[1] == kind), None)
    near = pod_fields.closest_field(kind, {one[1] for one in _versions()})
    message = f"apiVersion {version or '(none)'} has no kind {kind or '(none)'} that this operator reads"
    if not version or not kind:
        missing = " and ".join(name for name, value in (("apiVersion", version), ("kind", kind)) if not value)
        message = f"the object has no {missing}"
    if right is not None and part.group != right[0].rpartition("/")[0] and part.group not in _GROUPS:
        remedy = f"write apiVersion: {right[0]}, or check the file without this object if another operator reads it"
    elif right is not None:
        remedy = f"write apiVersion: {right[0]}"
    else:
        remedy = f"write kind: {near}" if near else "correct apiVersion and kind, or remove the object"
    return FileRefusal(KIND_UNKNOWN, part.full_name(), "apiVersion" if right else "kind", message, remedy)


def _versions() -> list[tuple[str, str]]:
    return [(f"{kind.group}/{kind.version}", kind.kind) for kind in KINDS]


def unchecked_objects(parts: Iterable[WrittenObject]) -> tuple[str, ...]:
    """Return the objects of other kinds, which these commands neither check nor read, each with its file. Namespaces and
    Nodes are left out, because the commands read them.
    """
    others = (
        part
        for part in parts
        if not part.is_known_kind and not part.resembles_known_kind and part.body.get("kind") not in _READ
    )
    return tuple(f"{part.full_name()} in {part.source_path}" for part in others)


_READ = frozenset({"Namespace", "Node"})
