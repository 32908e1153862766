"""Render the router of a revision: its Deployment and ServiceAccount, and a Role that permits only reading pods.

The router belongs to a revision (its selectors contain the revision) but is not stored with it: the running operator
renders it and updates it in place, so that a changed log level never reloads a terabyte of weights (decisions 5).
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

from ome_operator import keys, names, quantity
from ome_operator.api import Component
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.podspec.compose import ComposedPods
from ome_operator.core.podspec.flags import group_flags
from ome_operator.core.render import meta, router_key
from ome_operator.core.render.pod_template import add_env, base_env
from ome_operator.core.render.registry_sidecar import Sidecar, with_registry
from ome_operator.core.traces import pods as traces
from ome_operator.engines.routers import (
    HEALTH_INTERVAL,
    SELECTORS,
    accepts_control_key,
    divides_prefix_tree,
    sglang_router,
    takes_flags,
)
from ome_operator.util.memoize import memoize_by_identity

ENDPOINT_LAG = 15
"""Seconds for which a terminating router continues to serve, because endpoints may be updated late (decisions 11)."""
LEADER_ADDRESS = {keys.ENGINE: "$(ENGINE_LEADER_ADDRESS)", keys.DECODER: "$(DECODER_LEADER_ADDRESS)"}
"""Maps each component to the placeholder in a router's arguments for the address of a leader. An argument with a placeholder
is repeated for each leader."""
ROLLING, RECREATE = "RollingUpdate", "Recreate"
T = TypeVar("T")
GRACE = "--shutdown-grace-period-secs"
RULES = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]


class RouterSettings(NamedTuple):
    """Settings of a router that come from its revision, its service and the operator, and not from its pod spec."""

    leaders: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """For each component, the name of the component and the addresses of its leaders. Only a router for which
    `names_leaders` is true needs them."""
    replaced: Manifest | None = None
    """The result of `replacement`: how the router's pods are replaced; None for the default."""
    labels: tuple[tuple[str, str], ...] = ()
    """OME's labels, as the engines of the revision have them. They are read from the stored templates, so that a change of
    these labels does not restart the routers of existing revisions."""
    key: str = "false"
    """The user's choice whether the router's control plane gets a key: the value of an annotation, which
    `accepts_control_key` parses."""
    collector: str = ""
    """HOST:PORT of the collector to which the router sends its spans; "" if the router sends no spans."""


@memoize_by_identity(1024)
def access(owner: meta.Owner, composed: ComposedPods) -> list[Manifest]:
    """Return the Role and RoleBinding of a service's routers, and a ServiceAccount unless the user names one."""
    name = names.component(owner.name, keys.ROUTER)
    account = composed.leader.get("serviceAccountName")
    labels = meta.labels(owner.name, keys.ROUTER)
    rbac = "rbac.authorization.k8s.io"
    binding = {
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account or name, "namespace": owner.namespace}],
    }
    return [
        *([] if account else [meta.manifest(owner, "v1", "ServiceAccount", name, labels, {})]),
        meta.manifest(owner, f"{rbac}/v1", "Role", name, labels, {"rules": RULES}),
        meta.manifest(owner, f"{rbac}/v1", "RoleBinding", name, labels, binding),
    ]


@memoize_by_identity(1024)
def deployment(
    owner: meta.Owner,
    revision: str,
    composed: ComposedPods,
    replicas: int,
    sidecar: Sidecar,
    settings: RouterSettings,
) -> Manifest:
    """Return the router Deployment of a revision."""
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


def _container(owner: meta.Owner, revision: str, composed: ComposedPods, settings: RouterSettings) -> Manifest:
    """Return the main container of the router's pod."""
    pod = composed.leader
    main = _configured(pod["containers"][0], composed.config, base_env(owner.name, owner.namespace))
    if settings.leaders:
        main = {**main, "args": _with_addresses([str(word) for word in main["args"]], dict(settings.leaders))}
    if accepts_control_key(main, settings.key):
        main = router_key.with_key(main, owner.name)
    if settings.collector and not traces_refusal(composed):
        origin = traces.SpanOrigin(owner.name, owner.namespace, revision, keys.ROUTER)
        main = traces.add_trace_arguments(main, settings.collector, origin)
    drains = _draining(main, pod)
    return {"terminationMessagePolicy": "FallbackToLogsOnError", **own_slice(_watchful(main), revision), **drains}


def traces_refusal(composed: ComposedPods) -> str:
    """Return a sentence that explains why a router cannot send spans, or "" if the router can send spans."""
    return traces.why_not(composed.leader["containers"][0], composed.annotations, keys.ROUTER)


