"""Tests of options that exclude each other, and of options that an existing cluster does not have: each leads to a
message.
"""

import pytest

from ome_local.options import option_error
from ome_local.spec import Spec

NEWER = Spec(kubernetes="1.36.3")
NATIVE, REAL, KIND, TWO = Spec(), Spec(real_node=True), Spec(kind=True), Spec(kind=True, workers=2)


@pytest.mark.parametrize(
    ("kept", "wanted", "sentence"),
    [
        (
            None,
            Spec(kind=True, real_node=True),
            "the nodes of kind are real nodes already: leave out --real-node or --kind.",
        ),
        (None, Spec(kind=True, audit=True), "--audit: kind starts its own API server and controllers, without it. "),
        (None, Spec(kind=True, audit=True, fast=True), "--audit and --fast: kind starts its own API server"),
        (KIND, Spec(fast=True), "--fast: kind starts its own API server and controllers, without it. "),
        (
            None,
            Spec(workers=2),
            "--workers 2: only kind has worker nodes. Leave out --workers, or add --kind to a new cluster.",
        ),
        (NATIVE, KIND, "Cluster mine was created without kind: remove the cluster first, or choose another name."),
        (KIND, REAL, "Cluster mine was created with --kind, and its nodes are real already: leave out --real-node."),
        (NATIVE, REAL, "Cluster mine was created without a real node: remove the cluster first, or choose another name."),
        (
            None,
            Spec(kind=True, kubernetes="1.37.2"),
            "--kubernetes 1.37.2: the node image of kind determines the version of Kubernetes.",
        ),
        (None, Spec(real_node=True, kubernetes="1.37.2"), "--kubernetes 1.37.2: the real node's kubelet is 1.34.2."),
        (REAL, Spec(kubernetes="1.35.4"), "--kubernetes 1.35.4: the real node's kubelet is 1.34.2."),
        (
            NATIVE,
            NEWER,
            "Cluster mine runs Kubernetes 1.34.2 and can only be upgraded by one minor version at a "
            "time: 1.35 is the next version.",
        ),
        (
            NEWER,
            Spec(kubernetes="1.35.4"),
            "Cluster mine runs Kubernetes 1.36.3 and can only be upgraded by one minor version at a "
            "time: a downgrade is not possible",
        ),
        (
            TWO,
            Spec(workers=3),
            "--workers 3: cluster mine was created with 2, and kind cannot add workers: remove the cluster first",
        ),
    ],
)
def test_incompatible_options_are_refused(kept: Spec | None, wanted: Spec, sentence: str) -> None:
    assert option_error("mine", kept, wanted).startswith(sentence)


@pytest.mark.parametrize(
    ("kept", "wanted"),
    [
        (NATIVE, Spec(kubernetes="1.35.4")),
        (NEWER, NEWER),
        (NEWER, NATIVE),
        (None, NEWER),
        (None, NATIVE),
        (None, TWO),
        (None, REAL),
        (KIND, NATIVE),
        (KIND, KIND),
        (TWO, KIND),
        (TWO, TWO),
        (REAL, NATIVE),
    ],
)
def test_compatible_options_are_accepted(kept: Spec | None, wanted: Spec) -> None:
    """Options that fit together and fit the existing cluster are accepted. For example, `up` of an existing cluster needs
    none of the options of its creation.
    """
    assert option_error("mine", kept, wanted) == ""
