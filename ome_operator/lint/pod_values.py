"""Find the values of a pod spec that the API server or the node refuses. The checks need no server, and ignore engines."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ome_operator import quantity
from ome_operator.api import pod_fields
from ome_operator.api.invalid import as_yaml
from ome_operator.lint.pod_tables import (
    ALLOWED,
    BOUNDS,
    FORBIDDEN,
    LABEL_KEY,
    LABEL_VALUE,
    LABELS,
    LATE,
    MODE,
    ONE_OF,
    PATTERNS,
    POINTERS,
    REQUIRED,
    RESOURCE,
    UNIQUE,
)
from ome_operator.lint.subject import Manifest, items, map_at
from ome_operator.lint.value_forms import correction


class RefusedValue(NamedTuple):
    """A value that the API server or the node refuses."""

    path: tuple[str, ...]
    """The fields on the way from the pod spec to the value, without the positions in lists."""
    says: str
    """A statement of what is wrong, without a full stop."""
    remedy: str
    """The instruction that corrects the value, without capital letter and full stop."""
    late: bool = False
    """Whether the API server accepts the value. If so, the pod is created, but cannot start."""


def refusals(spec: Manifest) -> Iterator[RefusedValue]:
    """Yield the values that the API server or the node refuses in a pod spec, in the form in which the operator sends it."""
    yield from _object(spec, pod_fields.POD, (), "")
    if spec.get("priority") and not spec.get("priorityClassName"):
        message = f"the pod has the priority {spec['priority']}"
        remedy = "write priorityClassName instead, from which the API server computes the priority"
        yield RefusedValue(("priority",), message, remedy, late=True)
    for part in ("initContainers", "containers"):
        for box in items(spec, part):
            yield from (found._replace(path=(part, *found.path)) for found in _unknown(box, spec))


def _unknown(box: Manifest, spec: Manifest) -> Iterator[RefusedValue]:
    """Yield the volumes and devices that a container refers to, although its pod does not define them."""
    for source, entries, verb, what in (
        (box, "volumeMounts", "mounts the volume", "volumes"),
        (box, "volumeDevices", "uses the volume", "volumes"),
        (map_at(box, "resources"), "claims", "uses the claim", "resourceClaims"),
    ):
        known = {str(entry.get("name")) for entry in items(spec, what)}
        for entry in items(source, entries):
            if entry.get("name") and str(entry["name"]) not in known:
                message = f"container {box.get('name')} {verb} {entry['name']}, which the pod does not have"
                yield RefusedValue((entries,), message, f"add it to {what} of the pod")


def _object(value: Manifest, type_: str, path: tuple[str, ...], location: str) -> Iterator[RefusedValue]:
    """Yield what is wrong with an object of a type. `location` is the path of the object as text, with positions in lists.
    Unknown fields are not reported, because other rules report them.
    """
    for name, form in pod_fields.field_forms(type_).items():
        if (inner := value.get(name)) is not None:
            at = f"{location}.{name}" if location else name
            field = (type_, name)
            found = [*_entries(inner, field, (*path, name), at)]
            if value.get("optional") is True:  # the pod starts without an object of this name
                found = [each for each in found if not each.late]
            yield from found or _value(inner, form, (*path, name), at)
    prefix = f"{location} " if location else "the pod "
    for message, remedy in (*_missing(value, type_), *_ACROSS.get(type_, _nothing)(value)):
        yield RefusedValue(path, f"{prefix}{message}", remedy)


def _entries(value: Any, field: tuple[str, str], path: tuple[str, ...], location: str) -> Iterator[RefusedValue]:
    """Yield the scalars that a field does not accept. The value of the field is a scalar, a list of scalars, or a map of
    labels. `path` and `location` are the path of the field, for findings and as text.
    """
    if field in FORBIDDEN:
        yield RefusedValue(path, f"{location} is given", FORBIDDEN[field])
    elif field in LABELS and isinstance(value, Mapping):
        for key, text in value.items():
            if not LABEL_KEY.matches_whole(str(key)):
                yield RefusedValue(path, f"{location} has the key {as_yaml(key)}", LABEL_KEY.write)
            elif isinstance(text, str) and not LABEL_VALUE.matches_whole(text):
                yield RefusedValue(path, f"{location}.{key} is {as_yaml(text)}", LABEL_VALUE.write)
    elif isinstance(value, list):
        for number, entry in enumerate(value):
            if remedy := _refused(entry, field, pointer=True):
                yield RefusedValue(path, f"{location}[{number}] is {as_yaml(entry)}", remedy, late=field in LATE)
        yield from _equals(value, field, path, location)
    elif not pod_fields.field_forms(field[0])[field[1]].startswith("[]") and (
        remedy := _refused(value, field, pointer=field in POINTERS)
    ):
        yield RefusedValue(path, f"{location} is {as_yaml(value)}", remedy, late=field in LATE)


def _equals(entries: list[Any], field: tuple[str, str], path: tuple[str, ...], location: str) -> Iterator[RefusedValue]:
    """Yield the entries of a list that are equal to an earlier entry, although the entries of this list must differ."""
    seen = set[tuple[str, ...]]()
    for number, entry in enumerate(entries if field in UNIQUE else ()):
        values = tuple(str(entry.get(name)) for name in UNIQUE[field]) if isinstance(entry, Mapping) else ()
        if values and values in seen:
            message = (
                f"{location}[{number}] has the same {' and '.join(UNIQUE[field])} as an entry before it: {', '.join(values)}"
            )
            yield RefusedValue(path, message, "remove one of the two entries, or change it")
        seen.add(values)


def _missing(value: Manifest, type_: str) -> Iterator[tuple[str, str]]:
    """Yield what an object of this type lacks (a required field, or one of several alternatives), with the remedy."""
    for name in REQUIRED.get(type_, ()):
        if value.get(name) in (None, "", []):
            yield f"has no {name}", f"add {name}"
    if (known := ONE_OF.get(type_)) is not None:
        given = [name for name in known if value.get(name) is not None]
        if not given:
            yield f"has none of {', '.join(known)}", "add one of them"
        elif len(given) > 1:
            yield f"has {' and '.join(given)}", "keep one of them"


def _value(value: Any, form: str, path: tuple[str, ...], location: str) -> Iterator[RefusedValue]:
    """Yield what is wrong with a value that must have the form `form`, one of the forms in `pod_fields.field_forms`."""
    if form.startswith("[]") and isinstance(value, list):
        for number, entry in enumerate(value):
            yield from _value(entry, form[2:], path, f"{location}[{number}]")
    elif form.startswith("{}") and isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _value(entry, form[2:], path, f"{location}.{key}")
    elif form[:1].isupper() and isinstance(value, Mapping):
        yield from _object(value, form, path, location)
    elif remedy := correction(value, form):
        yield RefusedValue(path, f"{location} is {as_yaml(value)}", remedy)


def _refused(value: Any, field: tuple[str, str], *, pointer: bool) -> str:
    """Return what to write instead of a scalar that this field does not accept; "" if it is accepted. An empty text is a
    value if `pointer` is true; otherwise it is the same as no value.
    """
    if value == "" and not pointer:
        return ""
    if (known := ALLOWED.get(field)) is not None and value not in known:
        same = [word for word in known if word.lower() == str(value).lower()] or list(known)
        return f"write {', '.join(same[:-1])} or {same[-1]}" if len(same) > 1 else f"write {same[0]}"
    if (bounds := BOUNDS.get(field)) is not None and isinstance(value, int) and not bounds[0] <= value <= bounds[1]:
        octal = " (0644 and 0o644 are octal, 644 is not)" if bounds == MODE else ""
        return f"write a number from {bounds[0]} to {bounds[1]}{octal}"
    grammar = PATTERNS.get(field) or LATE.get(field)
    return grammar.write if grammar is not None and isinstance(value, str) and not grammar.matches_whole(value) else ""


Problems = Iterator[tuple[str, str]]
"""Statements of what is wrong with an object, each with the remedy."""


def _nothing(_: Manifest) -> Problems:
    yield from ()


def _pod(spec: Manifest) -> Problems:
    if spec.get("dnsPolicy") == "None" and not map_at(spec, "dnsConfig").get("nameservers"):
        yield "has the dnsPolicy None and no dnsConfig.nameservers", "add the name servers"
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        yield "has shareProcessNamespace and hostPID", "remove one of the two"
    grace = spec.get("terminationGracePeriodSeconds", 30)
    for box in items(spec, "containers"):
        for hook in ("postStart", "preStop"):
            rest = map_at(box, "lifecycle", hook, "sleep").get("seconds", 0)
            if rest and isinstance(rest, int) and isinstance(grace, int) and not 0 <= rest <= grace:
                message = (
                    f"has terminationGracePeriodSeconds {grace}, but the {hook} hook of container {box.get('name')} sleeps "
                    f"for {rest} s"
                )
                yield message, "raise terminationGracePeriodSeconds, or lower the seconds of the hook"
    for port in _ports(spec) if spec.get("hostNetwork") else ():
        if port.get("hostPort") not in (None, 0, port.get("containerPort")):
            message = (
                f"has hostNetwork, but hostPort {port['hostPort']} differs from containerPort {port.get('containerPort')}"
            )
            yield message, "write the same number"


def _ports(spec: Manifest) -> Iterator[Manifest]:
    for box in items(spec, "containers"):
        yield from items(box, "ports")


def _container(box: Manifest) -> Problems:
    if not box.get("image"):
        yield "has no image", f"write the image, or correct the name of the container {box.get('name')}"
    for probe in ("livenessProbe", "startupProbe"):
        if map_at(box, probe).get("successThreshold", 1) not in (0, 1):
            yield f"has a {probe} with a successThreshold other than 1", "remove the field"
    if (quantity.whole_number(map_at(box, "readinessProbe").get("terminationGracePeriodSeconds", 0)) or 0) > 0:
        yield (
            "has a readinessProbe with terminationGracePeriodSeconds",
            "remove the field: a readinessProbe never stops a container",
        )
    rights = map_at(box, "securityContext")
    privileged = rights.get("privileged") is True
    for mount in items(box, "volumeMounts"):
        if mount.get("mountPropagation") == "Bidirectional" and not privileged:
            yield "mounts a volume with mountPropagation Bidirectional", "add securityContext: {privileged: true}"
        if mount.get("subPath") and mount.get("subPathExpr"):
            yield f"has subPath and subPathExpr for the volume {mount.get('name')}", "keep one of them"
        if mount.get("recursiveReadOnly") in ("IfPossible", "Enabled") and not mount.get("readOnly"):
            yield f"mounts {mount.get('name')} with recursiveReadOnly, but not readOnly", "add readOnly: true"


def _rights(rights: Manifest) -> Problems:
    added = (
        {str(name) for name in rights.get("capabilities", {}).get("add") or ()} if _map(rights, "capabilities") else set()
    )
    if rights.get("allowPrivilegeEscalation") is False:
        if rights.get("privileged") is True:
            yield "has privileged: true and allowPrivilegeEscalation: false", "remove one of the two"
        elif added & {"CAP_SYS_ADMIN"}:
            yield "has the capability CAP_SYS_ADMIN and allowPrivilegeEscalation: false", "remove one of the two"


def _map(value: Manifest, name: str) -> bool:
    return isinstance(value.get(name), Mapping)


def _profile(profile: Manifest) -> Problems:
    local = profile.get("type") == "Localhost"
    if local and not profile.get("localhostProfile"):
        yield "has the type Localhost and no localhostProfile", "add the name of the profile on the node"
    elif not local and profile.get("localhostProfile") is not None:
        yield f"has a localhostProfile and the type {profile.get('type')}", "write type: Localhost"


def _amount(selector: Manifest) -> Problems:
    divisor, name = selector.get("divisor"), str(selector.get("resource", "")).partition(".")[2]
    known = ("1m", "1") if name == "cpu" else ("1", *(f"1{unit}" for unit in ("k", *"MGTPE", *(f"{u}i" for u in "KMGTPE"))))
    if divisor is not None and quantity.canonical_text(divisor) not in ("0", *known):
        yield f"has the divisor {divisor}", f"write {known[0]} or {known[1]}"


def _spread(constraint: Manifest) -> Problems:
    if constraint.get("minDomains") is not None and constraint.get("whenUnsatisfiable") != "DoNotSchedule":
        yield "has minDomains", "write whenUnsatisfiable: DoNotSchedule, or remove minDomains"
    if constraint.get("matchLabelKeys") and constraint.get("labelSelector") is None:
        yield "has matchLabelKeys and no labelSelector", "add the labelSelector"


def _scratch(volume: Manifest) -> Problems:
    if quantity.parse(volume.get("sizeLimit") or 0) < 0:
        yield f"has a sizeLimit of {volume['sizeLimit']}", "write a positive amount"


def _dns(config: Manifest) -> Problems:
    servers = config.get("nameservers")
    if isinstance(servers, list) and len(servers) > 3:
        yield "has more than 3 nameservers", "keep at most 3"


def _variable(item: Manifest) -> Problems:
    if item.get("value") and item.get("valueFrom"):
        yield f"has value and valueFrom for {item.get('name')}", "keep one of them"


def _volume(volume: Manifest) -> Problems:
    sources = sorted(name for name, source in volume.items() if name != "name" and source is not None)
    if len(sources) > 1:
        yield f"(volume {volume.get('name')}) has {' and '.join(sources)}", "keep one of them"


def _toleration(item: Manifest) -> Problems:
    if item.get("operator") == "Exists" and item.get("value"):
        yield f"has the operator Exists and the value {as_yaml(item['value'])}", "remove the value, or write operator: Equal"
    elif isinstance(item.get("value"), str) and not LABEL_VALUE.matches_whole(item["value"]):
        yield f"has the value {as_yaml(item['value'])}", LABEL_VALUE.write
    if not item.get("key") and item.get("operator") != "Exists":
        yield "has no key", "add the key of the taint, or write operator: Exists to tolerate every taint"
    if item.get("tolerationSeconds") is not None and item.get("effect") != "NoExecute":
        yield "has tolerationSeconds", "write effect: NoExecute, or remove tolerationSeconds"


def _expression(item: Manifest) -> Problems:
    operator, values = item.get("operator"), item.get("values")
    if operator in ("In", "NotIn") and not values:
        yield f"has the operator {operator} and no values", "add values, or write operator: Exists"
    elif operator in ("Exists", "DoesNotExist") and values and isinstance(values, list):
        yield f"has the operator {operator} and values", "remove the values, or write operator: In"


def _resources(resources: Manifest) -> Problems:
    limits, requests = map_at(resources, "limits"), map_at(resources, "requests")
    for device, amount in {**requests, **limits}.items():
        if not RESOURCE.matches_whole(str(device)):
            yield f"asks for {as_yaml(device)}", RESOURCE.write
            continue
        number = quantity.parse(amount)
        if number < 0:
            yield f"asks for {amount} of {device}", "write a positive amount"
        elif "/" in device and number.denominator != 1:
            yield f"asks for {amount} of {device}, but a device cannot be divided", "write a whole number"
    for device, amount in requests.items():
        asked, limit = quantity.parse(amount), limits.get(device)
        if "/" in device and asked != quantity.parse(limit or 0):
            remedy = "write the same number for the request and the limit"
            yield f"requests {amount} of {device}, but its limit is {'not given' if limit is None else limit}", remedy
        elif limit is not None and asked > quantity.parse(limit):
            yield f"requests {amount} of {device}, which is more than its limit of {limit}", "raise the limit"


_ACROSS: Mapping[str, Callable[[Manifest], Problems]] = {
    "AppArmorProfile": _profile,
    "Container": _container,
    "EmptyDirVolumeSource": _scratch,
    "PodDNSConfig": _dns,
    "PodSpec": _pod,
    "ResourceFieldSelector": _amount,
    "SeccompProfile": _profile,
    "SecurityContext": _rights,
    "TopologySpreadConstraint": _spread,
    "EnvVar": _variable,
    "Volume": _volume,
    "Toleration": _toleration,
    "NodeSelectorRequirement": _expression,
    "LabelSelectorRequirement": _expression,
    "ResourceRequirements": _resources,
}
"""Maps a type of an object to the check of those fields of the type that depend on each other."""
