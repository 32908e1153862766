"""Tests that the tests of each finding of the security reviews exist, and that docs/security-review.md is generated from the
rows.
"""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.controlplane.operator.test_tries_of_tenants import FORGED, TRIES
from tests.controlplane.operator.tries import ACCEPTED, REFUSED
from tests.support.review import Row, findings, page, standing, withstood_attempts
from tests.unit.agent.test_loop import BREAKING
from tests.unit.agent.test_unpack import LINKS
from tests.unit.storage.test_hashes import PLAIN, UP

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/security-review.md"
FINDINGS, HELD = findings(), withstood_attempts()
ROWS = [*FINDINGS, *HELD]


def test_every_security_finding_occurs_once() -> None:
    ids = [row.id for row in FINDINGS]
    assert [name for name, count in Counter(ids).items() if count > 1] == []
    numbers = [re.fullmatch(r"([STU])(\d+)([a-z]?)", name) for name in ids]
    assert all(numbers), ids
    first, second, others = (
        list(dict.fromkeys(int(found[2]) for found in numbers if found and found[1] == letter)) for letter in "STU"
    )
    assert first == list(range(1, 26)), "in order"
    assert others == list(range(1, 18)), "in order"
    assert second == sorted(second) and set(second) <= set(range(1, 20)), "in order, but some are still missing"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id or row.what)
def test_rows_name_existing_tests(row: Row) -> None:
    assert row.what and row.now and (row.before or not row.id)
    assert bool(row.tests) is not row.is_open, "only open rows may have no test"
    for test in row.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).is_file() and name in standing(ROOT / path), test


def test_a_test_that_nobody_wrote_is_found() -> None:
    here = Path(__file__)
    assert "test_a_test_that_nobody_wrote_is_found" in standing(here) and "standing" not in standing(here)
    pins = standing(ROOT / "tests/unit/ome_local/images/test_build.py")
    assert "TestPins::test_image_requirements_have_hashes" in pins and "test_image_requirements_have_hashes" not in pins


def test_security_review_page_is_generated_from_the_rows(update: bool) -> None:
    text = page()
    if update:
        PAGE.write_text(text, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == text, "see `pytest tests/docs/test_security_review.py --update-golden`"


NODE = "annotation|taint|foreign label|changed label|removed label|new owner|new finalizer|unschedulable|status|deletion"
REPORTED = {
    "kube-system": 3, "unlabelled": 2, "take over a (Deployment|Pod|ServiceAccount)": 6, "delete a (Deployment|pod)": 2,
    "deletecollection": 1, "scale a (Deployment|StatefulSet)$": 2, "status of a pod": 1, "evict": 1,
    "ephemeral container": 1, "exec$": 1, "list (Secrets|namespaces)": 2, "token of another account": 1, "impersonate": 1,
    "create a pod": 1, f"node: ({NODE})": 12, "Role on Secrets|Role with another verb": 2,
    "(widen|unlabel) a Role of ours": 2, "bind ": 4, "ClusterRoleBinding": 1, "Opaque Secret|token as a Secret": 2,
    "^BaseModel|ServingRuntime|status of NodeModels": 3, "another Lease": 1, "its own policy": 1,
}  # fmt: skip
"""Names of the attempts that were refused in the review, as patterns, with their number."""
REFUSED_SINCE = {
    "bind a foreign Role of rights that it has", "autoscaler of a foreign Deployment", "budget over all pods",
    "Service with external addresses", "StatefulSet in its own namespace", "RoleScale in kube-system",
    "ClusterBaseModel of an evil hub, with a made-up owner", "node: another owner in place of an owner",
    "node: another finalizer in place of a finalizer",
}  # fmt: skip
"""Attempts that were accepted in the review and are refused now."""
ACCEPTED_STILL = {
    "node: label of a model", "Role of routers", "its binding", "StatefulSet with its labels",
    "SSH keys with a made-up owner", "Job with a made-up owner", "InferenceService with a made-up owner",
}  # fmt: skip
"""Attempts that were accepted in the review and still are, because the operator needs them or no policy can detect them."""
ACROSS = {
    "model on a claim": 1, "results on a claim": 1, "`..`": 4, "/etc": 2, "whose owner is the victim": 1, "the name of": 5,
    "what another namespace has": 1, "weights of another": 1,
}  # fmt: skip
"""Attempts of a tenant across namespaces, by a word of their name, with their number."""


def test_every_attempt_of_the_reviews_has_a_test() -> None:
    """Every attempt of the reviews has a test: 68 with the operator's token, 16 across namespaces, 8 with forged fields, and
    13 names of files, 8 archives and 3 models.
    """
    refused, accepted = [each.what for each in REFUSED], [each.what for each in ACCEPTED]
    for words, count in REPORTED.items():
        assert len([what for what in refused if re.search(words, what)]) >= count, words
    assert sum(REPORTED.values()) >= 52
    assert set(refused) >= REFUSED_SINCE and set(accepted) >= ACCEPTED_STILL
    assert sum(REPORTED.values()) + len(REFUSED_SINCE) + len(ACCEPTED_STILL) >= 68
    told = (len(refused), len(accepted), len(TRIES), len(FORGED))
    assert told == (85, 14, 20, 8), "docs/security-review.md states these numbers"
    assert len(set(refused)) == len(refused)
    assert all(len([what for what in TRIES if words in what]) >= count for words, count in ACROSS.items())
    assert sum(ACROSS.values()) >= 16
    assert (len(UP), len(PLAIN), len(LINKS)) == (10, 3, 8)
    assert len(BREAKING) >= 3
