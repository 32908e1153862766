"""Tests that names are unique, stable, and within limits that the API server enforces late or without a message (decisions
18).
"""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ome_operator import keys, names

services = st.from_regex(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?", fullmatch=True)
revisions = st.from_regex(r"[0-9a-f]{8}", fullmatch=True)
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


@given(services, revisions, st.integers(0, 99999))
def test_object_names_fit_dns_labels(service: str, revision: str, group: int) -> None:
    for component in (keys.ENGINE, keys.DECODER, keys.ROUTER):
        stem = names.object_prefix(service, component, revision)
        sets = (names.leader(stem, group), names.worker(stem, group))
        assert max(map(len, sets)) <= 52, "a pod's revision label is <StatefulSet>-<10 characters>"
        assert len(stem) <= names.STEM
        pull = names.image_pull(service, revision, names.digest([service, group]))
        assert len(pull) + len("-x2x4z") <= 63, "a Job's name is a label of its pods"
        assert len(names.router(service, revision)) + len("-5b9f8c7d6f-x2x4z") <= 63, "names of router pods are host names"
        everything = (
            *sets,
            names.leader_pod(stem, group),
            f"{names.worker(stem, group)}-9999",
            names.component(service, component),
            names.headless(service),
            names.revision_object(service, revision),
            names.budget(service, component, revision),
        )
        assert all(DNS_LABEL.fullmatch(name) for name in everything), everything


@given(services, services, revisions)
def test_long_service_names_do_not_collide(one: str, other: str, revision: str) -> None:
    same = names.object_prefix(one, keys.ENGINE, revision) == names.object_prefix(other, keys.ENGINE, revision)
    assert same == (one == other)


def test_short_names_are_readable() -> None:
    stem = names.object_prefix("kimi", "decoder", "44924f87")
    assert names.leader(stem, 3) == "kimi-decoder-44924f87-3"
    assert names.leader_pod(stem, 3) == "kimi-decoder-44924f87-3-0"
    assert names.worker(stem, 3) == "kimi-decoder-44924f87-3-w"


@given(services, revisions, st.integers(0, 99999))
def test_group_number_is_parsed_from_a_statefulset_name(service: str, revision: str, group: int) -> None:
    for component in (keys.ENGINE, keys.DECODER):
        stem = names.object_prefix(service, component, revision)
        assert names.group(names.leader(stem, group)) == (group, True)
        assert names.group(names.worker(stem, group)) == (group, False)
        assert names.group(stem) is None, "a StatefulSet of all leaders, even if the revision consists of digits"


@pytest.mark.parametrize("name", ["", "3", "-3", "svc", "svc-w", "svc-3-w-1-x", "svc-3-0x", "svc-123456", "svc-3-W"])
def test_other_names_have_no_group_number(name: str) -> None:
    assert names.group(name) is None


def test_shortened_name_keeps_its_prefix_without_double_dashes() -> None:
    fitted = names.shorten_with_digest("a" * 37 + "-" * 5 + "b" * 10, 46)
    assert fitted.startswith("a" * 37 + "-") and "--" not in fitted and len(fitted) <= 46


@pytest.mark.parametrize(
    ("kind", "namespace", "name", "label"),
    [
        ("ClusterBaseModel", "", "kimi-k2", "clusterbasemodel.kimi-k2"),
        ("ClusterBaseModel", "", "qwen3-coder-480b-a35b-instruct-1", "clusterbasemodel.qwen3-coder-480b-a35b-instruct-1"),
        ("ClusterBaseModel", "", "qwen3-coder-480b-a35b-instruct-fp8", "clusterbasemodel.cf97c33d--480b-a35b-instruct-fp8"),
        ("BaseModel", "team", "kimi-k2", "team.basemodel.kimi-k2"),
        ("BaseModel", "team", "qwen3-coder-480b-a35b-instruct-fp8", "team.basemodel.qwen3-coder-480b-a35b-instruct-fp8"),
        ("BaseModel", "team", "qwen3-coder-480b-a35b-instruct-fp8x", "team.basemodel.164db9a4-r-480b-a35b-instruct-fp8x"),
        ("BaseModel", "team-of-kimi", "kimi-k2-instruct-0905-fine-tuned",
         "18feaf71.basemodel.79520580-truct-0905-fine-tuned"),
        ("FineTunedWeight", "", "w" * 47, "finetunedweight." + "w" * 47),
    ],
)  # fmt: skip
def test_model_labels_are_those_of_ome(kind: str, namespace: str, name: str, label: str) -> None:
    """The labels of nodes that hold a model are those of OME v0.1.5 (pkg/constants: GetClusterBaseModelLabel,
    GetBaseModelLabel).
    """
    assert names.model_label(kind, namespace, name) == f"models.ome.io/{label}"


NAME = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,118}[a-z0-9])?", fullmatch=True)
NAMESPACE = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)


@given(NAME, NAMESPACE, st.sampled_from(["ClusterBaseModel", "BaseModel", "FineTunedWeight"]))
def test_model_labels_fit_a_label_name(name: str, namespace: str, kind: str) -> None:
    label = names.model_label(kind, namespace if kind == "BaseModel" else "", name)
    whole = names.whole_label(label, "0123abcd")
    for key in (label, whole):
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?", key.partition("/")[2]), key
    assert whole.startswith(label) or kind == "FineTunedWeight", "a label in OME's form is truncated only once"


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert names.digest({"a": 1, "b": [1, 2]}) == names.digest({"b": [1, 2], "a": 1}) != names.digest({"a": 1, "b": [2, 1]})
