"""Tests of how an adoption treats OME's CRDs and objects."""

import copy
from typing import Any

import pytest

from ome_operator.adopt.crds import Release, dropped_fields, own_kind, rejection_reason, replacement
from ome_operator.api import crds
from ome_operator.api.kinds import KINDS, Kind
from tests.unit.api import known

RELEASE = Release("ome-crd", "ome")
SERVICE = next(kind for kind in KINDS if kind.kind == "InferenceService")
MODEL = next(kind for kind in KINDS if kind.kind == "ClusterBaseModel")


def live(kind: Kind, **spec: Any) -> dict[str, Any]:
    body = copy.deepcopy(crds.crd(kind))
    body["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "theirs": "stays"}
    return {**body, "spec": {**body["spec"], **spec}, "status": {"storedVersions": ["v1beta1"]}}


def test_crd_is_replaced_once_and_keeps_foreign_annotations() -> None:
    wanted = replacement(live(SERVICE, conversion={"strategy": "Webhook", "webhook": {}}), SERVICE, RELEASE)
    assert wanted is not None
    assert wanted["spec"]["conversion"] == {"strategy": "None"}
    assert wanted["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "Helm"}
    assert wanted["metadata"]["annotations"] == {
        "theirs": "stays",
        "meta.helm.sh/release-name": "ome-crd",
        "meta.helm.sh/release-namespace": "ome",
        "helm.sh/resource-policy": "keep",
    }
    assert replacement(wanted, SERVICE, RELEASE) is None
    assert replacement(wanted, SERVICE, Release("other", "ome")) is not None


def test_api_server_refusal_of_a_crd_is_predicted() -> None:
    assert rejection_reason(live(SERVICE), SERVICE) == ""
    assert "instead of Namespaced" in rejection_reason(live(SERVICE, scope="Cluster"), SERVICE)
    old = live(SERVICE) | {"status": {"storedVersions": ["v1alpha1", "v1beta1"]}}
    assert "stored as v1alpha1: migrate them to v1beta1" in rejection_reason(old, SERVICE)


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"engine": {"minReplicas": 1, "anything": {"of": "a pod spec"}}, "model": {"name": "m"}}, []),
        ({"modle": {"name": "m"}}, ["spec.modle"]),
        ({"model": {"name": "m", "colour": "red"}}, ["spec.model.colour"]),
        ({"kedaConfig": {"authenticationRef": {"name": "a", "x": 1}}}, ["spec.kedaConfig.authenticationRef.x"]),
    ],
)
def test_dropped_fields_are_reported(spec: dict[str, Any], fields: list[str]) -> None:
    assert dropped_fields(SERVICE, {"spec": spec, "status": {"of": "no interest"}}) == fields


def test_dropped_fields_inside_maps_and_lists_are_found() -> None:
    storage = {"storageUri": "hf://a/b", "parameters": {"any": "key"}, "nodeAffinity": {"whatever": [{"x": 1}]}}
    assert dropped_fields(MODEL, {"spec": {"storage": storage, "modelCapabilities": ["A"]}}) == []
    runtime = next(kind for kind in KINDS if kind.kind == "ServingRuntime")
    formats = [{"name": "a"}, {"name": "b", "acceleratorConfig": {"h100": {"shade": 1}}}]
    found = dropped_fields(runtime, {"spec": {"supportedModelFormats": formats}})
    assert found == ["spec.supportedModelFormats[1].acceleratorConfig.h100.shade"]


@pytest.mark.parametrize("kind", list(known.kinds()), ids=lambda kind: kind.kind)
@pytest.mark.parametrize("leave_out", known.VARIANTS)
def test_no_field_known_to_ome_is_dropped(kind: Kind, leave_out: str) -> None:
    assert dropped_fields(kind, known.sample(kind, leave_out)) == []


def test_own_kinds_are_recognized_by_the_crd_name() -> None:
    assert own_kind("inferenceservices.ome.io") is SERVICE
    assert own_kind("trainingjobs.ome.io") is None
