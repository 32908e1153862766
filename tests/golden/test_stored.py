"""Tests of an operator upgrade with services that an earlier version created: no pod is deleted, and nothing is rolled
out.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from ome_operator import keys
from ome_operator.core.observed.validation import Objection, RevisionUnderTest, ValidationResult
from ome_operator.lint.validator import Validator
from tests.golden.stored import RECORDS, ROUTERS_REPLACED, restored
from tests.support.simulator import World

pytestmark = pytest.mark.parametrize("folder", RECORDS, ids=lambda path: f"{path.parent.name}-{path.name}")


ENGINES = """Engines are stamped from the templates in their ControllerRevision, so no version of the operator may replace
them. Compare what `stamp` (core/render/statefulsets.py) makes of a stored role with what it made before, and keep that for
revisions that are stored already: CONTRIBUTING.md, "When RENDER has to be raised"."""
ROUTERS = """The operator that runs renders the routers, so a change of their pods (core/render/router.py, the sidecar, or
`base_env`, which engines have too) replaces the routers of all services at the upgrade. If that is not intended, leave these
pods as they were. If it is intended:
1. write into CHANGELOG.md that the upgrade replaces routers, and why;
2. add this version's folder to ROUTERS_REPLACED in tests/golden/stored.py, with that reason;
3. run this test again: pods of engines have to stay all the same."""
Pods = dict[str, tuple[str, str]]
"""Name of a pod -> its component and its UID."""


def staying(world: World, folder: Path) -> Pods:
    """Return the pods that an upgrade must keep: all pods that are not terminating, except routers where their
    replacement is allowed.
    """
    found = {name: (pod.labels[keys.COMPONENT], pod.uid) for name, pod in world.pods.items() if not pod.deleting}
    free = folder.parent.name in ROUTERS_REPLACED
    return {name: pod for name, pod in found.items() if not free or pod[0] != keys.ROUTER}


def replaced(before: Pods, after: Pods) -> str:
    """Return a text with the names of the pods that an upgrade replaces although it must keep them, and with what a
    developer has to do about them. Return "" if there are no such pods.
    """
    changed = {name: pod[0] for name, pod in before.items() if after.get(name) != pod}
    engines = sorted(name for name, component in changed.items() if component != keys.ROUTER)
    routers = sorted(changed.keys() - set(engines))
    return "\n".join(
        f"Upgrading the operator would replace {what} of services that an earlier version made: {', '.join(names)}.\n{fix}"
        for what, names, fix in (("pods of engines", engines, ENGINES), ("routers", routers, ROUTERS))
        if names
    )


def settle(world: World) -> None:
    """Run the current operator until nothing changes. The simulator rejects writes that a stored object forbids."""
    try:
        world.settle()
    except AssertionError as error:
        pytest.fail(f"Upgrading the operator would change what has to stay as it is stored: {error}.\n{ENGINES}")


def test_upgrade_keeps_pods_and_revisions(folder: Path) -> None:
    world = restored(folder)
    before, revisions, said = staying(world, folder), stored(world), ready(world)
    settle(world)
    assert staying(world, folder) == before, replaced(before, staying(world, folder)) or "Upgrading adds pods"
    assert stored(world) == revisions, "Upgrading the operator would record new revisions, and roll all services out again"
    assert ready(world) == said


def test_lost_pod_is_recreated_from_the_stored_revision(folder: Path) -> None:
    """The current operator recreates a lost pod from the stored revision, although it did not create that revision."""
    world = restored(folder)
    lost = next(iter(world.pods.values()))
    world.lose(lost.name)
    settle(world)
    assert staying(world, folder).keys() == staying(restored(folder), folder).keys()
    assert stored(world) == stored(restored(folder))
    assert ready(world) == ready(restored(folder))


def refuses_everything(asked: RevisionUnderTest) -> ValidationResult:
    """Return the validation result of a hypothetical later version that rejects every existing service."""
    said = f"{asked.parts[0].title} is not what it was"
    return ValidationResult((f"new-rule: {said}",), (Objection("new-rule", said, f"new-rule: {said}; write another"),))


def test_rule_added_by_an_upgrade_gives_advice_for_stored_services(folder: Path) -> None:
    world = restored(folder)
    before, revisions, said = staying(world, folder), stored(world), ready(world)
    world.edit(deps=replace(world.deps, judge=refuses_everything))
    settle(world)
    assert staying(world, folder) == before, replaced(before, staying(world, folder))
    assert (stored(world), ready(world)) == (revisions, said)
    assert world.condition("RolledOut")["reason"] != "ConfigurationRefused"
    assert "new-rule: " in world.condition("Advice")["message"]
    lost = next(iter(world.pods.values()))
    world.lose(lost.name)
    settle(world)
    assert staying(world, folder).keys() == before.keys()


def test_current_operator_refuses_no_stored_service(folder: Path) -> None:
    world, judged = restored(folder), restored(folder)
    judged.edit(deps=replace(judged.deps, judge=Validator()))
    for each in (world, judged):
        settle(each)
    assert stored(judged) == stored(world) and judged.living_pods() == world.living_pods()
    assert judged.condition("RolledOut") == world.condition("RolledOut")


def ready(world: World) -> tuple[str, str]:
    """Return the status and the reason of the condition Ready."""
    said = world.condition("Ready")
    return said["status"], said["reason"]


def stored(world: World) -> list[str]:
    """Return the names of the revisions."""
    return sorted(name for kind, name in world.children if kind == "ControllerRevision")


def test_replaced_components_are_declared_and_never_engines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = restored(folder)
    before = staying(world, folder)
    after = {name: (component, "another") for name, (component, _) in before.items()}
    routers = {name for name, (component, _) in before.items() if component == keys.ROUTER}
    assert ENGINES in replaced(before, after)
    assert (ROUTERS in replaced(before, after)) == bool(routers)
    monkeypatch.setitem(ROUTERS_REPLACED, folder.parent.name, "the sidecar has another image")
    assert staying(world, folder).keys() == before.keys() - routers
