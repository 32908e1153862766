"""Tests of the registry sidecar: which routers get it, its arguments, and its rights."""

from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from ome_operator.cli import registry as command
from ome_operator.core.observed.objects import Observed
from ome_operator.core.reconcile.sync import sync
from ome_operator.core.render import meta, registry_sidecar
from ome_operator.core.render.registry_sidecar import Groups, Sidecar
from ome_operator.core.render.statefulsets import StoredRole
from ome_operator.engines.routers import sglang_router
from ome_operator.registry.settings import SidecarSettings
from tests.support import parts
from tests.support.simulator import START

OWNER = meta.Owner("svc", "team", "u")
PD = Sidecar("ome:1", (Groups("engine", 30001, 4, "p"), Groups("decoder", 30002, 12, "d")))
ONE = Sidecar("ome:1", (Groups("engine", 8080, 1, "e"),))
BASE = ["python3", "-m", "sglang_router.launch_router"]
STANDARD = "component=engine leaderworkerset.sigs.k8s.io/worker-index=0 ome.io/inferenceservice=$(INFERENCESERVICE_NAME)"


def beside(
    *args: str, wanted: Sidecar = PD, notes: dict[str, str] | None = None, image: str = "gateway:v0.3.2", **box: Any
) -> dict[str, Any] | None:
    """Return the registry sidecar of a router with these arguments; None if the router gets none."""
    main = {"name": "router", "image": image, "command": BASE, "args": list(args), **box}
    pod = registry_sidecar.with_registry({"containers": [main]}, OWNER, "r1", notes or {}, wanted)
    boxes = pod.get("initContainers") or [None]
    assert pod["containers"] == [main] and len(boxes) == 1
    return boxes[0]


def args(**more: Any) -> list[str]:
    """Return the arguments of the sidecar of a router for prefill and decode."""
    words = more.pop("words", ["--pd-disaggregation"])
    box = beside(*words, **more)
    assert box is not None
    return [str(one) for one in box["args"]]


def test_registry_sidecar_gets_expected_arguments() -> None:
    assert args(words=["--pd-disaggregation", "--port", "8080"]) == [
        "registry",
        "--router=http://127.0.0.1:8080",
        "--namespace=team",
        "--selector=ome.io/managed-by=ome-operator,ome.io/inferenceservice=svc,ome.io/revision=r1",
        "--role=engine:prefill:30001:4:p",
        "--role=decoder:decode:30002:12:d",
        "--bootstrap-port=8998",
    ]


def test_sidecar_gets_one_role_argument_for_one_role_of_workers() -> None:
    said = args(words=["--service-discovery", "--service-discovery-port=9000"], wanted=ONE)
    assert said[4:] == ["--role=engine:regular:9000:1:e"]


def test_registry_command_parses_the_rendered_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    async def run(settings: Any) -> None:
        seen.append(settings)

    monkeypatch.setattr(command, "run", run)
    done = CliRunner().invoke(command.app, [*args()[1:], "--server=http://api"])
    assert done.exit_code == 0, done.output
    (settings,) = seen
    assert [tuple(one) for one in settings.registry.roles] == [
        ("engine", "prefill", 30001, 4, "p"),
        ("decoder", "decode", 30002, 12, "d"),
    ]


@pytest.mark.parametrize(
    "role",
    [
        "engine",
        "engine:prefill:30000:1",
        "engine:other:1:1:e",
        "engine:prefill:x:1:e",
        "engine:prefill:1:1:",
        "a:regular:1:1:e:f",
    ],
)
def test_invalid_role_argument_gives_a_short_error(role: str) -> None:
    done = CliRunner().invoke(command.app, ["--router=r", "--namespace=n", "--selector=s", f"--role={role}"])
    assert done.exit_code == 2 and "component:type:port:pods:stem" in done.output


def test_registry_sidecar_has_a_restricted_security_context() -> None:
    box = beside("--pd-disaggregation")
    assert box is not None and box["restartPolicy"] == "Always"
    safe = box["securityContext"]
    assert safe["runAsNonRoot"] and safe["readOnlyRootFilesystem"] and not safe["allowPrivilegeEscalation"]
    assert safe["capabilities"] == {"drop": ["ALL"]} and safe["seccompProfile"] == {"type": "RuntimeDefault"}
    assert "env" not in box and "volumeMounts" not in box


