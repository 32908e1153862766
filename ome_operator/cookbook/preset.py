"""Render presets for a plan. A preset is a sandboxed template that describes how an engine is started. The result is checked
against the flags of the engine.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import yaml

from ome_operator.cookbook.layout import PlanProposal
from ome_operator.cookbook.library import Engine, source
from ome_operator.cookbook.request import RecipeRefused
from ome_operator.util.kubeyaml import PlainDumper, plain_scalar

if TYPE_CHECKING:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class PresetArgument:
    """A flag or an environment variable with its value and reason."""

    name: str
    value: str | None
    """Value of the flag or variable; None for a flag without a value."""
    why: str


@dataclass(frozen=True)
class Launch:
    """How a component is launched on a node."""

    component: str
    program: tuple[str, ...]
    flags: tuple[PresetArgument, ...]
    env: tuple[PresetArgument, ...] = ()
    before: tuple[str, ...] = ()
    """Shell lines that run before the program."""
    after: tuple[str, ...] = ()
    """Arguments after the flags."""
    worker: "Launch | None" = None
    """How the component is launched on the other nodes of a group. None if it is launched there in the same way."""
    pod: Mapping[str, Any] = field(default_factory=dict)
    """Additional fields of the pod: annotations, volumes, volumeMounts."""


@dataclass(frozen=True)
class RenderedPreset:
    """The result of rendering a preset for a plan."""

    launches: tuple[Launch, ...]
    """One launch for each role of the plan, in the order of the roles."""
    balancer: Launch | None = None
    """The load balancer for several engines outside of Kubernetes, where the operator's router is not available. None if
    no load balancer is needed."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Configuration files of the engine by name. In pods, they are mounted from a ConfigMap."""


RANK = "$RANK"
"""Shell variable that contains the rank of a node. The user sets it on each node before running the command."""


def in_shell(plan: PlanProposal) -> RenderedPreset:
    """Return the launches for a user who starts the engines by hand on each node."""
    many = len(plan.roles) > 1
    request = plan.request
    return _filled(
        plan,
        pod=False,
        model_path=request.model_path or plan.served.place,
        leaders=["$PREFILL_NODE0", "$DECODE_NODE0"] if many else ["$MASTER_IP"],
        rank=RANK,
        host=request.host or ("$LOCAL_IP" if many else "0.0.0.0" if plan.router else None),
        port=request.port,
    )


def in_pods(plan: PlanProposal) -> RenderedPreset:
    """Return the launches for pods. In pods, the operator sets the variables."""
    return _filled(
        plan,
        pod=True,
        model_path="$(MODEL_PATH)",
        leaders=["$(LWS_LEADER_ADDRESS)"] * len(plan.roles),
        rank="$(LWS_WORKER_INDEX)",
        host="0.0.0.0",
        port=plan.engine.server.port,
    )


def _filled(plan: PlanProposal, *, leaders: list[str], **words: Any) -> RenderedPreset:
    """Render the preset with the values in `words`. Each role is rendered with the address of its own leader, from
    `leaders`.
    """
    request, served, line = plan.request, plan.served, plan.engine.command_line
    experts = served.facts.experts
    text = (
        environment()
        .get_template(f"presets/{plan.engine.preset}.yaml.j2")
        .render(
            roles=[{**vars(role), "leader": leader} for role, leader in zip(plan.roles, leaders, strict=True)],
            plan=plan,
            hosts=",".join(f"$HOST{number + 1}:{plan.roles[0].gpus}" for number in range(plan.roles[0].nodes)),
            strategy=request.strategy,
            has=lambda flag: flag in line.flags and not line.flags[flag].deprecated,
            reads=lambda variable: variable in line.variables,
            vendor=plan.hardware.vendor,
            batch=request.decode_batch or served.wide_batch,
            prefix_cache=request.prefix_cache,
            remote_code=served.remote_code,
            copies=plan.copies,
            experts=experts.routed if experts else 0,
            tool_call_parser=_parser(request.tool_call_parser, served.tool_call_parser),
            reasoning_parser=_parser(request.reasoning_parser, served.reasoning_parser),
            context_length=request.context_length,
            kv_cache_dtype=request.kv_cache_dtype,
            model_type=request.model_type,
            overrides=json.dumps({"model_type": request.model_type}),
            files="$MODEL_PATH" if words["pod"] else request.model_path or "$MODEL_PATH",
            **words,
        )
    )
    data = yaml.load(text, Loader=_LOADER)  # noqa: S506 a safe loader
    launches = tuple(_launch(one["component"], one) for one in data["launches"])
    for launch in launches:
        for flag in (*launch.flags, *(launch.worker.flags if launch.worker else ())):
            _check(plan.engine, flag)
    balancer = data.get("balancer")
    return RenderedPreset(launches, _launch("router", balancer) if balancer else None, data.get("files") or {})


def _parser(asked: bool | str, own: str | None) -> str | None:
    """Return the parser name in the request. If `asked` is true, return the model's own parser `own`. Return None if the
    request asks for no parser.
    """
    return (asked if isinstance(asked, str) else own) if asked else None


def _launch(component: str, data: Mapping[str, Any]) -> Launch:
    worker = data.get("worker")
    return Launch(
        component=component,
        program=tuple(data["program"]),
        flags=tuple(PresetArgument(one[0], one[1] if len(one) == 3 else None, one[-1]) for one in data.get("flags") or ()),
        env=tuple(PresetArgument(*one) for one in data.get("env") or ()),
        before=tuple((data.get("before") or "").splitlines()),
        after=tuple(data.get("after") or ()),
        worker=_launch(component, worker) if worker else None,
        pod=data.get("pod") or {},
    )


def _check(engine: Engine, flag: PresetArgument) -> None:
    """Raise RecipeRefused unless this version of the engine has the flag. If the flag has fixed choices, its value must
    be one of them.
    """
    known = engine.command_line.find_flag(flag.name)
    if known is None:
        raise RecipeRefused(f"{engine.name} {engine.version} has no flag {flag.name}.")
    if known.choices and flag.value not in known.choices:
        raise RecipeRefused(
            f"{engine.name} {engine.version} does not accept {flag.name} {flag.value}: use one of "
            f"{', '.join(known.choices)}."
        )


@cache
def environment() -> "ImmutableSandboxedEnvironment":
    """Return the sandboxed template environment. Templates can use only the values that are passed to them, and an
    undefined name is an error.
    """
    # imported here because `ome lint` and the operator import this module, but fill no template
    from jinja2 import FunctionLoader, StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    made = ImmutableSandboxedEnvironment(
        loader=FunctionLoader(source),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"q": json.dumps, "flow": _flow, "plain": plain_scalar}
    return made


def _flow(value: Any) -> str:
    """Return a value as YAML on one line."""
    text: str = yaml.dump(
        value, Dumper=PlainDumper, default_flow_style=True, width=10**6, sort_keys=False, allow_unicode=True
    )
    return text.removesuffix("...\n").strip()
