"""Names: unique, stable, and within limits that the API server enforces late or quietly (decisions 18)."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ome_operator import keys, names

services = st.from_regex(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?", fullmatch=True)
revisions = st.from_regex(r"[0-9a-f]{8}", fullmatch=True)
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


@given(services, revisions, st.integers(0, 9999))
def test_every_name_fits(service: str, revision: str, group: int) -> None:
    for component in (keys.ENGINE, keys.DECODER, keys.ROUTER):
        worker = names.worker(service, component, revision, group)
        assert len(worker) <= 52, "a pod's revision label is <StatefulSet>-<10 characters>"
        assert len(names.leader(service, component, revision)) <= names.STEM
        assert len(names.router(service, revision)) + len("-5b9f8c7d6f-x2x4z") <= 63, "router pods are host names"
        everything = (
            worker,
            names.component(service, component),
            names.headless(service),
            names.revision_object(service, revision),
            names.budget(service, component, revision),
        )
        assert all(DNS_LABEL.fullmatch(name) for name in everything), everything


@given(services, services, revisions)
def test_long_services_do_not_share_names(one: str, other: str, revision: str) -> None:
    same = names.leader(one, keys.ENGINE, revision) == names.leader(other, keys.ENGINE, revision)
    assert same == (one == other)


def test_short_names_are_readable() -> None:
    assert names.worker("kimi", "decoder", "44924f87", 3) == "kimi-decoder-44924f87-3"


def test_a_long_name_keeps_its_beginning_and_never_ends_in_a_dash() -> None:
    fitted = names.fit("a" * 37 + "-" * 5 + "b" * 10, 46)
    assert fitted.startswith("a" * 37 + "-") and "--" not in fitted and len(fitted) <= 46


@pytest.mark.parametrize(
    ("kind", "namespace", "name", "label"),
    [
        ("ClusterBaseModel", "", "kimi-k2", "models.ome.io/clusterbasemodel.kimi-k2"),
        ("BaseModel", "team", "kimi-k2", "models.ome.io/team.basemodel.kimi-k2"),
    ],
)
def test_model_labels(kind: str, namespace: str, name: str, label: str) -> None:
    assert names.model_label(kind, namespace, name) == label


@given(st.text("abc-.", min_size=1, max_size=120))
def test_model_labels_fit_a_label_name(name: str) -> None:
    part = names.model_label("ClusterBaseModel", "", f"x{name}x").partition("/")[2]
    assert len(part) <= 63 and part[-1] not in "-."


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert names.digest({"a": 1, "b": [1, 2]}) == names.digest({"b": [1, 2], "a": 1}) != names.digest({"a": 1, "b": [2, 1]})
