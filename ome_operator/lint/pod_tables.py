"""Tables of what the API server and the nodes accept in the fields of a pod: sets of permitted words, patterns of texts,
bounds of numbers, and required fields. A field is named by its type and its name, as in `api/pod_fields.py`.

`tests/controlplane/test_pod_values.py` asks a real API server about every scalar field below a pod spec.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

ALLOWED: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("AppArmorProfile", "type"): ("RuntimeDefault", "Unconfined", "Localhost"),
    ("Container", "imagePullPolicy"): ("Always", "IfNotPresent", "Never"),
    ("Container", "terminationMessagePolicy"): ("File", "FallbackToLogsOnError"),
    ("ContainerPort", "protocol"): ("TCP", "UDP", "SCTP"),
    ("ContainerResizePolicy", "resourceName"): ("cpu", "memory"),
    ("ContainerResizePolicy", "restartPolicy"): ("NotRequired", "RestartContainer"),
    ("HTTPGetAction", "scheme"): ("HTTP", "HTTPS"),
    ("HostPathVolumeSource", "type"): (
        "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice",
    ),
    ("ImageVolumeSource", "pullPolicy"): ("Always", "IfNotPresent", "Never"),
    ("LabelSelectorRequirement", "operator"): ("In", "NotIn", "Exists", "DoesNotExist"),
    ("NodeSelectorRequirement", "operator"): ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
    ("PersistentVolumeClaimSpec", "accessModes"): (
        "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod",
    ),
    ("PersistentVolumeClaimSpec", "volumeMode"): ("Filesystem", "Block"),
    ("PodOS", "name"): ("linux", "windows"),
    ("PodSecurityContext", "fsGroupChangePolicy"): ("Always", "OnRootMismatch"),
    ("PodSecurityContext", "seLinuxChangePolicy"): ("Recursive", "MountOption"),
    ("PodSecurityContext", "supplementalGroupsPolicy"): ("Merge", "Strict"),
    ("PodSpec", "dnsPolicy"): ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
    ("PodSpec", "preemptionPolicy"): ("PreemptLowerPriority", "Never"),
    ("PodSpec", "restartPolicy"): ("Always",),
    ("ResourceFieldSelector", "resource"): tuple(
        f"{side}.{name}" for side in ("limits", "requests") for name in ("cpu", "memory", "ephemeral-storage")
    ),
    ("SeccompProfile", "type"): ("RuntimeDefault", "Unconfined", "Localhost"),
    ("SecurityContext", "procMount"): ("Default", "Unmasked"),
    ("Toleration", "effect"): ("NoSchedule", "PreferNoSchedule", "NoExecute"),
    ("Toleration", "operator"): ("Exists", "Equal", "Lt", "Gt"),
    ("TopologySpreadConstraint", "nodeAffinityPolicy"): ("Honor", "Ignore"),
    ("TopologySpreadConstraint", "nodeTaintsPolicy"): ("Honor", "Ignore"),
    ("TopologySpreadConstraint", "whenUnsatisfiable"): ("DoNotSchedule", "ScheduleAnyway"),
    ("VolumeMount", "mountPropagation"): ("None", "HostToContainer", "Bidirectional"),
    ("VolumeMount", "recursiveReadOnly"): ("Disabled", "IfPossible", "Enabled"),
}  # fmt: skip
"""Maps (type, field) to the values that the API server accepts in a pod of a StatefulSet or Deployment. Some values need a
newer version of Kubernetes than the oldest supported one, such as the operators Lt and Gt of tolerations (1.35)."""


class Grammar(NamedTuple):
    """The form that a text must have."""

    pattern: str
    """A regular expression for the whole text."""
    write: str
    """An instruction for the user: what to write instead of a text that does not have this form."""

    def matches_whole(self, text: str) -> bool:
        """Return whether the whole text has the form of this grammar."""
        return re.fullmatch(self.pattern, text, re.DOTALL) is not None


_CAPABILITIES = (
    "AUDIT_CONTROL|AUDIT_READ|AUDIT_WRITE|BLOCK_SUSPEND|BPF|CHECKPOINT_RESTORE|CHOWN|DAC_OVERRIDE|DAC_READ_SEARCH|FOWNER|FSETID"
    "|IPC_LOCK|IPC_OWNER|KILL|LEASE|LINUX_IMMUTABLE|MAC_ADMIN|MAC_OVERRIDE|MKNOD|NET_ADMIN|NET_BIND_SERVICE|NET_BROADCAST"
    "|NET_RAW|PERFMON|SETFCAP|SETGID|SETPCAP|SETUID|SYSLOG|SYS_ADMIN|SYS_BOOT|SYS_CHROOT|SYS_MODULE|SYS_NICE|SYS_PACCT"
    "|SYS_PTRACE|SYS_RAWIO|SYS_RESOURCE|SYS_TIME|SYS_TTY_CONFIG|WAKE_ALARM"
)
"""The capabilities of Linux 6."""
_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_DOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_WORD = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_BYTE = r"(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_UP = r"(?!(.*/)?\.\.(/|$))"
"""Beginning of a pattern that does not match a path with the element `..`."""
NAME = Grammar(_LABEL, "write at most 63 lowercase letters, digits and '-'")
OBJECT = Grammar(rf"(?=.{{1,253}}$){_DOMAIN}", "write the name of an object: lowercase letters, digits, '-' and '.'")
LABEL_KEY = Grammar(
    rf"((?=[^/]{{1,253}}/){_DOMAIN}/)?{_WORD}",
    "write the key of a label, such as example.com/pool: letters, digits, '-', '_', '.'",
)
LABEL_VALUE = Grammar(
    rf"({_WORD})?", "write at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends"
)
VARIABLE = Grammar(r"[ -<>-~]+", "write printable ASCII characters without =")
KEY_OF_DATA = Grammar(r"(?=.{1,253}$)(?!\.\.)(?!\.$)[-._a-zA-Z0-9]+", "write the key: letters, digits, '-', '_' and '.'")
PORT_NAME = Grammar(
    r"(?!.*--)(?=.*[a-z])[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?", "write at most 15 lowercase letters, digits and '-'"
)
PORT = Grammar(PORT_NAME.pattern, "write the number of the port without quotes, or the name of a port of the container")
BELOW = Grammar(rf"(?!/)(?!\.\.){_UP}.*", "write a relative path without '..'")
SUB_PATH = Grammar(rf"(?!/){_UP}.*", BELOW.write)
IP = Grammar(rf"{_BYTE}(\.{_BYTE}){{3}}|(?=.*:.*:)[0-9a-fA-F:.]+", "write an IP address")
RESOURCE = Grammar(
    rf"cpu|memory|ephemeral-storage|hugepages-[0-9].*|{_DOMAIN}/{_WORD}",
    "write cpu, memory, ephemeral-storage, or the full name of a device, such as nvidia.com/gpu",
)
IMAGE = Grammar(
    r"(?![0-9a-f]{64}$)(?!.{400})"
    r"(([a-zA-Z0-9-]+(\.[a-zA-Z0-9-]+)+(:[0-9]+)?|[a-zA-Z0-9-]+:[0-9]+|\[[0-9a-fA-F:]+\](:[0-9]+)?)/)?"
    r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*"
    r"(:\w[\w.-]{0,127})?(@[A-Za-z][A-Za-z0-9]*([-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?",
    "write HOST/REPOSITORY:TAG without blanks, with lowercase letters in the repository",
)
"""The grammar of github.com/distribution/reference, which Kubernetes uses to parse images, with one difference. The
original grammar takes a first part with uppercase letters for the name of a registry, even if this part has neither a dot
nor a port. This grammar rejects such a part, because no registry has such a name, and users write uppercase letters by
mistake."""
PATTERNS: Mapping[tuple[str, str], Grammar] = {
    ("CSIVolumeSource", "driver"): Grammar(
        r"(?=.{1,63}$)[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*",
        "write the name of the driver, such as csi.example.com",
    ),
    ("ConfigMapEnvSource", "name"): OBJECT,
    ("ConfigMapKeySelector", "key"): KEY_OF_DATA,
    ("ConfigMapKeySelector", "name"): OBJECT,
    ("Container", "name"): NAME,
    ("ContainerPort", "name"): PORT_NAME,
    ("DownwardAPIVolumeFile", "path"): BELOW,
    ("EnvFromSource", "prefix"): VARIABLE,
    ("EnvVar", "name"): VARIABLE,
    ("HTTPGetAction", "port"): PORT,
    ("HTTPHeader", "name"): Grammar(r"[-A-Za-z0-9]+", "write letters, digits and '-'"),
    ("HostAlias", "hostnames"): OBJECT,
    ("HostAlias", "ip"): IP,
    ("HostPathVolumeSource", "path"): Grammar(rf"{_UP}.*", "write a path without '..'"),
    ("KeyToPath", "path"): BELOW,
    ("LabelSelectorRequirement", "key"): LABEL_KEY,
    ("NFSVolumeSource", "path"): Grammar(r"/.*", "write an absolute path"),
    ("NodeSelectorRequirement", "key"): LABEL_KEY,
    ("ObjectFieldSelector", "apiVersion"): Grammar("v1", "remove the field, or write v1"),
    ("ObjectFieldSelector", "fieldPath"): Grammar(
        r"metadata\.(name|namespace|uid|labels(\['.+'\])?|annotations(\['.+'\])?)|spec\.(nodeName|serviceAccountName)"
        r"|status\.(hostIP|hostIPs|podIP|podIPs)",
        "write a field such as metadata.name, metadata.labels['KEY'], spec.nodeName or status.podIP",
    ),
    ("PersistentVolumeClaimSpec", "storageClassName"): OBJECT,
    ("PersistentVolumeClaimSpec", "volumeAttributesClassName"): OBJECT,
    ("PodAffinityTerm", "matchLabelKeys"): LABEL_KEY,
    ("PodAffinityTerm", "mismatchLabelKeys"): LABEL_KEY,
    ("PodAffinityTerm", "namespaces"): NAME,
    ("PodAffinityTerm", "topologyKey"): LABEL_KEY,
    ("PodDNSConfig", "nameservers"): IP,
    ("PodDNSConfig", "searches"): Grammar(
        r"(?=.{1,255}$)[a-z0-9_]([-_a-z0-9]*[a-z0-9_])?(\.[a-z0-9_]([-_a-z0-9]*[a-z0-9_])?)*\.?|\.", "write a domain"
    ),
    ("PodReadinessGate", "conditionType"): LABEL_KEY,
    ("PodResourceClaim", "name"): NAME,
    ("PodResourceClaim", "resourceClaimName"): OBJECT,
    ("PodResourceClaim", "resourceClaimTemplateName"): OBJECT,
    ("PodSchedulingGate", "name"): LABEL_KEY,
    ("PodSpec", "nodeName"): OBJECT,
    ("PodSpec", "priorityClassName"): OBJECT,
    ("PodSpec", "runtimeClassName"): OBJECT,
    ("PodSpec", "serviceAccount"): OBJECT,
    ("PodSpec", "serviceAccountName"): OBJECT,
    ("ResourceClaim", "request"): NAME,
    ("SecretEnvSource", "name"): OBJECT,
    ("SecretKeySelector", "key"): KEY_OF_DATA,
    ("SecretKeySelector", "name"): OBJECT,
    ("ServiceAccountTokenProjection", "path"): BELOW,
    ("Sysctl", "name"): Grammar(
        r"(?=.{1,253}$)[a-z0-9]([-_a-z0-9]*[a-z0-9])?([./][a-z0-9]([-_a-z0-9]*[a-z0-9])?)*",
        "write a name such as net.ipv4.NAME",
    ),
    ("TCPSocketAction", "port"): PORT,
    ("Toleration", "key"): LABEL_KEY,
    ("TopologySpreadConstraint", "matchLabelKeys"): LABEL_KEY,
    ("Volume", "name"): NAME,
    ("VolumeDevice", "devicePath"): Grammar(rf"{_UP}.*", "write a path without '..'"),
    ("VolumeMount", "subPath"): SUB_PATH,
    ("VolumeMount", "subPathExpr"): SUB_PATH,
}
"""Maps (type, field) to the form of the values that the API server accepts. In a list, each entry must have this form."""
LATE: Mapping[tuple[str, str], Grammar] = {
    ("Capabilities", "add"): Grammar(rf"(?i)(CAP_)?({_CAPABILITIES})|ALL", "write a capability of Linux, such as IPC_LOCK"),
    ("ConfigMapProjection", "name"): OBJECT,
    ("ConfigMapVolumeSource", "name"): OBJECT,
    ("Container", "image"): IMAGE,
    ("Container", "workingDir"): Grammar(r"/.*", "write an absolute path"),
    ("EmptyDirVolumeSource", "medium"): Grammar(
        r"Memory|HugePages(-[0-9]+([KMG]i)?)?", "write Memory, or remove the field to use the disk of the node"
    ),
    ("ImageVolumeSource", "reference"): IMAGE,
    ("PersistentVolumeClaimVolumeSource", "claimName"): OBJECT,
    ("SecretProjection", "name"): OBJECT,
    ("SecretVolumeSource", "secretName"): OBJECT,
    ("TopologySpreadConstraint", "topologyKey"): LABEL_KEY,
}
"""Maps (type, field) to the form of a value that the API server does not check. If the value has another form, the pod is
created but never starts, because the scheduler, the kubelet or the container runtime cannot use the value. For example,
no object, label, medium or image can have such a name."""
LABELS = frozenset({("PodSpec", "nodeSelector"), ("LabelSelector", "matchLabels")})
"""The fields that contain a map of label keys and values."""
_ID, MODE, _PORT, _COUNT = (0, 2**31 - 1), (0, 0o777), (1, 65535), (0, 2**31 - 1)
BOUNDS: Mapping[tuple[str, str], tuple[int, int]] = {
    ("ConfigMapVolumeSource", "defaultMode"): MODE,
    ("ContainerPort", "containerPort"): _PORT,
    ("ContainerPort", "hostPort"): (0, 65535),
    ("DownwardAPIVolumeFile", "mode"): MODE,
    ("DownwardAPIVolumeSource", "defaultMode"): MODE,
    ("GRPCAction", "port"): _PORT,
    ("HTTPGetAction", "port"): _PORT,
    ("KeyToPath", "mode"): MODE,
    ("PodSecurityContext", "fsGroup"): _ID,
    ("PodSecurityContext", "runAsGroup"): _ID,
    ("PodSecurityContext", "runAsUser"): _ID,
    ("PodSecurityContext", "supplementalGroups"): _ID,
    ("PreferredSchedulingTerm", "weight"): (1, 100),
    ("Probe", "failureThreshold"): _COUNT,
    ("Probe", "initialDelaySeconds"): _COUNT,
    ("Probe", "periodSeconds"): _COUNT,
    ("Probe", "successThreshold"): _COUNT,
    ("Probe", "terminationGracePeriodSeconds"): (1, 2**63 - 1),
    ("Probe", "timeoutSeconds"): _COUNT,
    ("ProjectedVolumeSource", "defaultMode"): MODE,
    ("SecretVolumeSource", "defaultMode"): MODE,
    ("SecurityContext", "runAsGroup"): _ID,
    ("SecurityContext", "runAsUser"): _ID,
    ("ServiceAccountTokenProjection", "expirationSeconds"): (600, 2**32),
    ("TCPSocketAction", "port"): _PORT,
    ("TopologySpreadConstraint", "maxSkew"): (1, 2**31 - 1),
    ("TopologySpreadConstraint", "minDomains"): (1, 2**31 - 1),
    ("WeightedPodAffinityTerm", "weight"): (1, 100),
}
"""Maps (type, field) to the least and the greatest number that the API server accepts."""
REQUIRED: Mapping[str, tuple[str, ...]] = {
    "AppArmorProfile": ("type",),
    "CSIVolumeSource": ("driver",),
    "ConfigMapEnvSource": ("name",),
    "ConfigMapKeySelector": ("name", "key"),
    "ConfigMapProjection": ("name",),
    "ConfigMapVolumeSource": ("name",),
    "Container": ("name",),
    "ContainerPort": ("containerPort",),
    "ContainerResizePolicy": ("resourceName", "restartPolicy"),
    "DownwardAPIVolumeFile": ("path",),
    "EnvVar": ("name",),
    "ExecAction": ("command",),
    "GRPCAction": ("port",),
    "HTTPGetAction": ("port",),
    "HTTPHeader": ("name",),
    "HostAlias": ("ip",),
    "HostPathVolumeSource": ("path",),
    "KeyToPath": ("key", "path"),
    "LabelSelectorRequirement": ("key", "operator"),
    "NFSVolumeSource": ("server", "path"),
    "NodeSelector": ("nodeSelectorTerms",),
    "NodeSelectorRequirement": ("key", "operator"),
    "ObjectFieldSelector": ("fieldPath",),
    "PersistentVolumeClaimSpec": ("accessModes",),
    "PersistentVolumeClaimVolumeSource": ("claimName",),
    "PodAffinityTerm": ("topologyKey",),
    "PodDNSConfigOption": ("name",),
    "PodOS": ("name",),
    "PodReadinessGate": ("conditionType",),
    "PodResourceClaim": ("name",),
    "PodSchedulingGate": ("name",),
    "PreferredSchedulingTerm": ("weight",),
    "ResourceClaim": ("name",),
    "ResourceFieldSelector": ("resource",),
    "SeccompProfile": ("type",),
    "SecretEnvSource": ("name",),
    "SecretKeySelector": ("name", "key"),
    "SecretProjection": ("name",),
    "SecretVolumeSource": ("secretName",),
    "ServiceAccountTokenProjection": ("path",),
    "Sysctl": ("name",),
    "TCPSocketAction": ("port",),
    "TopologySpreadConstraint": ("maxSkew", "topologyKey", "whenUnsatisfiable"),
    "Volume": ("name",),
    "VolumeDevice": ("name", "devicePath"),
    "VolumeMount": ("name", "mountPath"),
    "WeightedPodAffinityTerm": ("weight",),
}
"""Maps a type to its fields that must be given and must not be empty."""
POINTERS = frozenset(
    {
        ("PersistentVolumeClaimSpec", "volumeMode"),
        ("PodSecurityContext", "fsGroupChangePolicy"),
        ("PodSecurityContext", "seLinuxChangePolicy"),
        ("PodSecurityContext", "supplementalGroupsPolicy"),
        ("PodSpec", "preemptionPolicy"),
        ("PodSpec", "runtimeClassName"),
        ("PodResourceClaim", "resourceClaimName"),
        ("PodResourceClaim", "resourceClaimTemplateName"),
        ("SecurityContext", "procMount"),
        ("TopologySpreadConstraint", "nodeAffinityPolicy"),
        ("TopologySpreadConstraint", "nodeTaintsPolicy"),
        ("VolumeMount", "mountPropagation"),
        ("VolumeMount", "recursiveReadOnly"),
    }
)
"""Fields that are pointers in Kubernetes' Go types, so that an empty text differs from an absent value."""
FORBIDDEN: Mapping[tuple[str, str], str] = {
    ("PodSpec", "activeDeadlineSeconds"): "remove it: the pods of a service have no deadline",
    ("PodSpec", "ephemeralContainers"): "remove it: `kubectl debug` adds such containers to running pods",
}
"""Maps each (type, field) that a pod of a StatefulSet or Deployment must not have to an instruction that states how to
correct the field."""
ONE_OF: Mapping[str, tuple[str, ...]] = {
    "EnvFromSource": ("configMapRef", "secretRef"),
    "EnvVarSource": ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"),
    "LifecycleHandler": ("exec", "httpGet", "sleep", "tcpSocket"),
    "PodResourceClaim": ("resourceClaimName", "resourceClaimTemplateName"),
    "Probe": ("exec", "grpc", "httpGet", "tcpSocket"),
}
"""Maps a type to the fields of which exactly one must be given."""
UNIQUE: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("Container", "volumeMounts"): ("mountPath",),
    ("PodSpec", "containers"): ("name",),
    ("PodSpec", "initContainers"): ("name",),
    ("PodSpec", "topologySpreadConstraints"): ("topologyKey", "whenUnsatisfiable"),
    ("PodSpec", "volumes"): ("name",),
}
"""Maps (type, list) to the fields in which two entries of the list must not be equal."""
