"""Tests that every place where the operator deletes pods is listed, with what prevents it from replacing serving pods by
pods that cannot start.
"""

import ast
from collections.abc import Iterator

from ome_operator.core.reconcile.plan import Delete, GroupRecycle
from tests.support import parts

SOURCE = parts.ROOT / "ome_operator"
ENDS = frozenset({Delete.__name__, GroupRecycle.__name__})
"""Effects of a plan that end pods."""
LIVE = frozenset({"delete"})
"""Methods of the client that end pods."""
GATED = "the rollout's gate: a dry run has shown that the new pods can be created"
ASKED = "a person or an autoscaler asked for fewer groups or components; nothing takes their place"
FAILED = "the pods do not serve, or end already"
PLACES = {
    ("core/rollout/retire.py", "_deletes"): f"workloads. Of an old slice: {GATED}. Of groups that are not kept: {ASKED}",
    ("core/rollout/retire.py", "shorten_grace_periods"): "workers whose leader is gone",
    ("core/rollout/retire.py", "discard"): "pods that were restored from another namespace, whose ranks they contact",
    ("core/rollout/retire.py", "remove_extra_groups"): "leaders whose StatefulSet is gone",
    ("core/placement/gangs.py", "give_back"): "groups that have not served",
    ("core/moves/moving.py", "_moving"): "a router that leaves its node, for which a person asked for no replacement",
    ("core/recovery/recover.py", "_recycling"): f"{FAILED}; or a person edited the template (docs/production.md)",
    ("core/recovery/recover.py", "_forced"): FAILED,
    ("core/reconcile/diff.py", "_prune"): ASKED,
    ("core/reconcile/diff.py", "_strayed"): "a RoleBinding",
    ("core/reconcile/diff.py", "_forgotten"): "a ControllerRevision",
    ("controllers/former_exposure.py", "_remove"): "an Ingress or an HTTPRoute",
    ("controllers/bad_nodes.py", "_remove"): "a NodeFaults",
    ("controllers/inferenceservice/executor.py", "_delete"): "what a plan contains",
}
"""Module and function -> what is deleted, and why no pod that serves goes for pods that cannot start."""
COMMANDS = ("adopt", "cli")
"""Packages whose deletions a person starts."""


def test_every_code_place_that_deletes_pods_is_listed() -> None:
    found = set()
    for file in sorted(SOURCE.rglob("*.py")):
        name = str(file.relative_to(SOURCE))
        if name.partition("/")[0] not in COMMANDS:
            found |= {(name, function) for function in _ending(ast.parse(file.read_text()))}
    assert found == PLACES.keys()


def _ending(tree: ast.AST) -> Iterator[str]:
    """Yield for each call that ends pods the innermost function around the call."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and _ends(node.func):
                    yield function.name


def _ends(called: ast.expr) -> bool:
    if isinstance(called, ast.Name):
        return called.id in ENDS
    return isinstance(called, ast.Attribute) and called.attr in LIVE and "client" in ast.unparse(called.value)
