"""The router of a slice: Deployment, ServiceAccount, and a Role that can only see pods.

It belongs to the slice (its selectors carry the revision) but not to the revision: it is rendered by the running operator
and updated in place, so that a log level never reloads a terabyte of weights (decisions 5).
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

from ome_operator import keys, names, quantity
from ome_operator.api import Component
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.podspec.compose import Composed
from ome_operator.core.podspec.flags import grouped
from ome_operator.core.render import meta, router_key
from ome_operator.core.render.pod_template import add_env, base_env
from ome_operator.core.render.registry_sidecar import Sidecar, with_registry
from ome_operator.core.traces import pods as traces
from ome_operator.engines.routers import HEALTH_INTERVAL, SELECTORS, sglang_router, takes_flags, takes_key
from ome_operator.util.memoize import memoize_by_identity

ENDPOINT_LAG = 15
"""Seconds that endpoints may lag behind a router that goes; it keeps serving so long (decisions 11)."""
LEADER_ADDRESS = {keys.ENGINE: "$(ENGINE_LEADER_ADDRESS)", keys.DECODER: "$(DECODER_LEADER_ADDRESS)"}
"""What a router's argument says where the address of a leader belongs; the argument stands there once for each leader."""
ROLLING, RECREATE = "RollingUpdate", "Recreate"
T = TypeVar("T")
GRACE = "--shutdown-grace-period-secs"
RULES = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]


class RouterSettings(NamedTuple):
    """What a router gets besides its own pod spec: from its slice, its service and the operator."""

    leaders: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Addresses of the leaders, by component, where it `names_leaders`."""
    replaced: Manifest | None = None
    """How its pods are, from `replacement`."""
    labels: tuple[tuple[str, str], ...] = ()
    """What its engines carry too, so they come from what is stored: they restart no router while it lives."""
    key: str = "false"
    """Whether it gets a key for its control plane, as `takes_key` reads it."""
    collector: str = ""
    """Where it sends its spans, if it can; "" for nowhere."""


@memoize_by_identity(1024)
def access(owner: meta.Owner, composed: Composed) -> list[Manifest]:
    """Role and RoleBinding of the routers of a service, and their ServiceAccount unless the user names his own."""
    name = names.component(owner.name, keys.ROUTER)
    theirs = composed.leader.get("serviceAccountName")
    labels = meta.labels(owner.name, keys.ROUTER)
    rbac = "rbac.authorization.k8s.io"
    binding = {
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": theirs or name, "namespace": owner.namespace}],
    }
    return [
        *([] if theirs else [meta.manifest(owner, "v1", "ServiceAccount", name, labels, {})]),
        meta.manifest(owner, f"{rbac}/v1", "Role", name, labels, {"rules": RULES}),
        meta.manifest(owner, f"{rbac}/v1", "RoleBinding", name, labels, binding),
    ]


@memoize_by_identity(1024)
def deployment(
    owner: meta.Owner,
    revision: str,
    composed: Composed,
    replicas: int,
    sidecar: Sidecar,
    settings: RouterSettings,
) -> Manifest:
    """The router Deployment of a slice."""
    pod = composed.leader
    main = _container(owner, revision, composed, settings)
    spec: Manifest = {"serviceAccountName": names.component(owner.name, keys.ROUTER), "enableServiceLinks": False, **pod}
    spec["containers"] = [main, *pod["containers"][1:]]
    spec.setdefault("terminationGracePeriodSeconds", ENDPOINT_LAG + _grace(main) + 10)
    spec = with_registry(spec, owner, revision, composed.annotations, sidecar)
    labels = meta.labels(owner.name, keys.ROUTER, revision)
    template: Manifest = {"metadata": {"labels": {**dict(settings.labels), **composed.labels, **labels}}, "spec": spec}
    if composed.annotations:
        template["metadata"]["annotations"] = dict(composed.annotations)
    body = {
        "replicas": replicas,
        "revisionHistoryLimit": 1,
        **(settings.replaced or replacement(None, None)),
        "selector": {"matchLabels": labels},
        "template": template,
    }
    return meta.manifest(owner, "apps/v1", "Deployment", names.router(owner.name, revision), labels, {"spec": body})


def _container(owner: meta.Owner, revision: str, composed: Composed, settings: RouterSettings) -> Manifest:
    """The main container."""
    pod = composed.leader
    main = _configured(pod["containers"][0], composed.config, base_env(owner.name, owner.namespace))
    if settings.leaders:
        main = {**main, "args": _with_addresses([str(word) for word in main["args"]], dict(settings.leaders))}
    if takes_key(main, settings.key):
        main = router_key.given(main, owner.name)
    if settings.collector and not untraced(composed):
        origin = traces.SpanOrigin(owner.name, owner.namespace, revision, keys.ROUTER)
        main = traces.traced(main, settings.collector, origin)
    drains = _draining(main, pod)
    return {"terminationMessagePolicy": "FallbackToLogsOnError", **own_slice(_watchful(main), revision), **drains}


def untraced(composed: Composed) -> str:
    """Why a router cannot send its spans, as a sentence; "" where it can."""
    return traces.why_not(composed.leader["containers"][0], composed.annotations, keys.ROUTER)


@memoize_by_identity(1024)
def replacement(above: Component | None, below: Component | None) -> Manifest:
    """How pods of a router are replaced by others of its slice: unless somebody says otherwise, none goes before another is
    ready. From `deploymentStrategy` and `lifecycle` of the service and, below it, of the runtime.
    """
    asked = _first(one.deployment_strategy for one in (above, below) if one is not None)
    lives = _first(one.lifecycle for one in (above, below) if one is not None)
    waits = {"minReadySeconds": lives.min_ready_seconds} if lives is not None and lives.min_ready_seconds else {}
    if asked is not None and asked.type == RECREATE:
        return {"strategy": {"type": RECREATE}, **waits}
    bounds = asked.rolling_update if asked is not None else None
    surge = 1 if bounds is None or bounds.max_surge is None else bounds.max_surge
    missing = bounds.max_unavailable if bounds is not None else None
    if missing is None:  # both zero would be refused
        missing = 1 if quantity.part(surge, 100, up=True) == 0 else 0
    elif quantity.part(missing, 100, up=True) == 0 == quantity.part(surge, 100, up=True):
        surge = 1
    return {"strategy": {"type": ROLLING, "rollingUpdate": {"maxUnavailable": missing, "maxSurge": surge}}, **waits}


def advice(router: Component | None, where: str) -> list[str]:
    """What of a router's `deploymentStrategy` is not understood; `where` the router stands."""
    asked = router.deployment_strategy if router is not None else None
    if asked is None or asked.type in (None, ROLLING, RECREATE):
        return []
    return [f"{where}.deploymentStrategy.type {asked.type} is unknown: write {ROLLING} or {RECREATE}"]


