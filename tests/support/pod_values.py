"""Values of pod specs that an API server accepts, and values that it refuses: for every scalar field below a pod spec, every
table and every check of `lint/pod_values.py`.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ome_operator.api import pod_fields
from ome_operator.lint.pod_tables import ALLOWED, BOUNDS

Json = dict[str, Any]
FILE = Path(__file__).parents[1] / "data/pod_values.yaml"
"""Field -> the values of ASKED that a real API server refuses there. tests/controlplane/test_pod_values.py writes it."""
WRONG: dict[str, Any] = {"string": 1, "integer": "1", "boolean": "true", "quantity": "1 GB"}
"""Form of a scalar -> a value of another form."""
DEPENDING = frozenset({
    ("Toleration", "Lt"), ("Toleration", "Gt"), ("PodSecurityContext", "MountOption"), ("VolumeMount", "Bidirectional"),
    ("SecurityContext", "Unmasked"), ("Probe", 1),
})  # fmt: skip
"""(type, value): needs a newer version than the control plane of the tests, or another field; FINE and REFUSED have some."""
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
"""Stands for a field that the smallest valid object has, and that is removed."""
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
"""Type, or type and field -> why its values are not asked about."""
_CLAIM: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
_SPREAD: Json = {"maxSkew": 1, "topologyKey": "k", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
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
    "TopologySpreadConstraint": _SPREAD,
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
"""Fields of which an object has one: a new one replaces that of the smallest object."""
_EXTRA: Mapping[tuple[str, Any], Json] = {
    ("dnsPolicy", "None"): {"dnsConfig": {"nameservers": ["10.0.0.1"]}},
    ("operator", "In"): {"values": ["a"]},
    ("operator", "NotIn"): {"values": ["a"]},
    ("operator", "Gt"): {"values": ["1"]},
    ("operator", "Lt"): {"values": ["1"]},
    ("type", "Localhost"): {"localhostProfile": "a"},
}
"""(field, value) -> the fields that an object needs beside this value."""
EXAMPLES: dict[tuple[str, str], tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    ("ObjectFieldSelector", "fieldPath"): (
        ("metadata.name", "metadata.uid", "metadata.labels['a']", "spec.nodeName", "status.hostIP", "status.podIPs"),
        ("status.podip", "spec.nodename", "metadata.creationTimestamp", "podIP"),
    ),
    ("EnvVar", "name"): (("A", "a.b-c", "1A", "A B"), ("A=B", "Ä")),
    ("ContainerPort", "name"): (("http", "a-1", "1-a"), ("HTTP", "a--b", "1", "a" * 16)),
    ("HTTPGetAction", "port"): (("http", 8080), ("8080", 0)),
    ("PodSpec", "nodeSelector"): (({"a.b/c": "D_e"}, {"a": ""}), ({"a": "b c"}, {"a b": "c"}, {"a": "x" * 64}, {"": "a"})),
    ("ResourceRequirements", "limits"): (
        ({"nvidia.com/gpu": 8}, {"cpu": "1m"}), ({"gpu": 8}, {"GPU": 8}, {"memory": "-1Gi"}, {"nvidia.com/gpu": "1.5"}),
    ),
    ("SecretVolumeSource", "defaultMode"): ((0o644, 0), (644, -1)),
    ("PodDNSConfig", "nameservers"): ((["10.0.0.1"] * 3,), (["10.0.0.1"] * 4,)),
}  # fmt: skip
"""Field -> more values that the API server accepts, and more that it refuses."""


class Case(NamedTuple):
    """A pod spec, and whether an API server refuses it."""

    what: str
    spec: Json
    refused: bool


def pod(box: Json | None = None, **spec: Any) -> Json:
    """Return a valid pod spec with these fields in its container and in itself."""
    return {"containers": [{"name": "main", "image": "engine:1", **(box or {})}], **spec}


def cases() -> Iterator[Case]:
    """Yield all cases."""
    yield Case("the smallest pod", pod(), False)
    yield from _forms()
    answers = told()
    yield from (Case(what, spec, value in answers[field]) for field, value, what, spec in asked())
    for (type_, field), known in ALLOWED.items():
        for value in (*known, "wrong", known[0].lower()):
            if (type_, value) not in DEPENDING and f"{type_}.{field}" not in NOT_ASKED:
                yield Case(f"{type_}.{field} {value}", put(type_, field, value), value not in known)
    for (type_, field), (least, most) in BOUNDS.items():
        for value in (least, least - 1, *([] if most > 2**31 else [most, most + 1])):
            if (type_, value) not in DEPENDING:
                yield Case(f"{type_}.{field} {value}", put(type_, field, value), not least <= value <= most)
    for (type_, field), sides in EXAMPLES.items():
        for refused, values in zip((False, True), sides, strict=True):
            yield from (Case(f"{type_}.{field} {value}", placed(type_, field, value), refused) for value in values)
    for refused, specs in ((False, FINE), (True, REFUSED)):
        yield from (Case(what, spec, refused) for what, spec in specs.items())


def told() -> dict[str, list[Any]]:
    """Return what FILE contains."""
    found: dict[str, list[Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return found


def asked() -> Iterator[tuple[str, Any, str, Json]]:
    """Yield the questions whose answers FILE contains: the field, the value, a description and a pod with this value."""
    for type_ in (pod_fields.POD, *holders()):
        for field, form in pod_fields.forms(type_).items():
            name, bare = f"{type_}.{field}", form.lstrip("[]{}")
            if bare in ASKED and type_ not in NOT_ASKED and name not in NOT_ASKED:
                for value in ASKED[bare]:
                    yield name, value, f"{name} {value}", put(type_, field, value)
                if field in MINIMAL.get(type_, {}):
                    yield name, ABSENT, f"no {name}", placed(type_, field, None)


@cache
def holders() -> dict[str, tuple[str, str, bool]]:
    """Return for each type below a pod spec a type that has a field of it, the field, and whether the field is a list."""
    found: dict[str, tuple[str, str, bool]] = {}
    left = [pod_fields.POD]
    while left:
        outer = left.pop(0)
        for field, form in pod_fields.forms(outer).items():
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


def put(type_: str, field: str, value: Any) -> Json:
    """Return a pod spec that is valid but for this value, in a list or map if the field is one."""
    form = pod_fields.forms(type_)[field]
    return placed(type_, field, [value] if form.startswith("[]") else {"k": value} if form.startswith("{}") else value)


def placed(type_: str, field: str, value: Any) -> Json:
    """Return a pod spec that is valid but for this value of a field."""
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
    """Yield a value of another form for each field of each type below a pod spec."""
    for type_ in (pod_fields.POD, *holders()):
        for field, form in pod_fields.forms(type_).items():
            bare, many = form.removeprefix("[]").removeprefix("{}"), form.startswith("[]")
            wrong = {"a": WRONG[bare]} if form.startswith("{}") else WRONG.get(bare, "text")
            if form:
                yield Case(f"{type_}.{field} of another form", placed(type_, field, [wrong] if many else wrong), True)
            if many or form.startswith("{}"):
                yield Case(f"{type_}.{field} as text", placed(type_, field, "text"), True)


def _affinity(kind: str, required: Any) -> Json:
    return pod(affinity={kind: {"requiredDuringSchedulingIgnoredDuringExecution": required}})


def _spread(**own: Any) -> Json:
    return pod(topologySpreadConstraints=[{**_SPREAD, **own}])


def _sizes(limits: Json, requests: Json) -> Json:
    return pod({"resources": {"limits": limits, "requests": requests}})


GPU = "nvidia.com/gpu"
FINE: dict[str, Json] = {
    "empty values": pod(
        volumes=[{"name": "v", "hostPath": {"path": "/x", "type": ""}}],
        tolerations=[{"key": "k", "operator": "", "effect": ""}],
    ),
    "a volume without source": pod(volumes=[{"name": "v"}]),
    "every taint": pod(tolerations=[{"operator": "Exists"}]),
    "value of a taint": pod(tolerations=[{"key": "k", "operator": "Equal", "value": "v"}, {"key": "k", "value": "w"}]),
    "mount": pod({"volumeMounts": [{"name": "v", "mountPath": "v"}]}, volumes=[{"name": "v", "emptyDir": {}}]),
    "an empty value beside valueFrom": pod(
        {"env": [{"name": "A", "value": "", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]}
    ),
    "amounts": _sizes({GPU: 8, "memory": "10Gi", "cpu": 1.5}, {GPU: "8", "memory": "9Gi", "cpu": "1500m"}),
    "a limit alone": _sizes({GPU: 8}, {"memory": "10Gi"}),
    "a sleep that fits": pod({"lifecycle": {"preStop": {"sleep": {"seconds": 60}}}}, terminationGracePeriodSeconds=60),
    "one path of two volumes in two containers": {
        "containers": [{"name": name, "image": "a", "volumeMounts": [{"name": "v", "mountPath": "/v"}]} for name in "ab"],
        "volumes": [{"name": "v", "emptyDir": {}}],
    },
    "the same host port": pod({"ports": [{"containerPort": 80, "hostPort": 80}]}, hostNetwork=True),
    "SYS_ADMIN without escalation": pod(
        {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}, "allowPrivilegeEscalation": False}}
    ),
    "Bidirectional with privileges": pod(
        {
            "volumeMounts": [{"name": "v", "mountPath": "/v", "mountPropagation": "Bidirectional"}],
            "securityContext": {"privileged": True},
        },
        volumes=[{"name": "v", "emptyDir": {}}],
    ),
    "a liveness probe with a grace period": pod(
        {"livenessProbe": {"httpGet": {"port": 80}, "terminationGracePeriodSeconds": 1}}
    ),
    "divisors": pod(
        {
            "env": [
                {"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Gi"}}},
                {"name": "B", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
            ]
        }
    ),
    "a port by name": pod(
        {"readinessProbe": {"httpGet": {"port": "http"}}, "ports": [{"name": "http", "containerPort": 80}]}
    ),
}
"""Pod specs that an API server accepts."""
REFUSED: dict[str, Json] = {
    "no image": {"containers": [{"name": "main"}]},
    "value and valueFrom": pod(
        {"env": [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]}
    ),
    "two sources": pod(volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}]),
    "no volume": pod({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}),
    "no volume of an init container": pod(
        initContainers=[{"name": "a", "image": "a:1", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]
    ),
    "Exists with a value": pod(tolerations=[{"key": "k", "operator": "Exists", "value": "v"}]),
    "a toleration without key": pod(tolerations=[{"operator": "Equal", "value": "v"}]),
    "In without values": _affinity(
        "nodeAffinity", {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "In"}]}]}
    ),
    "Exists with values": _spread(labelSelector={"matchExpressions": [{"key": "k", "operator": "Exists", "values": ["a"]}]}),
    "negative": _sizes({GPU: -4}, {}),
    "half a GPU": _sizes({GPU: "500m"}, {}),
    "request above limit": _sizes({"memory": "10Gi"}, {"memory": "20Gi"}),
    "request of a device without limit": _sizes({}, {GPU: 4}),
    "two volumes of one name": pod(volumes=[{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]),
    "two containers of one name": {"containers": [{"name": "a", "image": "a"}, {"name": "a", "image": "a"}]},
    "two init containers of one name": pod(initContainers=[{"name": "a", "image": "a"}, {"name": "a", "image": "a"}]),
    "two mounts at one path": pod(
        {"volumeMounts": [{"name": "v", "mountPath": "/v"}, {"name": "v", "mountPath": "/v"}]},
        volumes=[{"name": "v", "emptyDir": {}}],
    ),
    "two equal spreads": pod(topologySpreadConstraints=[_SPREAD, _SPREAD]),
    "a probe of two sorts": pod({"readinessProbe": {"httpGet": {"port": 80}, "tcpSocket": {"port": 80}}}),
    "a probe of no sort": pod({"readinessProbe": {"periodSeconds": 5}}),
    "a variable from two sources": pod(
        {
            "env": [
                {
                    "name": "A",
                    "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}, "secretKeyRef": {"name": "a", "key": "b"}},
                }
            ]
        }
    ),
    "a variable from no source": pod({"env": [{"name": "A", "valueFrom": {}}]}),
    "no terms": _affinity("nodeAffinity", {"nodeSelectorTerms": []}),
    "liveness that succeeds twice": pod({"livenessProbe": {"httpGet": {"port": 80}, "successThreshold": 2}}),
    "start that succeeds twice": pod({"startupProbe": {"httpGet": {"port": 80}, "successThreshold": 2}}),
    "readiness with a grace period": pod({"readinessProbe": {"httpGet": {"port": 80}, "terminationGracePeriodSeconds": 9}}),
    "Bidirectional without privileges": pod(
        {"volumeMounts": [{"name": "v", "mountPath": "/v", "mountPropagation": "Bidirectional"}]},
        volumes=[{"name": "v", "emptyDir": {}}],
    ),
    "subPath and subPathExpr": pod(
        {"volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "a", "subPathExpr": "b"}]},
        volumes=[{"name": "v", "emptyDir": {}}],
    ),
    "recursiveReadOnly alone": pod(
        {"volumeMounts": [{"name": "v", "mountPath": "/v", "recursiveReadOnly": "Enabled"}]},
        volumes=[{"name": "v", "emptyDir": {}}],
    ),
    "privileged without escalation": pod({"securityContext": {"privileged": True, "allowPrivilegeEscalation": False}}),
    "CAP_SYS_ADMIN without escalation": pod(
        {"securityContext": {"capabilities": {"add": ["CAP_SYS_ADMIN"]}, "allowPrivilegeEscalation": False}}
    ),
    "a local profile without name": pod({"securityContext": {"seccompProfile": {"type": "Localhost"}}}),
    "tolerationSeconds of another effect": pod(
        tolerations=[{"key": "k", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}]
    ),
    "value of a toleration": pod(tolerations=[{"key": "k", "operator": "Equal", "value": "a b"}]),
    "minDomains with ScheduleAnyway": _spread(minDomains=2, whenUnsatisfiable="ScheduleAnyway"),
    "matchLabelKeys without selector": _spread(matchLabelKeys=["a"], labelSelector=None),
    "dnsPolicy None without servers": pod(dnsPolicy="None"),
    "two ways to share processes": pod(shareProcessNamespace=True, hostPID=True),
    "a preStop that is cut off": pod({"lifecycle": {"preStop": {"sleep": {"seconds": 31}}}}),
    "a host port that differs": pod({"ports": [{"containerPort": 80, "hostPort": 81}]}, hostNetwork=True),
    "a divisor of half": pod(
        {"env": [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "500"}}}]}
    ),
    "a claim that the pod does not have": pod({"resources": {"claims": [{"name": "g"}]}}),
    "a device that the pod does not have": pod({"volumeDevices": [{"name": "v", "devicePath": "/x"}]}),
    "a deadline": pod(activeDeadlineSeconds=60),
    "ephemeral containers": pod(ephemeralContainers=[{"name": "a", "image": "a"}]),
    "request of a device differs": _sizes({GPU: 8}, {GPU: 4}),
}
"""Pod specs that an API server refuses."""
