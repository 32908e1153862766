"""Rules about the vendor of GPUs: what a pod requests, and what its image, its flags and its selectors are made for."""

import re
from collections.abc import Iterator
from typing import Any

from ome_operator import quantity
from ome_operator.lint import locations
from ome_operator.lint.devices import VENDORS, vendor_of
from ome_operator.lint.division import locate_flag
from ome_operator.lint.finding import Location, Rule, RuleHit, Severity, rule
from ome_operator.lint.launch import Launch
from ome_operator.lint.subject import Manifest, Role, Subject, items, map_at

_NO_GPU = r"cpu|xeon"
"""Words in the names of images that run on CPUs."""
_UPSTREAM = frozenset({"lmsysorg/sglang", "vllm/vllm-openai"})
"""Repositories whose images are made for NVIDIA's GPUs unless their tag says otherwise."""
_BACKENDS = ("--attention-backend", "--prefill-attention-backend", "--decode-attention-backend")


def image_for(image: str) -> str:
    """Return the kind of devices for which an image is made, according to its name: a key of VENDORS, or "processors" for
    CPUs. Return "" if the name states no kind, or several.
    """
    path = image.partition("@")[0].lower()
    first, slash, rest = path.partition("/")
    path = rest if slash and re.search(r"[.:]|^localhost$", first) else path
    words = re.split(r"[^a-z0-9]+", path)
    found = {name for name, vendor in VENDORS.items() if any(re.fullmatch(vendor.image, word) for word in words)}
    if not found and any(re.fullmatch(_NO_GPU, word) for word in words):
        return "processors"
    if not found and path.partition(":")[0] in _UPSTREAM:
        return "NVIDIA"
    return found.pop() if len(found) == 1 else ""


_MAY_BE_BESIDE = "Intel"
"""The vendor of integrated GPUs that may be in nodes which also have GPUs of another vendor."""


def _gpus(box: Manifest) -> dict[str, tuple[str, Any]]:
    """Map each vendor of which a container requests GPUs to the resource and its amount."""
    limits = {str(name): amount for name, amount in map_at(box, "resources", "limits").items()}
    asked = {name: amount for name, amount in sorted(limits.items()) if quantity.parse(amount) > 0}
    return {vendor: (name, amount) for name, amount in asked.items() if (vendor := vendor_of(name))}


def _requested(box: Manifest) -> str:
    """Return the vendor of the devices that a container requests; "" if it requests no devices, or devices of several
    vendors.
    """
    found = _gpus(box).keys() & VENDORS.keys()
    return next(iter(found)) if len(found) == 1 else ""


@rule(
    "vendors-two",
    Severity.ERROR,
    "A pod requests GPUs of two vendors",
    ignored="No node has GPUs of both vendors, so the pod is never scheduled.",
    evidence="A limit of the runtime stays if the service sets a limit of another name (docs/architecture.md, Merge).",
)
def vendors_two(subject: Subject) -> Iterator[RuleHit]:
    for role in subject.roles:
        for pod in role.pods:
            of_pod: dict[str, tuple[str, str]] = {}
            boxes = [box for part in ("containers", "initContainers") for box in items(pod["spec"], part)]
            for box in boxes:
                gpus = _gpus(box)
                if len(gpus) > 1:
                    limits = " and ".join(f"{amount} {name}" for name, amount in gpus.values())
                    first, second, *_ = (name for name, _ in gpus.values())
                    remedy = (
                        f"remove one of the limits; a service sets {first}: 0 or {second}: 0 to undo a limit of its runtime"
                    )
                    message = f"{role.title}: container {box.get('name')} has limits of {limits}"
                    yield RuleHit(locations.field(role, "resources"), message, remedy)
                elif gpus:
                    ((vendor, (name, amount)),) = gpus.items()
                    of_pod.setdefault(vendor, (str(box.get("name")), f"{amount} {name}"))
            if len(of_pod.keys() - {_MAY_BE_BESIDE}) > 1:
                limits = ", and ".join(f"container {name} has a limit of {limit}" for name, limit in of_pod.values())
                yield RuleHit(
                    locations.component_location(role),
                    f"{role.title}: {limits}",
                    "remove the limit of one of the containers",
                )


@rule(
    "vendor-other",
    Severity.ERROR,
    "An image, a backend or a selector is made for devices other than those that the pod requests",
    ignored="The engine finds no GPU or ends at its first kernel, or no node has both the devices and the label.",
    evidence="The rule knows the names of the images that engines publish, such as v0.5.23-rocm720-mi30x, and the "
    "attention backends that SGLang's documentation lists for each device. A name that states no device causes "
    "no finding.",
)
def vendor_other(subject: Subject) -> Iterator[RuleHit]:
    for role in subject.roles:
        for pod in role.pods:
            vendors = {found for box in items(pod["spec"], "containers") if (found := _requested(box))}
            if len(vendors) == 1:
                yield from _others(role, pod["spec"], *vendors)
    for role, start in subject.launched("sglang"):
        if vendor := _requested(role.container):
            yield from _back_ends(role, start, vendor)


def _others(role: Role, spec: Manifest, vendor: str) -> Iterator[RuleHit]:
    """Yield the settings of a pod that are made for another vendor than the vendor whose devices the pod requests."""
    for box in items(spec, "containers"):
        made = image_for(str(box.get("image") or ""))
        if _requested(box) and made not in ("", vendor):
            message = f"the image {box['image']} is made for {made}, but the container requests {_devices(box)}"
            yield RuleHit(
                locations.field(role, "image"), f"{role.title}: {message}", f"write an image for {vendor}, or other limits"
            )
    for label in map_at(spec, "nodeSelector"):
        other = next((name for name, each in VENDORS.items() if str(label).startswith(each.prefix)), vendor)
        if other != vendor:
            message = f"nodeSelector has {label}, a label of {other}, but the pod requests devices of {vendor}"
            yield RuleHit(
                _in(role, "nodeSelector"), f"{role.title}: {message}", "remove the label, or request other devices"
            )
    if spec.get("runtimeClassName") == "nvidia" and vendor != "NVIDIA":
        message = f"runtimeClassName is nvidia, but the pod requests devices of {vendor}"
        yield RuleHit(_in(role, "runtimeClassName"), f"{role.title}: {message}", "remove runtimeClassName")


def _in(role: Role, field: str) -> Location:
    return locations.in_pod(role, (field,))


def _devices(box: Manifest) -> str:
    return " and ".join(name for name, _ in _gpus(box).values())


def _back_ends(role: Role, start: Launch, vendor: str) -> Iterator[RuleHit]:
    for flag in _BACKENDS:
        word = start.text(flag)
        other = next((name for name, each in VENDORS.items() if word in each.backends), vendor)
        if other != vendor:
            message = f"{flag}={word} runs only on devices of {other}, but the pod requests devices of {vendor}"
            yield RuleHit(
                locate_flag(role, start, flag), message, "write another backend, or remove the flag to let the engine choose"
            )


RULES: tuple[Rule, ...] = (vendors_two, vendor_other)