def _first(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)


def _configured(container: Manifest, config: Mapping[str, str], ours: list[Manifest]) -> Manifest:
    """The container with `config` as variables, sorted by name, behind ours; they count more than the runner's own."""
    theirs = [one for one in container.get("env") or () if one["name"] not in config]
    given = [{"name": name, "value": value} for name, value in sorted(config.items())]
    return add_env({**container, "env": theirs}, [*(one for one in ours if one["name"] not in config), *given])


def _watchful(container: Manifest) -> Manifest:
    """An SGLang router that looks at its workers every few seconds unless the user says how often (default: a minute)."""
    words = [str(word) for part in ("command", "args") for word in container.get(part) or ()]
    said = any(word.partition("=")[0] in (HEALTH_INTERVAL, "--disable-health-check") for word in words)
    if said or sglang_router(container) is None or not takes_flags(container):
        return container
    return {**container, "args": [*(container.get("args") or ()), f"{HEALTH_INTERVAL}=5"]}


def names_leaders(composed: Composed) -> bool:
    """Whether the arguments of a router refer to addresses of leaders: it does not look for workers itself."""
    words = [str(word) for word in composed.leader["containers"][0].get("args") or ()]
    return any(reference in word for word in words for reference in LEADER_ADDRESS.values())


def _with_addresses(args: list[str], leaders: Mapping[str, Sequence[str]]) -> list[str]:
    """The arguments, with each flag that refers to the leaders of a component once for each of them."""
    out: list[str] = []
    for flag in grouped(args):
        named = [name for name, reference in LEADER_ADDRESS.items() if any(reference in word for word in flag)]
        if not named or named[0] not in leaders:
            out += flag
            continue
        for address in leaders[named[0]]:
            out += [word.replace(LEADER_ADDRESS[named[0]], address) for word in flag]
    return out


def own_slice(container: Manifest, revision: str) -> Manifest:
    """The container with the revision in every worker selector of its command and args.

    A selector is one argument `"k=v k2=v2"` or several up to the next flag, and it keeps its form; `--flag=value` is
    understood too.
    """
    ours = f"{keys.REVISION}={revision}"
    out = dict(container)
    for part in ("command", "args"):
        if words := container.get(part):
            out[part] = _scoped([str(word) for word in words], ours)
    return out


def _scoped(words: list[str], ours: str) -> list[str]:
    scoped: list[str] = []
    inside = False
    for word, after in pairwise([*words, "-"]):
        if word in SELECTORS:
            inside = True
        elif word.startswith("-"):
            inside = False
            word = f"{word} {ours}" if word.partition("=")[0] in SELECTORS else word
        elif inside and after.startswith("-"):  # the last value of a selector
            scoped += [f"{word} {ours}"] if " " in word else [word, ours]
            continue
        scoped.append(word)
    return scoped


def _draining(container: Manifest, pod: Manifest) -> Manifest:
    """A pre-stop pause, unless the user has one: new connections come until endpoints have caught up.

    It has to end before the grace period that the user may have set: the API server refuses anything else.
    """
    seconds = min(ENDPOINT_LAG, int(pod.get("terminationGracePeriodSeconds", ENDPOINT_LAG + 1)) - 1)
    lifecycle = container.get("lifecycle") or {}
    if lifecycle.get("preStop") or seconds < 1:
        return {}
    return {"lifecycle": {**lifecycle, "preStop": {"sleep": {"seconds": seconds}}}}


def _grace(container: Manifest) -> int:
    """The router's own shutdown grace in seconds: its argument, or the 180 s that sglang-router has by default."""
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    for word, after in pairwise([*words, ""]):
        value = after if word == GRACE else word.removeprefix(f"{GRACE}=") if word.startswith(f"{GRACE}=") else ""
        if (seconds := quantity.whole(value)) is not None:
            return seconds
    return 180
