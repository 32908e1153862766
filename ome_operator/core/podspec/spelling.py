"""Find fields of pods that Kubernetes does not have, and report their location in the user's object and the field that
was probably meant.

A component accepts every field of a pod spec, so a misspelled field of the component (`minReplica`) is taken for a field of
the pod. Only the API server has the authoritative list of fields. The lists in this module serve only for suggestions, and
nothing is rejected because of them.
"""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import islice
from typing import Any, NamedTuple

from ome_operator.api import Component, InferenceService, PodPart, Runtime, ServiceSpec
from ome_operator.core.podspec.merge import FREE
from ome_operator.util.memoize import memoize_by_identity


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_POD = _names(
    """activeDeadlineSeconds affinity automountServiceAccountToken containers dnsConfig dnsPolicy enableServiceLinks
    ephemeralContainers hostAliases hostIPC hostNetwork hostPID hostUsers hostname hostnameOverride imagePullSecrets
    initContainers nodeName nodeSelector os overhead preemptionPolicy priority priorityClassName readinessGates
    resourceClaims resources restartPolicy runtimeClassName schedulerName schedulingGates securityContext serviceAccount
    serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain terminationGracePeriodSeconds tolerations
    topologySpreadConstraints volumes"""
)
_CONTAINER = _names(
    """args command env envFrom image imagePullPolicy lifecycle livenessProbe name ports readinessProbe resizePolicy
    resources restartPolicy restartPolicyRules securityContext startupProbe stdin stdinOnce terminationMessagePath
    terminationMessagePolicy tty volumeDevices volumeMounts workingDir"""
)
_VOLUME = _names(
    """configMap csi downwardAPI emptyDir ephemeral fc flexVolume hostPath image iscsi name nfs persistentVolumeClaim
    projected secret"""
)
_PROBE = _names(
    """exec failureThreshold grpc httpGet initialDelaySeconds periodSeconds successThreshold tcpSocket
    terminationGracePeriodSeconds timeoutSeconds"""
)
_SECURITY = _names(
    """allowPrivilegeEscalation appArmorProfile capabilities fsGroup fsGroupChangePolicy privileged procMount
    readOnlyRootFilesystem runAsGroup runAsNonRoot runAsUser seLinuxChangePolicy seLinuxOptions seccompProfile
    supplementalGroups supplementalGroupsPolicy sysctls windowsOptions"""
)
_BELOW: Mapping[str, frozenset[str]] = {
    "containers": _CONTAINER,
    "initContainers": _CONTAINER,
    "volumes": _VOLUME,
    "securityContext": _SECURITY,
    **dict.fromkeys(("livenessProbe", "readinessProbe", "startupProbe"), _PROBE),
    "env": frozenset({"name", "value", "valueFrom"}),
    "ports": frozenset({"containerPort", "hostIP", "hostPort", "name", "protocol"}),
    "volumeMounts": frozenset(
        {"mountPath", "mountPropagation", "name", "readOnly", "recursiveReadOnly", "subPath", "subPathExpr"}
    ),
    "resources": frozenset({"claims", "limits", "requests"}),
    "tolerations": frozenset({"effect", "key", "operator", "tolerationSeconds", "value"}),
    "hostPath": frozenset({"path", "type"}),
    "emptyDir": frozenset({"medium", "sizeLimit"}),
    "valueFrom": frozenset({"configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef"}),
}
"""Field -> the fields below it, in core/v1 of Kubernetes 1.34."""
_OURS = frozenset(str(field.alias) for part in (Component, PodPart) for field in part.model_fields.values())
"""Fields that a component has in addition to those of a pod."""
_OF_A_COMPONENT, _NONE = _POD | _OURS, frozenset[str]()
_TEMPLATE, _UNDECLARED = ".spec.template.spec.", ": field not declared in schema"
"""The text before and after the path of a field in an error of the API server."""
_INDEX = re.compile(r"\[[^][]*+\]")
MOST = 100
"""Maximum number of unknown fields for which a valid field is searched, because each search takes 70 µs."""


