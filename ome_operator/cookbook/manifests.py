"""The YAML of a plan: model, runtime and service, as text that people keep and apply."""

from typing import Any, NamedTuple

from ome_operator.cookbook.ask import STRATEGIES
from ome_operator.cookbook.plan import Plan
from ome_operator.cookbook.preset import environment, in_pods
from ome_operator.engines import servers
from ome_operator.resolve.known import known

CPUS_PER_GPU, MEMORY_PER_GPU_GIB = 10, 100
"""As the published recipe asks for on nodes of 8 GPUs: 80 CPUs and 800 GiB."""


class Manifests(NamedTuple):
    """The three files, each one or more YAML documents."""

    model: str
    runtime: str
    service: str

    @property
    def all(self) -> str:
        """One stream for `kubectl apply -f -`."""
        return "---\n".join(self)


def manifests(plan: Plan, explain: bool = False) -> Manifests:
    """The files of a plan; with `explain` each flag has its reason above it."""
    env = environment()
    server = next(one for one in servers.known() if one.name == plan.engine.name)
    found = servers.probes(server, server.port)
    probes = {name: {**one, "httpGet": {**one["httpGet"], "port": "http"}} for name, one in found.items()}
    runtime = env.get_template(f"runtime-{plan.engine.name}.yaml.j2").render(
        plan=plan,
        explain=explain,
        launches=in_pods(plan).launches,
        meaning=STRATEGIES[plan.ask.strategy],
        format=_format(plan),
        node_selector=dict(plan.hardware.accelerator.spec.discovery.node_selector or {}),
        amounts=[_amounts(plan, role.gpus) for role in plan.roles],
        startup=probes["startupProbe"],
        readiness=probes["readinessProbe"],
    )
    service = env.get_template("service.yaml.j2").render(
        plan=plan,
        nodes=nodes(plan),
        rdma=any(role.nodes > 1 for role in plan.roles),
    )
    return Manifests(plan.served.manifest, runtime, service)


def nodes(plan: Plan) -> int:
    """Nodes that the whole service takes."""
    per_node = plan.ask.gpus_per_node // plan.roles[0].gpus if len(plan.roles) == 1 else 1
    return -(-plan.copies // per_node) * sum(role.nodes for role in plan.roles)


def _amounts(plan: Plan, gpus: int) -> dict[str, Any]:
    return {plan.hardware.resource: gpus, "cpu": str(CPUS_PER_GPU * gpus), "memory": f"{MEMORY_PER_GPU_GIB * gpus}Gi"}


def _format(plan: Plan) -> dict[str, Any]:
    """What the runtime serves: this model and its like. Only services that name the runtime get it."""
    model = known(plan.served.model, False)
    out: dict[str, Any] = {"name": model.format.name if model.format else plan.served.name}
    for field, version in (("modelFormat", model.format), ("modelFramework", model.framework)):
        if version is not None:
            out[field] = version.dump()
    if model.architecture:
        out["modelArchitecture"] = model.architecture
    if model.quantization:
        out["quantization"] = model.quantization
    return {**out, "autoSelect": False, "priority": 1}
