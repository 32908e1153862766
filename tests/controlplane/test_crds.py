"""Tests of the CRDs on a real API server. The server accepts the CRDs as users apply them, rejects invalid objects with a
message, and keeps every field.
"""

import json
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import yaml

from ome_local.cluster import Cluster
from ome_local.kubeapi import ApiError
from ome_operator import keys
from ome_operator.api import InferenceService, Invalid, Model, crds
from ome_operator.api.kinds import KINDS, Kind
from ome_operator.errors import UserError
from tests.support import clusters
from tests.unit.api import known
from tests.unit.api.test_parse_models import HUBS, PATHS, SIZES

SPACE = "test-crds"
NAMED = {kind.kind: kind for kind in KINDS if kind.group == keys.GROUP}


@pytest.fixture(scope="module")
def served(cluster: Cluster) -> Iterator[Cluster]:
    """Yield the cluster with the CRDs and a namespace for this module."""
    cluster.kubectl("apply", "-f", str(crds.ROOT / crds.PLAIN))
    cluster.await_crds()
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    yield cluster
    cluster.kubectl("delete", "namespace", SPACE, "--wait=false")


def body(kind: str, spec: dict[str, Any], name: str = "a") -> dict[str, Any]:
    """Return an object of group ome.io, in this module's namespace if its kind is namespaced."""
    return {
        "apiVersion": "ome.io/v1beta1",
        "kind": kind,
        "metadata": {"name": name} | ({} if kind.startswith("Cluster") else {"namespace": SPACE}),
        "spec": spec,
    }


def refusal(cluster: Cluster, manifest: dict[str, Any]) -> str:
    """Return the message with which the API server rejects an object."""
    with pytest.raises(UserError) as said:
        cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(manifest))
    return str(said.value)


def answer(cluster: Cluster, kind: Kind, manifest: dict[str, Any]) -> str:
    """Return the message of the API server for an invalid object. Requests are sent directly, because a kubectl process for
    each would take long.
    """
    place = f"namespaces/{SPACE}/{kind.plural}" if kind.namespaced else kind.plural
    with closing(cluster.api()) as api, pytest.raises(ApiError) as said:
        api.create(f"/apis/{kind.group}/{kind.version}/{place}?dryRun=All&fieldValidation=Strict", manifest)
    return str(said.value)


def test_api_server_establishes_structural_crds(served: Cluster) -> None:
    """The API server accepts the CRDs. Their schemas are structural, and the estimated cost of their validation rules is
    within the API server's limit.
    """
    for kind in KINDS:
        seen = json.loads(served.kubectl("get", "crd", kind.crd, "-o", "json"))["status"]["conditions"]
        assert {"Established", "NamesAccepted"} <= {one["type"] for one in seen if one["status"] == "True"}
        assert not [one for one in seen if one["type"] == "NonStructuralSchema"]


def test_a_second_client_side_apply_changes_nothing(served: Cluster) -> None:
    """A second client-side `kubectl apply` of the CRDs changes nothing. Users upgrade in this way, and the last-applied
    annotation holds the complete CRD.
    """
    said = served.kubectl("apply", "-f", str(crds.ROOT / crds.PLAIN)).splitlines()
    assert len(said) == len(KINDS)
    assert [line for line in said if not line.endswith(" unchanged")] == []


