"""Single pods and values that an API server accepts, and others that it refuses."""

from typing import Any

Json = dict[str, Any]
SPREAD: Json = {"maxSkew": 1, "topologyKey": "k", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
"""The smallest constraint that spreads pods."""
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


def pod(box: Json | None = None, **spec: Any) -> Json:
    """Return a valid pod spec. Its container has the fields `box`, and the pod spec itself the other fields."""
    return {"containers": [{"name": "main", "image": "engine:1", **(box or {})}], **spec}


def _affinity(kind: str, required: Any) -> Json:
    return pod(affinity={kind: {"requiredDuringSchedulingIgnoredDuringExecution": required}})


def _spread(**own: Any) -> Json:
    return pod(topologySpreadConstraints=[{**SPREAD, **own}])


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
    "two equal spreads": pod(topologySpreadConstraints=[SPREAD, SPREAD]),
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