ADDRESSES = {
    "default": ([], "http://127.0.0.1:30000"),
    "everywhere": (["--host=0.0.0.0", "--port=80"], "http://127.0.0.1:80"),
    "one address": (["--host", "$(POD_IP)"], "http://$(POD_IP):30000"),
    "IPv6": (["--host", "fd00::1"], "http://[fd00::1]:30000"),
    "with a certificate": (["--tls-cert-path=/c", "--port=443"], "https://127.0.0.1:443"),
}


@pytest.mark.parametrize("case", ADDRESSES)
def test_registry_sidecar_gets_address_of_router(case: str) -> None:
    words, address = ADDRESSES[case]
    assert args(words=["--pd-disaggregation", *words])[1] == f"--router={address}"


METRICS: dict[str, tuple[list[str], str]] = {
    "default": (["--prometheus-port=29000", "--prometheus-host=0.0.0.0"], ""),
    "another port": (["--prometheus-port", "9100"], "http://127.0.0.1:9100/metrics"),
    "another address": (["--prometheus-host=fd00::1"], "http://[fd00::1]:29000/metrics"),
}


@pytest.mark.parametrize("case", METRICS)
def test_sidecar_gets_metrics_address_only_if_it_is_not_the_default(case: str) -> None:
    """If a router serves its metrics at the default address, the sidecar gets no argument for it, so that an upgrade of the
    operator replaces no router.
    """
    words, url = METRICS[case]
    found = [word for word in args(words=["--pd-disaggregation", *words]) if word.startswith("--router-metrics")]
    assert found == ([f"--router-metrics={url}"] if url else [])


