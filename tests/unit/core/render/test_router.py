"""Tests of the router of a slice: it only discovers its own slice, is drained before it is stopped, and may
only read pods.
"""

from typing import Any

import pytest

from ome_operator.api import Component
from ome_operator.core.podspec.compose import ComposedPods, compose
from ome_operator.core.render import meta, router
from ome_operator.core.render.registry_sidecar import Sidecar

OWNER = meta.Owner("svc", "team", "u")
OURS = "ome.io/revision=r1"


def composed(written: dict[str, Any] | None = None, **box: Any) -> ComposedPods:
    """Return a composed router."""
    return compose("router", {"routerConfig": {"runner": {"name": "router", "image": "i", **box}}}, written or {})


def deployed(written: dict[str, Any] | None = None, replicas: int = 1, **box: Any) -> dict[str, Any]:
    """Return the Deployment of the router."""
    return router.deployment(OWNER, "r1", composed(written, **box), replicas, Sidecar(""), router.RouterSettings())


FORMS: dict[str, tuple[list[str], list[str]]] = {
    "one argument with several pairs": (["--selector", "a=b c=d", "--x"], ["--selector", f"a=b c=d {OURS}", "--x"]),
    "several arguments": (["--selector", "a=b", "c=d", "--x"], ["--selector", "a=b", "c=d", OURS, "--x"]),
    "one argument with one pair": (["--selector", "a=b", "--x"], ["--selector", "a=b", OURS, "--x"]),
    "at the end": (["--x", "--selector", "a=b c=d"], ["--x", "--selector", f"a=b c=d {OURS}"]),
    "with an equals sign": (["--selector=a=b c=d"], [f"--selector=a=b c=d {OURS}"]),
    "prefill and decode": (
        ["--prefill-selector", "a=b x=y", "--decode-selector", "c=d", "e=f"],
        ["--prefill-selector", f"a=b x=y {OURS}", "--decode-selector", "c=d", "e=f", OURS],
    ),
    "before a short flag": (["--selector", "a=b", "c=d", "-v"], ["--selector", "a=b", "c=d", OURS, "-v"]),
    "an empty selector stays empty": (["--selector", "--x"], ["--selector", "--x"]),
    "no selector": (["--x", "a=b c=d"], ["--x", "a=b c=d"]),
    "another flag that begins alike": (["--selectors", "a=b"], ["--selectors", "a=b"]),
}


@pytest.mark.parametrize("part", ["args", "command"])
@pytest.mark.parametrize("case", FORMS)
def test_revision_is_added_to_every_selector_in_its_syntax(case: str, part: str) -> None:
    words, scoped = FORMS[case]
    assert router.own_slice({part: words}, "r1") == {part: scoped}


def test_router_deployment_has_labels_and_strategy() -> None:
    spec = deployed({"labels": {"component": "x", "team": "a"}, "annotations": {"n": "1"}}, replicas=3)["spec"]
    wanted = {
        "component": "router",
        "ome.io/inferenceservice": "svc",
        "ome.io/managed-by": "ome-operator",
        "ome.io/revision": "r1",
    }
    assert spec["replicas"] == 3
    assert spec["selector"] == {"matchLabels": wanted}
    assert spec["template"]["metadata"] == {"labels": {"team": "a", **wanted}, "annotations": {"n": "1"}}
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


TOLD = (("engine", ("p0", "p1")), ("decoder", ("d0",)))


def test_router_arguments_are_repeated_for_each_leader() -> None:
    """Each argument that refers to leaders is repeated for every leader, together with the values after it."""
    args = [
        "--mini-lb",
        "--prefill",
        "http://$(ENGINE_LEADER_ADDRESS):1",
        "8998",
        "--decode=http://$(DECODER_LEADER_ADDRESS):1",
    ]
    box = composed(args=args)
    assert router.names_leaders(box)
    settings = router.RouterSettings(leaders=TOLD)
    made = router.deployment(OWNER, "r1", box, 1, Sidecar(""), settings)
    found = made["spec"]["template"]["spec"]["containers"][0]["args"]
    prefill = ["--prefill", "http://p0:1", "8998", "--prefill", "http://p1:1", "8998"]
    assert found == ["--mini-lb", *prefill, "--decode=http://d0:1"]


def test_router_with_service_discovery_gets_no_leader_arguments() -> None:
    assert not router.names_leaders(composed(args=["--service-discovery", "--selector", "$(INFERENCESERVICE_NAME)"]))
    assert not router.names_leaders(composed())


def names(deployment: dict[str, Any]) -> dict[str, Any]:
    """Return the environment variables of the router."""
    return {one["name"]: one.get("value") for one in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}


def test_router_config_variables_follow_own_ones_and_override_the_runner() -> None:
    found = names(
        deployed({"config": {"B": "2", "A": "$(POD_IP)"}}, env=[{"name": "B", "value": "1"}, {"name": "C", "value": "$(A)"}])
    )
    assert list(found) == ["INFERENCESERVICE_NAME", "NAMESPACE", "POD_NAME", "POD_IP", "A", "B", "C"]
    assert found["B"] == "2"
    assert names(deployed({"config": {"NAMESPACE": "x"}}))["NAMESPACE"] == "x"


GRACE: list[tuple[dict[str, Any], int, int]] = [
    ({}, 15, 205),
    ({"args": ["--shutdown-grace-period-secs", "20"]}, 15, 45),
    ({"args": ["--shutdown-grace-period-secs=20"]}, 15, 45),
    ({"command": ["router", "--shutdown-grace-period-secs=0"]}, 15, 25),
    ({"args": ["--shutdown-grace-period-secs", "²"]}, 15, 205),
    ({"args": ["--shutdown-grace-period-secs=" + "9" * 5000]}, 15, 205),
]


