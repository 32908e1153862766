"""Tests that `ome diff` names the claims, Secrets and ConfigMaps that the pods need and that do not exist."""

from typing import Any

import pytest

from ome_operator.api.pod_fields import field_forms
from ome_operator.cli.live.pod_references import find_missing_references
from ome_operator.cli.live.preview import preview
from ome_operator.core.observed.objects import Ref
from ome_operator.core.podspec.named_objects import CLAIM, CONFIG_MAP, SECRET, references
from ome_operator.describe.outcome import compute_outcome
from ome_operator.kube.errors import Forbidden, NotFound
from tests.support import parts, yamls
from tests.support.fake_api import Call, FakeApi
from tests.unit.cli.live import test_preview as clusters

ABSENT = NotFound("not found", 404)
SAID = "does not exist in namespace team, so the pods that name it do not start: create it, or name another"


def on_claim(api: FakeApi, answer: Any) -> FakeApi:
    """Return a cluster with a model on the claim `weights`. `answer` is the API server's answer to a request for the claim's
    metadata.
    """
    model = yamls.model("tiny", "pvc://weights/tiny")
    listed = api.answers["list_objects"]
    api.answers["list_objects"] = lambda call: [model] if call.kind == "ClusterBaseModel" else listed(call)
    api.answers["get_metadata"] = answer
    return api


async def sentence(api: FakeApi, others: Any = (), **engine: Any) -> str:
    """Return the lines of `ome diff` about a service that mounts the claim. `others` are further objects in the files."""
    (forecast,) = (await preview(api, [clusters.service(**engine)], (), others)).services
    return forecast.sentence


async def test_missing_claim_of_a_new_service_is_reported() -> None:
    api = on_claim(clusters.empty(clusters.NODES), ABSENT)
    assert (await sentence(api)).endswith(f"6 objects added. But PersistentVolumeClaim weights {SAID} PersistentVolumeClaim")
    assert [call for call in api.calls if call.verb == "get_metadata"] == [
        Call("get_metadata", CLAIM, "weights", namespace="team")
    ]


@pytest.mark.parametrize(
    "answer", [{"metadata": {"name": "weights"}}, Forbidden("persistentvolumeclaims is forbidden", 403)]
)
async def test_existing_or_unreadable_claim_is_not_reported(answer: Any) -> None:
    assert "But" not in await sentence(on_claim(clusters.empty(clusters.NODES), answer))


async def test_claim_in_the_same_files_counts_as_existing() -> None:
    api = on_claim(clusters.empty(clusters.NODES), ABSENT)
    assert "But" not in await sentence(api, {Ref(CLAIM, "team", "weights")})
    assert SAID in await sentence(api, {Ref(CLAIM, "other", "weights")})


async def test_missing_reference_is_reported_for_an_edit_of_a_serving_service() -> None:
    """A missing claim, Secret or ConfigMap is also reported for an edit of a service that serves. The pods of the old
    revision end first, so the service would not serve any more.
    """
    api = clusters.live(clusters.NODES)
    api.answers["get_metadata"] = ABSENT
    source = {"secretKeyRef": {"name": "token", "key": "hub"}}
    told = await sentence(api, runner={"env": [{"name": "TOKEN", "valueFrom": source}]})
    assert "answers no requests meanwhile" in told and told.endswith(f". But Secret token {SAID} Secret")


def test_references_are_found_in_every_part_of_a_pod() -> None:
    """References are found in every part of a pod that can contain one: in volumes, projected sources, and sources of
    environment variables.
    """
    pod = {
        "volumes": [
            {"name": "a", "persistentVolumeClaim": {"claimName": "claim"}},
            {"name": "b", "configMap": {"name": "map"}},
            {"name": "c", "secret": {"secretName": "secret"}},
            {"name": "d", "projected": {"sources": [{"configMap": {"name": "map-p"}}, {"secret": {"name": "secret-p"}}]}},
            {"name": "e", "secret": {"secretName": "optional", "optional": True}},
            {"name": "f", "hostPath": {"path": "/x"}},
        ],
        "initContainers": [{"name": "i", "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "secret-i"}}}]}],
        "containers": [
            {
                "name": "c",
                "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "map-e"}}}],
                "envFrom": [
                    {"secretRef": {"name": "secret-f"}},
                    {"configMapRef": {"name": "map-f"}},
                    {"configMapRef": {"name": "optional", "optional": True}},
                ],
            }
        ],
    }
    assert set(references(pod)) == {
        (CLAIM, "claim"),
        *((CONFIG_MAP, name) for name in ("map", "map-p", "map-e", "map-f")),
        *((SECRET, name) for name in ("secret", "secret-p", "secret-i", "secret-f")),
    }


@pytest.mark.parametrize("wrong", ["text", ["text"], [[]], {"name": 1}, 1, True])
def test_malformed_reference_names_no_object(wrong: Any) -> None:
    """A malformed reference, such as `secret: NAME` in place of a map, names no object and causes no error. The operator
    and the commands read pods as users wrote them.
    """
    container = {"name": "c", "env": [{"name": "A", "valueFrom": wrong}], "envFrom": [{"secretRef": wrong}, wrong]}
    volumes = [
        {"name": "v", "secret": wrong},
        {"name": "p", "projected": wrong},
        {"name": "q", "projected": {"sources": wrong}},
    ]
    for pod in (
        {"volumes": volumes, "containers": [container]},
        {"volumes": wrong, "containers": wrong, "initContainers": [wrong]},
        {"containers": [{"name": "c", "env": wrong, "envFrom": wrong}]},
    ):
        assert list(references(pod)) == []


@pytest.mark.parametrize(
    ("type_", "known"),
    [
        ("Volume", {"persistentVolumeClaim", "configMap", "secret"}),
        ("VolumeProjection", {"configMap", "secret"}),
        ("EnvVarSource", {"configMapKeyRef", "secretKeyRef"}),
        ("EnvFromSource", {"configMapRef", "secretRef"}),
    ],
)
def test_all_kubernetes_reference_fields_are_covered(type_: str, known: set[str]) -> None:
    words = ("configMap", "secret", "persistentVolumeClaim")
    assert {name for name in field_forms(type_) if name.startswith(words)} == known


@pytest.mark.parametrize(("sample", "generated"), [("kimi-k2-pd", "svc-router-key"), ("kimi-k2-trtllm", "svc-ssh")])
async def test_generated_secret_is_not_reported_as_missing(sample: str, generated: str) -> None:
    """The key of a router and the SSH key of an engine over MPI are not reported as missing, because the operator creates
    these Secrets.
    """
    service, deps = parts.shipped_service(f"moonshotai/{sample}.yaml")
    after = compute_outcome(service, deps)
    assert after.generated == {generated.replace("svc", service.name)}
    said = await find_missing_references(FakeApi({"get_metadata": ABSENT}), after, service.namespace, ())
    assert not any(name in sentence for sentence in said for name in after.generated)
