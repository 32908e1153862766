"""Tests of what every engine pod gets in addition to the specs of runtime and service."""

from typing import Any

import pytest

from ome_operator.core.observed.objects import Manifest
from ome_operator.core.podspec.compose import ComposedPods, compose
from ome_operator.core.render import pod_template
from ome_operator.core.weights.mount import weights
from tests.support import parts

CONTEXT = pod_template.Context("svc", "team", "r1", [weights(parts.model())._asdict()], {})


def leader(engine: Manifest, accelerator: Manifest | None = None, uri: str = "", component: str = "engine") -> Manifest:
    """Return the leader template of a component whose configuration in the runtime has these fields."""
    context = CONTEXT._replace(accelerator=accelerator or {})
    if uri:
        context = context._replace(weights=[weights(parts.model(uri))._asdict()])
    return pod_template.leader(context, compose(component, {f"{component}Config": engine}, {}))


def main(template: Manifest) -> Manifest:
    """Return the main container."""
    found: Manifest = template["spec"]["containers"][0]
    return found


def env(template: Manifest) -> dict[str, Any]:
    """Return the variables of the main container: name -> value, or path in the downward API."""
    return {
        one["name"]: one.get("value", one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath"))
        for one in main(template)["env"]
    }


def box(**more: Any) -> Manifest:
    """Return the config of an engine with this main container."""
    return {"runner": parts.container(**more)}


def test_leader_labels_override_user_labels() -> None:
    template = leader({**box(), "labels": {"component": "mine", "team": "a", "ome.io/revision": "x"}})
    assert template["metadata"]["labels"] == {
        "team": "a",
        "component": "engine",
        "ome.io/inferenceservice": "svc",
        "ome.io/managed-by": "ome-operator",
        "ome.io/revision": "r1",
        "leaderworkerset.sigs.k8s.io/worker-index": "0",
    }


def test_users_cannot_set_leader_and_group_labels() -> None:
    """Users cannot set the labels by which leaders and groups are selected. With the label of leaders, a worker would
    receive requests. With the number of another group, a pod would count for that group.
    """
    composed = compose("engine", {"engineConfig": {**box(), **MARKED, "worker": {"size": 1, **MARKED}}}, {})
    first = pod_template.leader(CONTEXT, composed)["metadata"]["labels"]
    others = pod_template.worker(CONTEXT, composed)["metadata"]["labels"]
    assert first["leaderworkerset.sigs.k8s.io/worker-index"] == "0" and "ome.io/group" not in first
    assert not {"leaderworkerset.sigs.k8s.io/worker-index", "ome.io/group"} & others.keys()
    assert first["team"] == others["team"] == "a"


MARKED = {"labels": {"ome.io/group": "7", "leaderworkerset.sigs.k8s.io/worker-index": "5", "team": "a"}}


def test_variables_of_a_single_pod() -> None:
    assert env(leader(box(resources={"limits": {"nvidia.com/gpu": 8}}))) == {
        "INFERENCESERVICE_NAME": "svc",
        "NAMESPACE": "team",
        "POD_NAME": "metadata.name",
        "POD_IP": "status.podIP",
        "MODEL_PATH": "/models/tiny",
        "PARALLELISM_SIZE": "8",
        "LWS_GROUP_INDEX": "metadata.labels['ome.io/group']",
        "LWS_LEADER_ADDRESS": "$(POD_NAME).svc-pods.team",
        "LWS_GROUP_SIZE": "1",
        "LWS_WORKER_INDEX": "0",
    }


def test_variables_of_a_group_are_those_of_leader_worker_set() -> None:
    composed = compose(
        "engine", {"engineConfig": {**box(resources={"limits": {"nvidia.com/gpu": 8}}), "worker": {"size": 3}}}, {}
    )
    first, others = env(pod_template.leader(CONTEXT, composed)), env(pod_template.worker(CONTEXT, composed))
    assert first["PARALLELISM_SIZE"] == others["PARALLELISM_SIZE"] == "32"
    assert first["LWS_GROUP_SIZE"] == others["LWS_GROUP_SIZE"] == "4"
    assert (first["LWS_WORKER_INDEX"], others["LWS_WORKER_INDEX"]) == (
        "0",
        "metadata.labels['apps.kubernetes.io/pod-index']",
    )
    assert first["LWS_LEADER_ADDRESS"] == "$(POD_NAME).svc-pods.team"
    assert others["LWS_LEADER_ADDRESS"] == "svc-engine-r1-$(LWS_GROUP_INDEX)-0.svc-pods.team"
    assert first["LWS_GROUP_INDEX"] == others["LWS_GROUP_INDEX"] == "metadata.labels['ome.io/group']"


def test_worker_labels_do_not_match_the_leader_selector() -> None:
    composed = compose("engine", {"engineConfig": {**box(), "worker": {"size": 1}}}, {})
    assert "leaderworkerset.sigs.k8s.io/worker-index" not in pod_template.worker(CONTEXT, composed)["metadata"]["labels"]


ENVS: dict[str, tuple[list[Manifest], list[str]]] = {
    "ours come first": ([{"name": "X", "value": "$(A)"}], ["A", "B", "X"]),
    "a plain one of the user takes our place": ([{"name": "X"}, {"name": "A", "value": "mine"}], ["A", "B", "X"]),
    "one of the user that refers to others stays behind them": (
        [{"name": "X"}, {"name": "A", "value": "$(X)"}],
        ["B", "X", "A"],
    ),
}


@pytest.mark.parametrize("case", ENVS)
def test_variables_follow_the_variables_that_they_reference(case: str) -> None:
    """A variable stands after the variables to which it refers, because Kubernetes expands only references to earlier
    variables.
    """
    theirs, order = ENVS[case]
    ours = [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)"}]
    found = pod_template.add_env({"env": theirs}, ours)["env"]
    assert [one["name"] for one in found] == order
    assert all(one in found for one in theirs)


def test_user_defined_pod_name_variable_precedes_the_leader_address() -> None:
    """A variable POD_NAME of the user stands before the variable with the leader's address, which refers to it. Runtimes for
    OME define POD_NAME themselves.
    """
    theirs = {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    names = list(env(leader({**box(env=[{"name": "X", "value": "1"}, theirs]), "worker": {"size": 1}})))
    assert names.index("POD_NAME") < names.index("LWS_LEADER_ADDRESS") < names.index("X")


def test_model_is_mounted_unless_the_user_mounts_its_path() -> None:
    (mount,) = main(leader(box()))["volumeMounts"]
    assert mount == {"name": "model", "mountPath": "/models/tiny", "readOnly": True}
    own = {"name": "mine", "mountPath": "/models/tiny/"}
    assert main(leader(box(volumeMounts=[own])))["volumeMounts"] == [own]


def test_user_volume_named_model_is_kept() -> None:
    theirs = {"name": "model", "emptyDir": {}}
    template = leader({**box(volumeMounts=[{"name": "model", "mountPath": "/cache"}]), "volumes": [theirs]})
    assert [one["name"] for one in template["spec"]["volumes"]] == ["model", "model-weights"]
    assert {"name": "model-weights", "mountPath": "/models/tiny", "readOnly": True} in main(template)["volumeMounts"]


def terms(template: Manifest) -> list[list[str]]:
    """Return the keys of the required node expressions of each alternative."""
    required = template["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return [[one["key"] for one in term["matchExpressions"]] for term in required["nodeSelectorTerms"]]


def test_model_requirement_is_added_to_every_affinity_term() -> None:
    label = "models.ome.io/clusterbasemodel.tiny"
    assert terms(leader(box())) == [[label]]
    given = [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"matchFields": []}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": given}}
    other = {"podAntiAffinity": {"x": 1}}
    template = leader({**box(), "affinity": {"nodeAffinity": required, **other}})
    assert terms(template) == [["a", label], [label]]
    assert template["spec"]["affinity"]["podAntiAffinity"] == {"x": 1}


def test_model_on_a_claim_requires_no_node_affinity() -> None:
    assert "affinity" not in leader(box(), uri="pvc://weights")["spec"]


def test_only_leaders_get_the_grace_period_of_the_longest_request() -> None:
    composed = compose("engine", {"engineConfig": {**box(), "worker": {"size": 1}, "timeoutSeconds": 600}}, {})
    assert pod_template.leader(CONTEXT, composed)["spec"]["terminationGracePeriodSeconds"] == 615
    assert "terminationGracePeriodSeconds" not in pod_template.worker(CONTEXT, composed)["spec"]
    assert leader({**box(), "timeoutSeconds": 1})["spec"]["terminationGracePeriodSeconds"] == 30
    assert (
        leader({**box(), "timeoutSeconds": 60, "terminationGracePeriodSeconds": 5})["spec"]["terminationGracePeriodSeconds"]
        == 5
    )
    assert "terminationGracePeriodSeconds" not in leader({**box(), "timeoutSeconds": 0})["spec"]


def test_user_settings_of_the_pod_override_defaults() -> None:
    spec = leader({**box(terminationMessagePolicy="File"), "automountServiceAccountToken": True})["spec"]
    assert spec["automountServiceAccountToken"] is True
    assert spec["enableServiceLinks"] is False
    assert spec["containers"][0]["terminationMessagePolicy"] == "File"


def test_an_accelerator_adds_nodes_arguments_variables_and_parallelism() -> None:
    chosen = {
        "nodeSelector": {"gpu": "h200", "zone": "x"},
        "args": ["--tp=16"],
        "env": {"A": "2", "C": "3"},
        "parallelism": 16,
    }
    template = leader(
        {**box(args=["--tp=8", "--x"], env=[{"name": "A", "value": "1"}]), "nodeSelector": {"zone": "a"}}, chosen
    )
    assert template["spec"]["nodeSelector"] == {"gpu": "h200", "zone": "a"}
    assert main(template)["args"] == ["--x", "--tp=16"]
    assert {"A": "2", "C": "3", "PARALLELISM_SIZE": "16"}.items() <= env(template).items()


SGLANG = ["python3", "-m", "sglang.launch_server"]


@pytest.mark.parametrize(
    ("args", "accelerator", "found"),
    [
        (["--tp-size=16", "--x"], {"parallelism": 8}, ["--tp-size=8", "--x"]),
        (["--tensor-parallel-size", "16", "--pp-size", "1"], {"parallelism": 8, "pipeline": 2},
         ["--tensor-parallel-size", "4", "--pp-size", "2"]),
        (["--tp-size=$(PARALLELISM_SIZE)"], {"parallelism": 8}, ["--tp-size=$(PARALLELISM_SIZE)"]),
        (["--tp-size=16"], {"parallelism": 8, "args": ["--tp-size=4"]}, ["--tp-size=4"]),
        (["--tp-size=16"], {"parallelism": 8, "own": ["--tp-size"]}, ["--tp-size=16"]),
        (["--moe-dense-tp-size=1", "--tp-size=16"], {"parallelism": 8}, ["--moe-dense-tp-size=1", "--tp-size=8"]),
        (["--tp-size=16"], {}, ["--tp-size=16"]),
    ],
)  # fmt: skip
def test_engine_arguments_follow_the_parallelism_of_the_accelerator_class(
    args: list[str], accelerator: Manifest, found: list[str]
) -> None:
    """If an accelerator class changes the parallelism, the engine's own arguments are changed, too. Previously, only
    PARALLELISM_SIZE was changed, so a runtime that states its size as a number ran with the wrong size.
    """
    assert main(leader(box(command=SGLANG, args=args), accelerator))["args"] == found


def test_parallelism_in_a_shell_command_is_also_changed() -> None:
    line = "exec vllm serve m --tensor-parallel-size 16 \\\n  --pipeline-parallel-size=1 --port 1"
    template = leader(box(command=["bash", "-c", line]), {"parallelism": 8, "pipeline": 2})
    assert main(template)["command"][2] == line.replace("size 16", "size 4").replace("size=1 ", "size=2 ")


PORTS: dict[str, tuple[Manifest, int]] = {
    "the one called http": ({"ports": [{"containerPort": 1, "name": "metrics"}, {"containerPort": 2, "name": "http"}]}, 2),
    "the one whose name begins so": ({"ports": [{"containerPort": 1}, {"containerPort": 2, "name": "http1"}]}, 2),
    "the first": ({"ports": [{"containerPort": 3}, {"containerPort": 4}], "args": ["--port=5"]}, 3),
    "--port=": ({"args": ["--x", "--port=6"]}, 6),
    "--port and a number": ({"command": ["serve", "--port", "7"]}, 7),
    "in a shell script": ({"command": ["sh", "-c"], "args": ["exec serve --port 8 --x"]}, 8),
    "a variable says nothing": ({"args": ["--port=$(PORT)"]}, 8080),
    "nothing": ({}, 8080),
}


@pytest.mark.parametrize("case", PORTS)
def test_port_of_container_is_found(case: str) -> None:
    container, found = PORTS[case]
    assert pod_template.port(container) == found


SERVER = {"name": "ome-container", "image": "sglang:0.5.23", "command": ["sglang", "serve"]}
TRACED = CONTEXT._replace(collector="c:4317", title="decode")


def group_of_two(leader: dict[str, Any], worker: dict[str, Any]) -> ComposedPods:
    engine = {"leader": {"runner": leader}, "worker": {"size": 1, "runner": worker}, "containers": [{"name": "side"}]}
    return compose("engine", {"engineConfig": engine}, {})


def test_every_rank_of_a_group_sends_spans() -> None:
    composed = group_of_two(SERVER, SERVER)
    assert pod_template.traces_refusal(TRACED, composed) == ""
    for template in (pod_template.leader(TRACED, composed), pod_template.worker(TRACED, composed)):
        main, side = template["spec"]["containers"]
        assert main["args"] == ["--enable-trace", "--otlp-traces-endpoint=c:4317"]
        assert "OTEL_SERVICE_NAME" in env_names(main) and "OTEL_SERVICE_NAME" not in env_names(side)


def test_group_sends_no_spans_if_one_of_its_ranks_cannot() -> None:
    unable = {"name": "ome-container", "image": "own:1"}
    assert pod_template.traces_refusal(TRACED, group_of_two(SERVER, unable)).startswith(
        "annotation ome.io/otlp-traces-endpoint is not applied to the decode: its container starts no known SGLang program"
    )


def test_preflight_check_copies_settings_added_by_other_features() -> None:
    composed = group_of_two(SERVER, SERVER)
    spec = pod_template.leader(TRACED._replace(preflight="Enforce"), composed)["spec"]
    (check,) = spec["initContainers"]
    assert check["args"] == spec["containers"][0]["args"] and "OTEL_SERVICE_NAME" in env_names(check)


def env_names(container: dict[str, Any]) -> set[str]:
    return {variable["name"] for variable in container.get("env") or ()}