@pytest.mark.parametrize(
    "words",
    [
        ["--port", "${PORT:-8080}"],
        ["--port=$PORT", "--prometheus-port", "$METRICS"],
        ["--host=no host"],
        ["--disaggregation-bootstrap-port=0"],
    ],
)
def test_registry_accepts_every_argument_that_the_operator_derives(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator derives arguments of the registry from those of the user's router, which may name variables of a shell. A
    registry that refused them would end at once, and the router pod would never become ready.
    """
    started: list[SidecarSettings] = []

    async def run(settings: SidecarSettings) -> None:
        started.append(settings)

    monkeypatch.setattr(command, "run", run)
    derived = args(words=["--pd-disaggregation", *words])
    given = [word.replace("$(INFERENCESERVICE_NAME)", "svc") for word in derived[1:]]
    done = CliRunner().invoke(command.app, [*given, "--namespace=team", "--server=http://127.0.0.1:1"])
    assert done.exit_code == 0, done.output
    assert len(started) == 1


def test_sidecar_gets_only_the_variables_its_key_needs() -> None:
    secret = {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    env = [secret, {"name": "OTHER", "value": "1"}, {"name": "KEY", "value": "$(SECRET)"}]
    box = beside("--pd-disaggregation", "--api-key=$(KEY)", env=env)
    assert box is not None
    assert box["args"][-2:] == ["--key=$(KEY)", "--worker-key=$(KEY)"]
    assert box["env"] == [secret, env[2]]


def test_admin_key_takes_precedence_over_api_key() -> None:
    words = ["--pd-disaggregation", "--control-plane-api-keys", "u:U:user:a", "x:X:admin:b", "--api-key", "c"]
    assert args(words=words)[-2:] == ["--key=b", "--worker-key=c"], "the other key is for workers"
    assert args(words=words[:-2])[-1] == "--key=b", "or there is no other key"


NONE: dict[str, dict[str, Any]] = {
    "workers by name": {"words": ["--pd-disaggregation", "--prefill", "http://p", "--decode", "http://d"]},
    "workers by URL": {"words": ["--service-discovery", "--worker-urls", "http://p"], "wanted": ONE},
    "labels of the user's": {"words": ["--pd-disaggregation", "--prefill-selector", "tier=a component=engine"]},
    "no discovery": {"words": ["--port=80"], "wanted": ONE},
    "no image": {"words": ["--pd-disaggregation"], "wanted": PD._replace(image="")},
    "not wanted": {"words": ["--pd-disaggregation"], "notes": {"ome.io/registry": "false"}},
    "another program": {"words": ["--pd-disaggregation"], "command": ["nginx"]},
    "too old": {"words": ["--pd-disaggregation"], "image": "r:5000/lmsysorg/sglang:v0.4.9.post2"},
    "no decode": {"words": ["--pd-disaggregation"], "wanted": ONE},
}


@pytest.mark.parametrize("case", NONE)
def test_router_without_supported_registry_gets_no_sidecar(case: str) -> None:
    given = dict(NONE[case])
    assert beside(*given.pop("words"), **given) is None


@pytest.mark.parametrize(
    "words",
    [
        ["--prefill-selector", STANDARD, "--decode-selector", STANDARD],
        [f"--prefill-selector={STANDARD}"],
        ["--selector", *STANDARD.split(), "--policy", "a=b"],
    ],
)
def test_operator_labels_in_selectors_do_not_prevent_the_sidecar(words: list[str]) -> None:
    assert beside("--pd-disaggregation", *words) is not None


@pytest.mark.parametrize("image", ["gateway:v0.3.2", "own/router", "own/router:v0.1", "sglang:v0.5.23-cu126", "a@sha256:00"])
def test_sidecar_is_added_for_images_that_may_have_the_api(image: str) -> None:
    assert beside("--pd-disaggregation", image=image) is not None


@pytest.mark.parametrize("start", [["smg", "launch"], ["/usr/bin/sglang-router"], ["sh", "-c"], []])
def test_sglang_router_is_recognized_in_each_command(start: list[str]) -> None:
    words = ["python3 -m sglang_router.launch_router --pd-disaggregation"] if "sh" in start else ["--pd-disaggregation"]
    assert sglang_router({"command": start, "args": words}) is not None


def test_order_of_stored_roles_does_not_change_sidecar_arguments() -> None:
    """The order of the stored roles does not change the sidecar's arguments. The API server returns stored data with its
    keys in another order.
    """
    leader = {
        "metadata": {"name": "l"},
        "spec": {"template": {"spec": {"containers": [{"args": ["--disaggregation-bootstrap-port=9000"]}]}}},
    }
    roles = [StoredRole(name, 2, 30000, leader, None) for name in ("engine", "decoder")]
    one, other = ({role.component: role for role in order} for order in (roles, roles[::-1]))
    assert registry_sidecar.sidecar("i", one) == registry_sidecar.sidecar("i", other)
    assert registry_sidecar.sidecar("i", one).bootstrap_port == 9000


def test_service_can_disable_the_registry_sidecar() -> None:
    service, deps = parts.kimi()
    for annotation, there in ((None, True), ("true", True), ("false", False)):
        notes = {} if annotation is None else {"ome.io/registry": annotation}
        plan = sync(replace(service, annotations={**service.annotations, **notes}), deps, Observed(), START)
        (router,) = [one.manifest for one in plan.apply if one.manifest["kind"] == "Deployment"]
        assert ("initContainers" in router["spec"]["template"]["spec"]) is there


def test_sidecar_image_uses_pull_secrets_of_the_namespace() -> None:
    """The sidecar's image is pulled with Secrets of the namespace, in addition to those of the pod. A pod without a registry
    sidecar gets none, because it uses no image of the operator.
    """
    main = {"name": "router", "args": ["--service-discovery", "--pd-disaggregation"]}
    wanted = PD._replace(pull_secrets=("own", "company"))
    pod = {"containers": [main], "imagePullSecrets": [{"name": "own"}]}
    made = registry_sidecar.with_registry(pod, OWNER, "r1", {}, wanted)
    assert made["imagePullSecrets"] == [{"name": "own"}, {"name": "company"}]
    assert registry_sidecar.with_registry(pod, OWNER, "r1", {"ome.io/registry": "false"}, wanted) == pod
