"""Tests of the annotations that keep node autoscalers from removing the nodes of a service."""

from collections.abc import Iterator

import pytest

from ome_operator.core.rollout.node_scale_down import FORBIDDEN
from tests.support import yamls
from tests.support.rig import Manifest, Rig


@pytest.fixture
def pairs(rig: Rig, namespace: str) -> Iterator[str]:
    """Yield the name of a runtime whose groups have two pods."""
    name = f"pairs-{namespace}"
    rig.create(yamls.runtime(name, size=2))
    yield name
    rig.delete("ClusterServingRuntime", "", name)


def test_running_pods_are_annotated_and_not_restarted(rig: Rig, namespace: str, pairs: str) -> None:
    def annotated(wanted: Manifest) -> bool:
        return all(
            {key: value for key, value in one["metadata"].get("annotations", {}).items() if key in FORBIDDEN} == wanted
            for one in rig.all("Pod", namespace, "component=engine")
        )

    rig.create(yamls.service(namespace, "kept", pairs))
    rig.ready(namespace, "kept", 60)
    pods = {one["metadata"]["uid"] for one in rig.all("Pod", namespace)}
    assert len(pods) == 3 and annotated({})
    rig.patch("InferenceService", namespace, "kept", {"spec": {"engine": {"nodeScaleDown": "Forbid"}}})
    rig.wait("both annotations on both ranks", lambda: annotated(FORBIDDEN))
    rig.wait_until_quiet()
    rig.patch("InferenceService", namespace, "kept", {"spec": {"engine": {"nodeScaleDown": None}}})
    rig.wait("they are removed", lambda: annotated({}))
    rig.wait_until_quiet()
    assert {one["metadata"]["uid"] for one in rig.all("Pod", namespace)} == pods
    assert len({one["metadata"]["labels"]["ome.io/revision"] for one in rig.all("Pod", namespace)}) == 1