@pytest.mark.parametrize(("box", "pause", "grace"), GRACE)
def test_router_has_a_pre_stop_pause_and_a_grace_period(box: dict[str, Any], pause: int, grace: int) -> None:
    spec = deployed(None, **box)["spec"]["template"]["spec"]
    assert spec["containers"][0]["lifecycle"] == {"preStop": {"sleep": {"seconds": pause}}}
    assert spec["terminationGracePeriodSeconds"] == grace


def lifecycle(seconds: int, **box: Any) -> Any:
    """Return the lifecycle hooks of the router in a pod with this grace period."""
    spec = deployed({"terminationGracePeriodSeconds": seconds}, **box)["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] == seconds
    return spec["containers"][0].get("lifecycle")


def test_pre_stop_pause_is_shorter_than_a_user_defined_grace_period() -> None:
    assert lifecycle(2) == {"preStop": {"sleep": {"seconds": 1}}}
    assert lifecycle(1) is None
    assert lifecycle(600) == {"preStop": {"sleep": {"seconds": 15}}}


def test_user_pre_stop_hook_is_kept_and_post_start_is_combined() -> None:
    theirs = {"preStop": {"exec": {"command": ["x"]}}}
    assert lifecycle(60, lifecycle=theirs) == theirs
    started = {"postStart": {"exec": {"command": ["x"]}}}
    assert lifecycle(60, lifecycle=started) == {**started, "preStop": {"sleep": {"seconds": 15}}}


def test_router_role_only_permits_reading_pods() -> None:
    account, role, binding = router.access(OWNER, composed())
    assert (account["kind"], role["kind"], binding["kind"]) == ("ServiceAccount", "Role", "RoleBinding")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "svc-router", "namespace": "team"}]
    assert deployed()["spec"]["template"]["spec"]["serviceAccountName"] == "svc-router"


def test_role_is_bound_to_a_user_defined_service_account() -> None:
    """The router's Role is bound to the ServiceAccount that the router really uses, which may be one of the user (decisions
    23).
    """
    role, binding = router.access(OWNER, composed({"serviceAccountName": "own"}))
    assert role["kind"] == "Role"
    assert binding["subjects"][0]["name"] == "own"
    assert deployed({"serviceAccountName": "own"})["spec"]["template"]["spec"]["serviceAccountName"] == "own"


WATCHED: dict[str, tuple[list[str], bool]] = {
    "discovery": (["--service-discovery"], True),
    "prefill and decode": (["--pd-disaggregation"], True),
    "the user's own interval": (["--service-discovery", "--health-check-interval-secs", "9"], False),
    "started by the image": (["--pd-disaggregation"], True),
    "no checks": (["--service-discovery", "--disable-health-check"], False),
    "workers by name": (["--worker-urls", "http://a"], False),
}


@pytest.mark.parametrize("case", WATCHED)
def test_sglang_routers_get_a_short_discovery_interval(case: str) -> None:
    args, added = WATCHED[case]
    command = [] if "image" in case else ["python3", "-m", "sglang_router.launch_router"]
    spec = deployed(command=command, args=args)["spec"]["template"]["spec"]
    assert spec["containers"][0]["args"] == [*args, *(["--health-check-interval-secs=5"] if added else [])]


def test_arguments_of_other_routers_and_shells_are_unchanged() -> None:
    for command in (["nginx", "--service-discovery"], ["sh", "-c", "smg launch --service-discovery"]):
        spec = deployed(command=command)["spec"]["template"]["spec"]
        assert "args" not in spec["containers"][0]


REPLACED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing is said": ({}, {"maxUnavailable": 0, "maxSurge": 1}),
    "more at a time": ({"rollingUpdate": {"maxSurge": "50%"}}, {"maxUnavailable": 0, "maxSurge": "50%"}),
    "in place": ({"rollingUpdate": {"maxSurge": 0}}, {"maxUnavailable": 1, "maxSurge": 0}),
    "some may be missing": ({"rollingUpdate": {"maxUnavailable": 2}}, {"maxUnavailable": 2, "maxSurge": 1}),
    "both zero, which the API refuses": (
        {"rollingUpdate": {"maxUnavailable": "0%", "maxSurge": 0}},
        {"maxUnavailable": "0%", "maxSurge": 1},
    ),
    "a type that nobody knows": ({"type": "Sometimes"}, {"maxUnavailable": 0, "maxSurge": 1}),
}


@pytest.mark.parametrize("case", REPLACED)
def test_router_deployment_strategy_from_the_spec(case: str) -> None:
    asked, bounds = REPLACED[case]
    part = Component.read({"deploymentStrategy": asked} if asked else {})
    rolling = {"strategy": {"type": "RollingUpdate", "rollingUpdate": bounds}}
    assert router.replacement(part, None) == router.replacement(None, part) == rolling
    assert bool(router.advice(part, "spec.router")) == ("type" in asked)


def test_deployment_strategy_of_the_service_overrides_the_runtime() -> None:
    below = Component.read({"deploymentStrategy": {"type": "Recreate"}, "lifecycle": {"minReadySeconds": 3}})
    above = Component.read({"deploymentStrategy": {"rollingUpdate": {"maxSurge": 2}}})
    assert router.replacement(None, below) == {"strategy": {"type": "Recreate"}, "minReadySeconds": 3}
    assert router.replacement(above, below)["strategy"]["rollingUpdate"]["maxSurge"] == 2
    settings = router.RouterSettings(replaced=router.replacement(None, below))
    spec = router.deployment(OWNER, "r1", composed(), 1, Sidecar(""), settings)["spec"]
    assert spec["minReadySeconds"] == 3 and "rollingUpdate" not in spec["strategy"]