class _Field(NamedTuple):
    """A field in a user's object."""

    chain: tuple[str, ...]
    """Names of the fields on the way from the pod spec down to this field."""
    where: str
    """Path of the field in the user's object, such as `spec.engine.volumes[0].hostpath`."""

    @property
    def candidates(self) -> frozenset[str]:
        """The valid fields at the location of this field; empty if there is no list for the location."""
        return _BELOW.get(self.chain[-2], _NONE) if len(self.chain) > 1 else _OF_A_COMPONENT

    @property
    def meant(self) -> str:
        """The valid field that the user probably meant; "" if no field is similar."""
        name, known = self.chain[-1], self.candidates
        same = [field for field in sorted(known) if field.lower() == name.lower()]
        return next(iter(same or get_close_matches(name, sorted(known), 1, cutoff=0.8)), "")

    @property
    def sentence(self) -> str:
        """A message which states that the field does not exist, and what to do."""
        return f"{self.where} is not a field of a pod: " + (f"did you mean {self.meant}?" if self.meant else "remove it")


def misspelled(service: InferenceService, runtime: Runtime | None) -> tuple[str, ...]:
    """Return a sentence for each unknown field of a service and its runtime that resembles a valid field."""
    return _misspelled(service.spec, runtime)


@memoize_by_identity(1024)
def _misspelled(spec: ServiceSpec, runtime: Runtime | None) -> tuple[str, ...]:
    """Compute the sentences. The arguments exclude the status, so that the cached result stays valid when only the status
    changes.
    """
    fields = (field for field in _written(spec, runtime) if field.candidates)
    unknown = islice((field for field in fields if field.chain[-1] not in field.candidates), MOST)
    return tuple(field.sentence for field in unknown if field.meant)


def translated(message: str, service: InferenceService, runtime: Runtime | None) -> str:
    """Translate the API server's errors about fields of a pod template into messages about the user's objects.

    The message is returned unchanged if it is about something else, or about fields that the objects do not contain (any
    more).
    """
    before = [part.partition(_TEMPLATE) for part in message.split(_UNDECLARED)[:-1]]
    undeclared = {tuple(_INDEX.sub("", path).split(".")) for _, found, path in before if found}
    if not undeclared:
        return message
    fields = (field for field in _written(service.spec, runtime) if field.chain in undeclared)
    return "; ".join(dict.fromkeys(field.sentence for field in islice(fields, MOST))) or message


def _written(spec: ServiceSpec, runtime: Runtime | None) -> Iterator[_Field]:
    """Yield all fields of pods in the components of a service and of its runtime."""
    for role, component in spec.components.items():
        yield from _component(component, f"spec.{role}")
        if runtime is not None:
            yield from _component(getattr(runtime.spec, f"{role}_config"), f"runtime {runtime.name}: spec.{role}Config")
    if runtime is not None:
        yield from _below(runtime.spec.pod, (), f"runtime {runtime.name}: spec")


def _component(component: Component | None, where: str) -> Iterator[_Field]:
    if component is None:
        return
    parts: tuple[tuple[Component | PodPart | None, str], ...] = (
        (component, where), (component.leader, f"{where}.leader"), (component.worker, f"{where}.worker"),
    )  # fmt: skip
    for part, place in parts:
        if part is not None:
            yield from _below(part.pod, (), place)
            yield from _below(part.runner, ("containers",), f"{place}.runner")


def _below(value: Any, chain: tuple[str, ...], where: str) -> Iterator[_Field]:
    if isinstance(value, list):
        for number, entry in enumerate(value):
            yield from _below(entry, chain, f"{where}[{number}]")
    elif isinstance(value, Mapping) and not (chain and chain[-1] in FREE):
        for name, inner in value.items():
            yield _Field((*chain, str(name)), f"{where}.{name}")
            yield from _below(inner, (*chain, str(name)), f"{where}.{name}")