@memoize_by_identity(1024)
def replacement(above: Component | None, below: Component | None) -> Manifest:
    """Return the Deployment fields that control how a router's pods are replaced within its revision.

    The values come from `deploymentStrategy` and `lifecycle` of the service (`above`), and then of the runtime (`below`). By
    default a pod is deleted only when its replacement is ready.
    """
    strategy = _first(component.deployment_strategy for component in (above, below) if component is not None)
    lifecycle = _first(component.lifecycle for component in (above, below) if component is not None)
    seconds = lifecycle.min_ready_seconds if lifecycle is not None else None
    more = {"minReadySeconds": seconds} if seconds else {}
    if strategy is not None and strategy.type == RECREATE:
        return {"strategy": {"type": RECREATE}, **more}
    bounds = strategy.rolling_update if strategy is not None else None
    surge = 1 if bounds is None or bounds.max_surge is None else bounds.max_surge
    unavailable = bounds.max_unavailable if bounds is not None else None
    if unavailable is None:  # the API server rejects a strategy in which both values are zero
        unavailable = 1 if quantity.share_of(surge, 100, up=True) == 0 else 0
    elif quantity.share_of(unavailable, 100, up=True) == 0 == quantity.share_of(surge, 100, up=True):
        surge = 1
    return {
        "strategy": {"type": ROLLING, "rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": surge}},
        **more,
    }


def advice(router: Component | None, location: str) -> list[str]:
    """Return a list with a sentence if the type of a router's `deploymentStrategy` is unknown, otherwise []. `location` is
    the field path of the router.
    """
    strategy = router.deployment_strategy if router is not None else None
    if strategy is None or strategy.type in (None, ROLLING, RECREATE):
        return []
    return [f"{location}.deploymentStrategy.type {strategy.type} is unknown: write {ROLLING} or {RECREATE}"]


def split_cache_warning(composed: ComposedPods, replicas: int) -> list[str]:
    """Return a list with a sentence if each of several routers knows only a part of the prefixes that the engines cache,
    otherwise [].
    """
    if replicas < 2 or not divides_prefix_tree(composed.leader["containers"][0]):
        return []
    return [
        f"each of the {replicas} routers with the policy cache_aware knows only the prefixes of the requests that it has "
        "sent itself, so the service uses less of the engines' prefix caches than with one router: run as few routers as "
        "their load allows"
    ]


def _first(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)


def _configured(container: Manifest, config: Mapping[str, str], ours: list[Manifest]) -> Manifest:
    """Return the container with the variables `config`, sorted by name, after the operator's variables `ours`. A variable in
    `config` replaces a variable of the container, or of `ours`, with the same name.
    """
    users = [variable for variable in container.get("env") or () if variable["name"] not in config]
    configured = [{"name": name, "value": value} for name, value in sorted(config.items())]
    return add_env(
        {**container, "env": users}, [*(variable for variable in ours if variable["name"] not in config), *configured]
    )


def _watchful(container: Manifest) -> Manifest:
    """Return the container of an SGLang router with a health check of its workers every 5 seconds, unless the user sets
    the interval; the router's default is a minute.
    """
    words = [str(word) for part in ("command", "args") for word in container.get(part) or ()]
    configured = any(word.partition("=")[0] in (HEALTH_INTERVAL, "--disable-health-check") for word in words)
    if configured or sglang_router(container) is None or not takes_flags(container):
        return container
    return {**container, "args": [*(container.get("args") or ()), f"{HEALTH_INTERVAL}=5"]}


def names_leaders(composed: ComposedPods) -> bool:
    """Return whether the router's arguments contain placeholders for addresses of leaders. Such a router does not
    discover workers itself.
    """
    words = [str(word) for word in composed.leader["containers"][0].get("args") or ()]
    return any(reference in word for word in words for reference in LEADER_ADDRESS.values())


def _with_addresses(args: list[str], leaders: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the arguments, in which each flag with a placeholder for the leaders of a component is repeated for each
    leader.
    """
    out: list[str] = []
    for flag in group_flags(args):
        named = [name for name, reference in LEADER_ADDRESS.items() if any(reference in word for word in flag)]
        if not named or named[0] not in leaders:
            out += flag
            continue
        for address in leaders[named[0]]:
            out += [word.replace(LEADER_ADDRESS[named[0]], address) for word in flag]
    return out


def own_slice(container: Manifest, revision: str) -> Manifest:
    """Return the container with the revision added to every worker selector in its command and args.

    A selector is one argument `"k=v k2=v2"`, or several arguments up to the next flag; its form is kept. `--flag=value` is
    supported, too.
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
        elif inside and after.startswith("-"):  # the word is the last value of a selector
            scoped += [f"{word} {ours}"] if " " in word else [word, ours]
            continue
        scoped.append(word)
    return scoped


def _draining(container: Manifest, pod: Manifest) -> Manifest:
    """Return the field `lifecycle` of the router's container: a pause before the container is stopped, during which the
    router still accepts connections, because endpoints may be updated late. Return {} if the user defines a pre-stop hook,
    or if there is no time for a pause.

    The pause has to be shorter than the user's termination grace period; otherwise the API server rejects the pod.
    """
    seconds = min(ENDPOINT_LAG, int(pod.get("terminationGracePeriodSeconds", ENDPOINT_LAG + 1)) - 1)
    lifecycle = container.get("lifecycle") or {}
    if lifecycle.get("preStop") or seconds < 1:
        return {}
    return {"lifecycle": {**lifecycle, "preStop": {"sleep": {"seconds": seconds}}}}


def _grace(container: Manifest) -> int:
    """Return the router's own shutdown grace period in seconds: its argument, or 180, the default of sglang-router."""
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    for word, after in pairwise([*words, ""]):
        value = after if word == GRACE else word.removeprefix(f"{GRACE}=") if word.startswith(f"{GRACE}=") else ""
        if (seconds := quantity.whole_number(value)) is not None:
            return seconds
    return 180
