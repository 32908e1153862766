"""Write the manifests of a plan: model, runtime and service."""

from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.cookbook.command import script_word
from ome_operator.cookbook.fit import RoleFit
from ome_operator.cookbook.layout import PlanProposal
from ome_operator.cookbook.preset import Launch, environment, in_pods
from ome_operator.cookbook.request import STRATEGIES
from ome_operator.core.selection.model_profile import profile_of
from ome_operator.engines import servers

_SHARED_MEMORY = {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}}
"""Volume for /dev/shm, through which the ranks and tokenizers of a pod share memory. Memory that is used in this volume
counts towards the memory limit of the pod."""


class Manifests(NamedTuple):
    """The three files of a plan, each with one or more YAML documents."""

    model: str
    runtime: str
    service: str

    @property
    def all(self) -> str:
        """All documents as one stream for `kubectl apply -f -`."""
        return "---\n".join(self)


def manifests(plan: PlanProposal, explain: bool = False) -> Manifests:
    """Return the manifests of a plan. If `explain` is true, a comment above each flag gives the reason for the flag."""
    env, filled, server = environment(), in_pods(plan), plan.engine.server
    found = servers.probes(server, server.port)
    probes = {name: {**one, "httpGet": {**one["httpGet"], "port": "http"}} for name, one in found.items()}
    runtime = env.get_template("runtime.yaml.j2").render(
        plan=plan,
        explain=explain,
        meaning=STRATEGIES[plan.request.strategy],
        format=_format(plan),
        node_selector=dict(plan.hardware.accelerator.spec.discovery.node_selector or {}),
        pods=[_pod(plan, role, launch) for role, launch in zip(plan.roles, filled.launches, strict=True)],
        port=server.port,
        startup=probes["startupProbe"],
        readiness=probes["readinessProbe"],
    )
    service = env.get_template("service.yaml.j2").render(
        plan=plan, files=filled.files, rdma=any(role.nodes > 1 for role in plan.roles)
    )
    return Manifests(plan.served.manifest, runtime, service)


def _pod(plan: PlanProposal, role: RoleFit, launch: Launch) -> dict[str, Any]:
    """Return the values for one component that the template of the runtime needs."""
    each, more = plan.engine.per_gpu, launch.pod
    annotations = {keys.RDMA_INJECT: "true", keys.RDMA_PROFILE: "infiniband", keys.RDMA_CONTAINER: keys.RUNNER}
    return {
        "role": role,
        "annotations": (annotations if role.nodes > 1 else {}) | more.get("annotations", {}),
        "env": launch.env,
        "leader": _words(launch),
        "worker": _words(launch.worker) if launch.worker else None,
        "working_dir": more.get("workingDir"),
        "capabilities": more.get("capabilities", ()),
        "volumes": [_SHARED_MEMORY, *more.get("volumes", ())],
        "mounts": [{"name": "dshm", "mountPath": "/dev/shm"}, *more.get("volumeMounts", ())],
        "amounts": {
            plan.hardware.resource: role.gpus,
            "cpu": str(each.cpu * role.gpus),
            "memory": f"{each.memory_gib * role.gpus}Gi",
        },
    }


def _words(launch: Launch) -> dict[str, Any]:
    """Return the command and the arguments of a container. If shell lines run before the program, the command is a shell
    that runs a script.
    """
    if launch.before:
        words = [script_word(one) for one in (*launch.program, *launch.after)]
        flags = [one.name if one.value is None else f"{one.name} {script_word(one.value)}" for one in launch.flags]
        at = len(launch.program)
        line = " \\\n  ".join((" ".join(("exec", *words[:at])), *flags, *words[at:])) if launch.program else ""
        return {"command": ["/bin/bash", "-c"], "script": "\n".join((*launch.before, line)).rstrip() + "\n"}
    args = [(one.name if one.value is None else f"{one.name}={one.value}", one.why) for one in launch.flags]
    return {"command": list(launch.program), "args": [*args, *((one, "") for one in launch.after)], "script": ""}


def _format(plan: PlanProposal) -> dict[str, Any]:
    """Return the model format that the runtime supports, which covers this model and similar models. Automatic selection
    is off, so only services that name the runtime use it.
    """
    model = profile_of(plan.served.model, False)
    out: dict[str, Any] = {"name": model.format.name if model.format else plan.served.name}
    for field, version in (("modelFormat", model.format), ("modelFramework", model.framework)):
        if version is not None:
            out[field] = version.dump()
    if model.architecture:
        out["modelArchitecture"] = model.architecture
    if model.quantization:
        out["quantization"] = model.quantization
    return {**out, "autoSelect": False, "priority": 1}
