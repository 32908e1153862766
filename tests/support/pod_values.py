"""Values of pod specs that an API server accepts, and values that it refuses. They cover every scalar field below a pod
spec, and every table and every check of `lint/pod_values.py`.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ome_operator.api import pod_fields
from ome_operator.lint.pod_tables import ALLOWED, BOUNDS
from tests.support.pod_examples import EXAMPLES, FINE, REFUSED, SPREAD, Json, pod

FILE = Path(__file__).parents[1] / "data/pod_values.yaml"
"""Field -> the values of ASKED that a real API server refuses there. tests/controlplane/test_pod_values.py writes it."""
WRONG: dict[str, Any] = {"string": 1, "integer": "1", "boolean": "true", "quantity": "1 GB"}
"""Form of a scalar -> a value of another form."""
DEPENDING = frozenset({
    ("Toleration", "Lt"), ("Toleration", "Gt"), ("PodSecurityContext", "MountOption"), ("VolumeMount", "Bidirectional"),
    ("SecurityContext", "Unmasked"), ("Probe", 1),
})  # fmt: skip
"""Pairs (type, value) that are not tried alone, because the value needs a newer version than the control plane of the
tests, or another field. FINE and REFUSED of `pod_examples.py` contain some of these values.
"""
TEXTS = (
    "Wrong Value!",
    "",
    "lower",
    "Upper",
    "a/b",
    "../b",
    "a/../b",
    "/abs",
    "a.b",
    "a_b",
    "x" * 64,
    "x" * 300,
    "10.0.0.1",
    "::1",
    "a:b",
    "-a",
    "1",
    "a b",
    "A",
    "-",
    "a--b",
    "a=b",
    "{a}",
    "..a",
)
ASKED: dict[str, tuple[Any, ...]] = {
    "string": TEXTS,
    "": TEXTS,
    "integer": (-(2**31), -1, 0, 1, 65536, 2**31 - 1),
    "quantity": ("-1", "1.5", "0", "1m"),
}
"""Form of a scalar -> the values with which each field of this form is tried."""
ABSENT = "(absent)"
"""Stands for the removal of a field of the smallest valid object."""
NOT_ASKED: dict[str, str] = {
    **dict.fromkeys(
        (
            "AWSElasticBlockStoreVolumeSource",
            "AzureDiskVolumeSource",
            "AzureFileVolumeSource",
            "CephFSVolumeSource",
            "CinderVolumeSource",
            "FCVolumeSource",
            "FlexVolumeSource",
            "FlockerVolumeSource",
            "GCEPersistentDiskVolumeSource",
            "GitRepoVolumeSource",
            "GlusterfsVolumeSource",
            "ISCSIVolumeSource",
            "PhotonPersistentDiskVolumeSource",
            "PortworxVolumeSource",
            "QuobyteVolumeSource",
            "RBDVolumeSource",
            "ScaleIOVolumeSource",
            "StorageOSVolumeSource",
            "VsphereVirtualDiskVolumeSource",
        ),
        "a volume that Kubernetes has removed, or that only storage systems without CSI use",
    ),
    **dict.fromkeys(("ObjectMeta", "OwnerReference", "ManagedFieldsEntry"), "metadata: the operator writes it"),
    "EphemeralContainer": "no template may have one",
    "WindowsSecurityContextOptions": "engines run on Linux",
    **dict.fromkeys(
        (
            "PodSchedulingGroup",
            "EvictionResponder",
            "FileKeySelector",
            "PodCertificateProjection",
            "ClusterTrustBundleProjection",
        ),
        "newer than the control plane of the tests, or switched off in it",
    ),
    **dict.fromkeys(("TypedLocalObjectReference", "TypedObjectReference"), "the source of a volume's data, not of a model"),
    "ImageVolumeSource.pullPolicy": "switched off in the control plane of the tests",
    "PodSpec.overhead": "the admission of RuntimeClass writes it",
    "PodSpec.hostname": "a StatefulSet replaces it by the name of the pod",
    "PodSpec.subdomain": "a StatefulSet replaces it by the name of its Service",
    "VolumeResourceRequirements": "amounts of a volume, not of a pod",
    **dict.fromkeys(
        (
            "SecretVolumeSource.defaultUser",
            "ConfigMapVolumeSource.defaultUser",
            "KeyToPath.user",
            "DownwardAPIVolumeFile.user",
            "ProjectedVolumeSource.defaultUser",
            "DownwardAPIVolumeSource.defaultUser",
            "ServiceAccountTokenProjection.user",
            "EmptyDirVolumeSource.mode",
            "GRPCAction.mode",
            "HTTPGetAction.protocol",
            "VolumeMount.bindMountOptions",
        ),
        "newer than the control plane of the tests",
    ),
}
"""Type, or type and field -> why its values are not sent to an API server."""
_CLAIM: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
MINIMAL: Mapping[str, Json] = {
    "AppArmorProfile": {"type": "RuntimeDefault"},
    "CSIVolumeSource": {"driver": "d.example.com"},
    "ConfigMapEnvSource": {"name": "s"},
    "ConfigMapKeySelector": {"name": "s", "key": "k"},
    "ConfigMapProjection": {"name": "s"},
    "ConfigMapVolumeSource": {"name": "s"},
    "Container": {"name": "main", "image": "engine:1"},
    "ContainerPort": {"containerPort": 80},
    "ContainerResizePolicy": {"resourceName": "cpu", "restartPolicy": "NotRequired"},
    "ContainerRestartRule": {"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}},
    "ContainerRestartRuleOnExitCodes": {"operator": "In", "values": [1]},
    "DownwardAPIVolumeFile": {"path": "p", "fieldRef": {"fieldPath": "metadata.name"}},
    "EnvFromSource": {"secretRef": {"name": "s"}},
    "EnvVar": {"name": "A"},
    "EnvVarSource": {"fieldRef": {"fieldPath": "metadata.name"}},
    "EphemeralVolumeSource": {"volumeClaimTemplate": {"spec": _CLAIM}},
    "ExecAction": {"command": ["a"]},
    "GRPCAction": {"port": 80},
    "HTTPGetAction": {"port": 80},
    "HTTPHeader": {"name": "a", "value": "b"},
    "HostAlias": {"ip": "10.0.0.1", "hostnames": ["a"]},
    "HostPathVolumeSource": {"path": "/x"},
    "ImageVolumeSource": {"reference": "a:1"},
    "KeyToPath": {"key": "k", "path": "p"},
    "LabelSelectorRequirement": {"key": "k", "operator": "Exists"},
    "LifecycleHandler": {"exec": {"command": ["a"]}},
    "LocalObjectReference": {"name": "s"},
    "NFSVolumeSource": {"server": "s", "path": "/p"},
    "NodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Exists"}]}]},
    "NodeSelectorRequirement": {"key": "k", "operator": "Exists"},
    "NodeSelectorTerm": {"matchExpressions": [{"key": "k", "operator": "Exists"}]},
    "ObjectFieldSelector": {"fieldPath": "metadata.name"},
    "PersistentVolumeClaimSpec": _CLAIM,
    "PersistentVolumeClaimTemplate": {"spec": _CLAIM},
    "PersistentVolumeClaimVolumeSource": {"claimName": "c"},
    "PodAffinityTerm": {"topologyKey": "k", "labelSelector": {}},
    "PodDNSConfig": {"nameservers": ["10.0.0.1"]},
    "PodDNSConfigOption": {"name": "ndots"},
    "PodOS": {"name": "linux"},
    "PodReadinessGate": {"conditionType": "a.b/c"},
    "PodResourceClaim": {"name": "g", "resourceClaimName": "c"},
    "PodSchedulingGate": {"name": "a.b/c"},
    "PodSpec": {
        "containers": [{"name": "main", "image": "engine:1"}],
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "block", "persistentVolumeClaim": {"claimName": "c"}}],
        "resourceClaims": [{"name": "g", "resourceClaimName": "c"}],
    },
    "PreferredSchedulingTerm": {"weight": 1, "preference": {"matchExpressions": [{"key": "k", "operator": "Exists"}]}},
    "Probe": {"httpGet": {"port": 80}},
    "ProjectedVolumeSource": {"sources": [{"secret": {"name": "s"}}]},
    "ResourceClaim": {"name": "g"},
    "ResourceFieldSelector": {"resource": "limits.cpu", "containerName": "main"},
    "SeccompProfile": {"type": "RuntimeDefault"},
    "SecretEnvSource": {"name": "s"},
    "SecretKeySelector": {"name": "s", "key": "k"},
    "SecretProjection": {"name": "s"},
    "SecretVolumeSource": {"secretName": "s"},
    "ServiceAccountTokenProjection": {"path": "p"},
    "SleepAction": {"seconds": 1},
    "Sysctl": {"name": "net.a", "value": "1"},
    "TCPSocketAction": {"port": 80},
    "Toleration": {"key": "k", "operator": "Exists"},
    "TopologySpreadConstraint": SPREAD,
    "Volume": {"name": "v"},
    "VolumeDevice": {"name": "block", "devicePath": "/dev/x"},
    "VolumeMount": {"name": "v", "mountPath": "/v", "readOnly": True},
    "VolumeProjection": {"secret": {"name": "s"}},
    "WeightedPodAffinityTerm": {"weight": 1, "podAffinityTerm": {"topologyKey": "k", "labelSelector": {}}},
}  # fmt: skip
"""Type -> the smallest object of this type that an API server accepts; {} for all other types."""
_SOURCES = frozenset(
    {
        "exec",
        "grpc",
        "httpGet",
        "sleep",
        "tcpSocket",
        "configMap",
        "configMapKeyRef",
        "configMapRef",
        "downwardAPI",
        "fieldRef",
        "fileKeyRef",
        "resourceClaimName",
        "resourceClaimTemplateName",
        "resourceFieldRef",
        "secret",
        "secretKeyRef",
        "secretRef",
        "serviceAccountToken",
    }
)
"""Fields that exclude each other: if an object gets one of them, the fields of this set in the smallest valid object are
left out.
"""
_EXTRA: Mapping[tuple[str, Any], Json] = {
    ("dnsPolicy", "None"): {"dnsConfig": {"nameservers": ["10.0.0.1"]}},
    ("operator", "In"): {"values": ["a"]},
    ("operator", "NotIn"): {"values": ["a"]},
    ("operator", "Gt"): {"values": ["1"]},
    ("operator", "Lt"): {"values": ["1"]},
    ("type", "Localhost"): {"localhostProfile": "a"},
}
"""(field, value) -> the fields that an object needs beside this value."""


class Case(NamedTuple):
    """A pod spec, and whether an API server refuses it."""

    what: str
    spec: Json
    refused: bool


def cases() -> Iterator[Case]:
    """Yield pods, each with whether an API server refuses it."""
    yield Case("the smallest pod", pod(), False)
    yield from _forms()
    answers = refused_values()
    yield from (Case(what, spec, value in answers[field]) for field, value, what, spec in asked())
    for (type_, field), known in ALLOWED.items():
        for value in (*known, "wrong", known[0].lower()):
            if (type_, value) not in DEPENDING and f"{type_}.{field}" not in NOT_ASKED:
                yield Case(f"{type_}.{field} {value}", pod_spec_with(type_, field, value), value not in known)
    for (type_, field), (least, most) in BOUNDS.items():
        for value in (least, least - 1, *([] if most > 2**31 else [most, most + 1])):
            if (type_, value) not in DEPENDING:
                yield Case(f"{type_}.{field} {value}", pod_spec_with(type_, field, value), not least <= value <= most)
    for (type_, field), sides in EXAMPLES.items():
        for refused, values in zip((False, True), sides, strict=True):
            yield from (Case(f"{type_}.{field} {value}", pod_spec_of(type_, field, value), refused) for value in values)
    for refused, specs in ((False, FINE), (True, REFUSED)):
        yield from (Case(what, spec, refused) for what, spec in specs.items())


def refused_values() -> dict[str, list[Any]]:
    """Return the content of FILE: name of a field -> the values that a real API server refused there."""
    found: dict[str, list[Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return found


def asked() -> Iterator[tuple[str, Any, str, Json]]:
    """Yield (name of a field, value, description, pod with this value) for each value whose answer from a real API server is
    in FILE.
    """
    for type_ in (pod_fields.POD, *holders()):
        for field, form in pod_fields.field_forms(type_).items():
            name, bare = f"{type_}.{field}", form.lstrip("[]{}")
            if bare in ASKED and type_ not in NOT_ASKED and name not in NOT_ASKED:
                for value in ASKED[bare]:
                    yield name, value, f"{name} {value}", pod_spec_with(type_, field, value)
                if field in MINIMAL.get(type_, {}):
                    yield name, ABSENT, f"no {name}", pod_spec_of(type_, field, None)


@cache
def holders() -> dict[str, tuple[str, str, bool]]:
    """Return, for each type below a pod spec, where an object of this type can stand: the type that contains it, the name of
    the field there, and whether this field is a list.
    """
    found: dict[str, tuple[str, str, bool]] = {}
    left = [pod_fields.POD]
    while left:
        outer = left.pop(0)
        for field, form in pod_fields.field_forms(outer).items():
            bare = form.lstrip("[]{}")
            if (
                bare[:1].isupper()
                and bare not in found
                and field not in ("ephemeralContainers", "livenessProbe", "resources")
            ):
                found[bare] = (outer, field, form.startswith("[]"))
                left.append(bare)
            elif field == "resources" and outer == "Container":
                found[bare] = (outer, field, False)
                left.append(bare)
    return found


def pod_spec_with(type_: str, field: str, value: Any) -> Json:
    """Return a pod spec that is valid except for this value of the field, which is put into a list or map if the field is
    one.
    """
    form = pod_fields.field_forms(type_)[field]
    return pod_spec_of(type_, field, [value] if form.startswith("[]") else {"k": value} if form.startswith("{}") else value)


def pod_spec_of(type_: str, field: str, value: Any) -> Json:
    """Return a pod spec that is valid except for this value of a field."""
    return _nested(type_, {field: value, **(_EXTRA.get((field, value), {}) if isinstance(value, str) else {})})


def _nested(type_: str, own: Json) -> Json:
    """Return the smallest valid pod spec with these fields in an object of a type."""
    while type_ != pod_fields.POD:
        own = _merged(type_, own)
        outer, field, many = holders()[type_]
        type_, own = outer, {field: [own] if many else own}
    spec = _merged(type_, own)
    there = {volume.get("name") for volume in spec.get("volumes") or () if isinstance(volume, dict)}
    if isinstance(spec.get("volumes"), list):
        spec["volumes"] = [*spec["volumes"], *(each for each in MINIMAL["PodSpec"]["volumes"] if each["name"] not in there)]
    return spec


def _merged(type_: str, own: Json) -> Json:
    least = {
        name: value for name, value in MINIMAL.get(type_, {}).items() if not (name in _SOURCES and own.keys() & _SOURCES)
    }
    return {**least, **own}


def _forms() -> Iterator[Case]:
    """Yield, for each field of each type below a pod spec, a value of another form, such as a text in place of a number."""
    for type_ in (pod_fields.POD, *holders()):
        for field, form in pod_fields.field_forms(type_).items():
            bare, many = form.removeprefix("[]").removeprefix("{}"), form.startswith("[]")
            wrong = {"a": WRONG[bare]} if form.startswith("{}") else WRONG.get(bare, "text")
            if form:
                yield Case(f"{type_}.{field} of another form", pod_spec_of(type_, field, [wrong] if many else wrong), True)
            if many or form.startswith("{}"):
                yield Case(f"{type_}.{field} as text", pod_spec_of(type_, field, "text"), True)
