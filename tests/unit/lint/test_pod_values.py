"""What an API server refuses of a pod is found without a server. tests/controlplane/test_pod_values.py asks a server about
the same cases.
"""

import pytest

from ome_operator.lint.pod_values import refusals
from tests.support import pod_values
from tests.support.pod_values import pod

CASES = list(pod_values.cases())


def test_each_value_that_is_refused_is_found_and_no_other() -> None:
    wrong = [case.what for case in CASES if bool(list(refusals(case.spec))) is not case.refused]
    assert wrong == [] and len(CASES) > 500


@pytest.mark.parametrize(
    ("spec", "says", "remedy"),
    [
        (pod(nodeSelector={"gpu": True}), "nodeSelector.gpu is true", "write a string; put quotes around"),
        (pod(terminationGracePeriodSeconds="60"), 'terminationGracePeriodSeconds is "60"', "write a whole number without"),
        (pod({"imagePullPolicy": "always"}), 'containers[0].imagePullPolicy is "always"', "write Always"),
        (pod({"ports": [{"containerPort": 70000}]}), "containers[0].ports[0].containerPort is 70000", "write a number"),
        (pod(volumes=[{"name": "v", "hostPath": "/x"}]), 'volumes[0].hostPath is "/x"', "write a map of keys and values"),
        (pod(tolerations=[{"key": "k", "effect": "NoSchedul"}]), 'tolerations[0].effect is "NoSchedul"', "write NoSch"),
        (
            pod({"resources": {"requests": {"nvidia.com/gpu": 4}}}),
            "containers[0].resources requests 4 of nvidia.com/gpu, but its limit is not given",
            "write the same number",
        ),
    ],
)  # fmt: skip
def test_the_message_names_the_field_and_what_to_write(spec: dict[str, object], says: str, remedy: str) -> None:
    (found,) = refusals(spec)
    assert found.says == says and found.remedy.startswith(remedy)