def test_helm_renders_what_kubectl_applies(served: Cluster) -> None:
    """The CRDs that helm renders from the chart have the same specs as the files that users apply with kubectl. They also
    have the annotation that keeps them when the chart is uninstalled.
    """
    shown = served.helm("template", "crds", str(crds.ROOT / "charts/ome-crd"))
    rendered = {one["metadata"]["name"]: one for one in yaml.load_all(shown, Loader=yaml.CSafeLoader) if one}
    for manifest in crds.crds():
        one = rendered.pop(manifest["metadata"]["name"])
        assert one["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
        assert one["spec"] == manifest["spec"]
    assert rendered == {}


@pytest.mark.parametrize("leave_out", known.VARIANTS)
@pytest.mark.parametrize("kind", list(known.kinds()), ids=lambda kind: kind.kind)
def test_every_field_of_ome_yaml_is_accepted_and_kept(served: Cluster, kind: Kind, leave_out: str) -> None:
    """The API server accepts every field that users of OME have in their YAML with strict validation, kubectl's default. It
    prunes none of them, and adds no default.
    """
    manifest = known.sample(kind, leave_out)
    if kind.namespaced:
        manifest["metadata"]["namespace"] = SPACE
    status = manifest.pop("status", {})
    where = (kind.crd, "every-field", *(("-n", SPACE) if kind.namespaced else ()))
    try:
        served.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
        default = json.loads(served.kubectl("get", *where, "-o", "json")).get("status", {})
        served.kubectl("patch", *where, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
        stored = json.loads(served.kubectl("get", *where, "-o", "json"))
    finally:
        served.kubectl("delete", *where, "--ignore-not-found")
    assert stored["spec"] == manifest["spec"]
    assert stored.get("status", {}) == {**default, **status}, "the status alone has a default (decisions 2)"


def followed(**demand: Any) -> dict[str, Any]:
    """Return the spec of a service that is scaled with its demand."""
    return {"scalingPolicy": {"demand": {"timeToFirstToken": "3s", "timeBetweenTokens": "50ms", **demand}}}


def peak(**fields: Any) -> dict[str, Any]:
    """Return the spec of a service with a known peak."""
    return followed(schedule=[{"start": "08:00", "end": "18:00", "minimum": {"engine": 2}, **fields}])


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("decoder requires an engine for prefill: add engine", {"decoder": {}}),
    ("minReplicas is greater than maxReplicas: lower", {"engine": {"minReplicas": 3, "maxReplicas": 2}}),
    ("minAvailable and maxUnavailable are mutually exclusive", {"router": {"minAvailable": 1, "maxUnavailable": 1}}),
    ('write a count such as 1, or a share such as "25%"', {"engine": {"maxUnavailable": "some"}}),
    ('write a count such as 1, or a share such as "25%"', {"rollout": {"rollingUpdate": {"maxSurge": -1}}}),
    ("class KEDA requires triggers: add keda.triggers", {"engine": {"autoscaler": {"class": "KEDA"}}}),
    ("set autoSync to false or remove revision", {"runtime": {"name": "r", "revision": "x"}}),
    ("revision pins the model", {"model": {"name": "m", "revision": "x"}}),
    ("groups, blueGreen, rollingUpdate and recreate are mutually exclusive", {"rollout": {"recreate": {}, "blueGreen": {}}}),
    (
        "canary, blueGreen, rollingUpdate and recreate are mutually exclusive",
        {"rollout": {"groups": [{"components": ["engine"], "recreate": {}, "blueGreen": {}}]}},
    ),
    ('write a duration such as "90s"', {"engine": {"lifecycle": {"instanceReadyTimeout": "soon"}}}),
    *(('write a duration such as "90s"', followed(timeToFirstToken=text)) for text in ("fast", "3", "-3s")),
    *(('write a time of day such as "08:30"', peak(start=text)) for text in ("24:00", "8:30", "8 o'clock")),
]


@pytest.mark.parametrize(("sentence", "spec"), REFUSED, ids=[sentence[:30] for sentence, _ in REFUSED])
def test_api_server_and_parser_refuse_with_the_same_message(served: Cluster, sentence: str, spec: dict[str, Any]) -> None:
    """The API server and `parse` refuse the same objects with the same message. Each rule is written in CEL for the API
    server, and in Python for `parse`.
    """
    manifest = body("InferenceService", {"model": {"name": "m"}} | spec)
    assert sentence in answer(served, NAMED["InferenceService"], manifest)
    parsed = InferenceService.parse(manifest)
    assert isinstance(parsed, Invalid)
    assert sentence in parsed.why


@pytest.mark.parametrize(
    ("name", "proposal"),
    [
        ("kimi-k2.5", "kimi-k2-5"), ("7b-chat", "m-7b-chat"), ("a" * 70, "a" * 50), ("a" * 49 + "-bc", "a" * 49),
        ("Kimi", "kimi"), ("1kimi", "m-1kimi"), ("müller", "ller"), ("k2_chat", "k2-chat"), ("ü", "kimi-k2"),
    ],
)  # fmt: skip
def test_refusal_of_an_invalid_name_proposes_a_valid_one(served: Cluster, name: str, proposal: str) -> None:
    """The refusal of an invalid name proposes a valid name. The API server and Python propose the same name."""
    manifest = body("InferenceService", {"model": {"name": "m"}}, name)
    said = refusal(served, manifest)
    assert "metadata.name: " in said
    assert re.search(rf"for example {proposal}$", said, re.MULTILINE), "the API server may append words of its own"
    parsed = InferenceService.parse(manifest)
    assert isinstance(parsed, Invalid) and parsed.why.endswith(f"for example {proposal}")
    served.kubectl(
        "apply", "--dry-run=server", "-f", "-", stdin=json.dumps(body("InferenceService", manifest["spec"], proposal))
    )


@pytest.mark.parametrize(
    ("sentence", "spec"),
    [
        *(("write a directory below the root", {"storage": {"storageUri": "hf://a/b", "path": path}}) for path in PATHS),
        *(("write hf://owner/name", {"storage": {"storageUri": uri}}) for uri in HUBS),
        *(
            ('for example "7B" or "1.04T"', {"storage": {"storageUri": "hf://a/b"}, "modelParameterSize": size})
            for size in SIZES
        ),
    ],
)
def test_unusable_models_are_refused_with_the_same_message(served: Cluster, sentence: str, spec: dict[str, Any]) -> None:
    manifest = body("ClusterBaseModel", spec)
    assert sentence in answer(served, NAMED["ClusterBaseModel"], manifest).replace('\\"', '"')
    parsed = Model.parse(manifest)
    assert isinstance(parsed, Invalid) and sentence in parsed.why


@pytest.mark.parametrize(
    ("manifest", "sentence"),
    [
        (body("InferenceService", {"model": {}}), "spec.model.name: Required value"),
        (body("InferenceService", {"model": {"name": ""}}), "spec.model.name"),
        (body("InferenceService", {"engin": {}}), 'unknown field "spec.engin"'),
        (body("InferenceService", {"rollout": {"groups": [{"component": ["x"]}]}}), 'unknown field "spec.rollout.groups'),
        (body("ClusterServingRuntime", {"engineConf": {}}), 'unknown field "spec.engineConf"'),
        (body("ClusterBaseModel", {}), "spec.storage: Required value"),
        (body("ClusterBaseModel", {"storage": {"storageUri": "ftp://x"}}), "start it with one of hf://, s3://"),
        (body("RoleScale", {"replicas": -1}), "greater than or equal to 0"),
    ],
    ids=lambda value: value if isinstance(value, str) else value["kind"],
)
def test_refusal_names_misspelled_or_missing_field(served: Cluster, manifest: dict[str, Any], sentence: str) -> None:
    """An object with a misspelled field outside inline pod specs, or without a required field, is refused with a message
    that names the field.
    """
    assert sentence in refusal(served, manifest)


@pytest.mark.parametrize(
    "spec",
    [
        {"decoder": {"autoscaler": {"class": "Magic"}}, "engine": {}}, {"engine": {"minReplicas": -1}},
        {"scalingPolicy": {"demand": {}}}, followed(timeToFirstToken=3), followed(mode="Auto"),
        *(followed(gpuBudget=value) for value in (0, "many")), followed(spare={"decoder": -1}),
        followed(changesPerHour=101), followed(requestsPerRouter=0), followed(priority=9999), followed(schedule="0 8 * * *"),
        peak(days=["Monday"]), peak(end=None), peak(minimum=None),
    ],
    ids=str,
)  # fmt: skip
def test_api_server_and_parser_refuse_the_same_scaling_settings(served: Cluster, spec: dict[str, Any]) -> None:
    manifest = body("InferenceService", {"model": {"name": "m"}} | spec)
    assert "InferenceService" in answer(served, NAMED["InferenceService"], manifest)
    assert isinstance(InferenceService.parse(manifest), Invalid)


@pytest.mark.parametrize("spec", [{}, {"model": {"name": "m"}}, {"predictor": {}}])
def test_service_without_model_and_runtime_is_accepted(served: Cluster, spec: dict[str, Any]) -> None:
    """A service whose model and runtime do not exist yet is accepted, so users can apply files in any order. A condition
    reports the missing objects.
    """
    served.kubectl("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(body("InferenceService", spec)))


def test_existing_service_with_an_invalid_name_can_still_be_updated(served: Cluster) -> None:
    """A service that was created under OME's CRD may have a name that our CRD rejects for new objects. Its status and its
    spec can still be written.
    """
    ours = next(crds.crd(kind) for kind in KINDS if kind.kind == "InferenceService")
    ours["metadata"]["name"], ours["spec"]["group"] = "inferenceservices.before.test", "before.test"
    ours["spec"]["names"]["shortNames"] = []
    schema = ours["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    rules = schema.pop("x-kubernetes-validations")
    old = body("InferenceService", {"model": {"name": "m"}}, "kimi-k2.5") | {"apiVersion": "before.test/v1beta1"}
    where = ("inferenceservices.before.test", "kimi-k2.5", "-n", SPACE)
    try:
        served.apply(ours)
        served.await_crds()
        served.apply(old)
        schema["x-kubernetes-validations"] = rules
        served.apply(ours)
        served.kubectl("patch", *where, "--subresource=status", "--type=merge", "-p", '{"status":{"url":"http://x"}}')
        served.kubectl("patch", *where, "--type=merge", "-p", '{"spec":{"deploymentMode":"RawDeployment"}}')
    finally:
        served.kubectl("delete", "crd", "inferenceservices.before.test", "--ignore-not-found")


def test_role_scale_is_scaled_through_its_scale_subresource(served: Cluster) -> None:
    """A RoleScale is scaled through its subresource `scale`, which `kubectl scale`, autoscalers and planners use."""
    role = body("RoleScale", {"replicas": 1}, "kimi-decoder")
    role["metadata"]["labels"] = {"ome.io/inferenceservice": "kimi", "component": "decoder"}
    served.apply(role)
    status = '{"status":{"replicas":1,"readyReplicas":1,"selector":"component=decoder"}}'
    where = ("rolescale", "kimi-decoder", "-n", SPACE)
    served.kubectl("patch", *where, "--subresource=status", "--type=merge", "-p", status)
    served.kubectl("scale", *where, "--replicas=4")
    scale = json.loads(served.kubectl("get", *where, "--subresource=scale", "-o", "json"))
    assert (scale["spec"]["replicas"], scale["status"]) == (4, {"replicas": 1, "selector": "component=decoder"})
    shown = served.kubectl("get", *where).splitlines()
    assert [line.split() for line in shown] == [
        ["NAME", "SERVICE", "ROLE", "REPLICAS", "READY"],
        ["kimi-decoder", "kimi", "decoder", "4", "1"],
    ]


@pytest.mark.skipif(clusters.MINOR < 32, reason="kubectl 1.31 applies no subresource")
def test_two_managers_can_apply_conditions_to_one_status(served: Cluster) -> None:
    """Conditions are merged by type: a manager that applies its conditions does not remove those of another manager."""
    served.apply(body("InferenceService", {"model": {"name": "m"}}, "two"))
    for manager, type_ in (("one", "Ready"), ("other", "RolledOut")):
        condition = {"type": type_, "status": "True", "reason": "R", "message": "m", "observedGeneration": 1}
        status = body("InferenceService", {}, "two") | {"status": {"conditions": [condition]}}
        del status["spec"]
        words = ("apply", "--server-side", f"--field-manager={manager}", "--subresource=status", "-f", "-")
        served.kubectl(*words, stdin=json.dumps(status))
    stored = json.loads(served.kubectl("get", "isvc", "two", "-n", SPACE, "-o", "json"))
    assert [one["type"] for one in stored["status"]["conditions"]] == ["Ready", "RolledOut"]


def test_kubectl_get_isvc_prints_documented_columns(served: Cluster) -> None:
    """`kubectl get isvc` shows a service in one line, with the documented columns in their order."""
    served.apply(body("InferenceService", {"model": {"name": "m"}}, "seen"))
    status = {
        "url": "http://u",
        "model": "m",
        "runtime": "r",
        "revision": "a→b",
        "conditions": [{"type": "Ready", "status": "False", "reason": "Unschedulable"}],
        "components": {"engine": {"ready": "4/4"}, "decoder": {"ready": "7/12"}, "router": {"ready": "1/1"}},
    }
    where = ("isvc", "seen", "-n", SPACE)
    served.kubectl("patch", *where, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    head, row = (line.split() for line in served.kubectl("get", *where).splitlines())
    columns = [
        "NAME", "READY", "REASON", "MODEL", "RUNTIME", "ENGINE", "DECODE", "ROUTER", "SCALED", "ROLLOUT", "REVISION",
        "FROZEN", "ADVICE", "AGE", "URL",
    ]  # fmt: skip
    assert head == columns
    assert row[:-2] == ["seen", "False", "Unschedulable", "m", "r", "4/4", "7/12", "1/1", "a→b"]
    assert row[-1] == "http://u"


def test_sglang_objects_of_the_announcement_are_accepted(served: Cluster) -> None:
    """The two objects of the group sglang.ai/v1 in the first seed are accepted as they are written there. The short name
    `clusterbasemodels` still means the kind of ome.io.
    """
    model = {"source": {"huggingface": {"repo": "kimi-ai/Kimi-K2-Chat"}}}
    serving = {"baseModel": "kimi-k2-chat", "runtime": "sglang"}
    for kind, spec in (("ClusterBaseModel", model), ("Serving", serving)):
        manifest = {"apiVersion": "sglang.ai/v1", "kind": kind, "metadata": {"name": "kimi-k2-chat"}, "spec": spec}
        served.kubectl("apply", "--dry-run=server", "-n", SPACE, "-f", "-", stdin=json.dumps(manifest))
    assert served.kubectl("explain", "clusterbasemodels").split()[:2] == ["GROUP:", "ome.io"]


def test_every_shipped_file_passes_strict_validation(served: Cluster) -> None:
    """All shipped files pass strict validation in a single apply. The message of an error names its object."""
    files = sorted(crds.ROOT.glob("config/**/*.yaml"))
    bodies = [each for path in files for each in yaml.load_all(path.read_text(), yaml.CSafeLoader) if each]
    ours = [each for each in bodies if each["apiVersion"].startswith("ome.io/")]
    for manifest in ours:
        if "namespace" in manifest["metadata"]:
            manifest["metadata"]["namespace"] = SPACE
    listed = {"apiVersion": "v1", "kind": "List", "items": ours}
    said = served.kubectl("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(listed)).splitlines()
    assert len(said) == len(ours) > 80
    assert [each for each in ours if each["kind"] in Model.KINDS and isinstance(Model.parse(each), Invalid)] == []
