"""Tests of the facts that are derived from given manifests."""

from ome_operator.api import InferenceService
from ome_operator.cli.live.cluster_from_manifests import build_cluster, merge_edit, ref_of_body
from ome_operator.core.observed.objects import Ref
from tests.support import yamls

LIVE = {
    **yamls.service("team", "svc", "rt"),
    "metadata": {
        "name": "svc", "namespace": "team", "uid": "u", "resourceVersion": "7", "generation": 3,
        "labels": {"a": "1"}, "annotations": {"kept": "yes"},
    },
    "status": {"runtime": "rt"},
}  # fmt: skip


def test_merged_edit_keeps_server_fields_of_the_live_object() -> None:
    edit = yamls.service("team", "svc", "other")
    edit["metadata"] |= {"labels": {"b": "2"}, "uid": "of an older one"}
    found = merge_edit(edit, LIVE)
    assert found["spec"]["runtime"] == {"name": "other"} and found["status"] == {"runtime": "rt"}
    metadata = found["metadata"]
    assert (metadata["uid"], metadata["resourceVersion"], metadata["generation"]) == ("u", "8", 4)
    assert metadata["labels"] == {"a": "1", "b": "2"} and metadata["annotations"] == {"kept": "yes"}


def test_last_of_two_manifests_of_one_object_is_used() -> None:
    cluster = build_cluster([yamls.service("team", "svc", "first"), yamls.service("team", "svc", "second")])
    (kept,) = cluster.services()
    assert kept.parsed.spec.runtime.name == "second"


def test_generated_uids_are_deterministic() -> None:
    first, second = (build_cluster([yamls.service("team", name, "rt") for name in ("a", "b")]) for _ in range(2))
    uids = {one.ref: one.uid for one in first.services()}
    assert len(set(uids.values())) == 2
    assert uids == {one.ref: one.uid for one in second.services()}


def test_other_kinds_are_ignored() -> None:
    cluster = build_cluster([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}, LIVE])
    assert [one.ref for one in cluster.services()] == [Ref("InferenceService", "team", "svc")] == [ref_of_body(LIVE)]
    assert isinstance(cluster.services()[0].parsed, InferenceService)


def test_nodes_get_the_models_named_by_their_labels() -> None:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": yamls.READY}, "status": ready}
    assert build_cluster([node]).deps().holders == {next(iter(yamls.READY)): {"n"}}


def test_object_made_from_a_short_form_follows_edits_unless_user_written() -> None:
    short = {
        "apiVersion": "sglang.ai/v1", "kind": "ClusterBaseModel", "metadata": {"name": "m"},
        "spec": {"source": {"huggingface": {"repo": "a/b"}}},
    }  # fmt: skip
    which = Ref("ClusterBaseModel", "", "m")
    (made,) = [one.parsed for one in build_cluster([short]).resources["ClusterBaseModel"]]
    assert made.spec.storage.storage_uri == "hf://a/b"
    former = {**made.dump(), "metadata": {**made.dump()["metadata"], "annotations": {"ome.io/source": "older"}}}
    for there, uri in ((former, "hf://a/b"), (yamls.model("m", "hf://by/hand"), "hf://by/hand")):
        there["spec"]["storage"]["storageUri"] = there["spec"]["storage"]["storageUri"].replace("a/b", "a/old")
        kept = build_cluster([short, there]).find_resource(which)
        assert kept is not None and kept.parsed.spec.storage.storage_uri == uri
