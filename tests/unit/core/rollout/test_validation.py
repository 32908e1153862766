"""Tests that new revisions with arguments that SGLang's parser rejects are not rolled out, and of the settings that decide
on this.
"""

import random
from dataclasses import replace
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.controllers.base import CORE
from ome_operator.controllers.manager import Manager
from ome_operator.core.observed.validation import RevisionUnderTest, ValidationResult
from ome_operator.core.reconcile.plan import EditState
from ome_operator.lint import rules
from ome_operator.lint.validator import Validator
from ome_operator.machinery.metrics import Metrics
from ome_operator.settings import Settings
from tests.conftest import SOAK
from tests.support.fake_api import FakeApi
from tests.support.simulator import START, World
from tests.unit.core.rollout.judged import BAD, GOOD, OFFICIAL, deps, edited, refused, revisions, service, world

ENDS = (BAD, "--no-such-flag", "--kv-cache-dtype=fp4", "--tp-size 1")
IGNORES = {keys.LINT_IGNORE: "flag-removed"}


def test_refused_configuration_is_not_rolled_out_and_old_pods_keep_serving() -> None:
    found = world(GOOD)
    pods, url = found.living_pods(), found.service.status["url"]
    edited(found, BAD)
    said = found.condition("RolledOut")
    assert refused(found) and said["status"] == "False"
    assert "flag-removed: sglang 0.5.23 has no flag --enable-deepep-moe" in said["message"]
    assert "write --moe-a2a-backend deepep" in said["message"], "the message contains the fix"
    assert "ClusterServingRuntime rt: spec.engineConfig.runner.args" in said["message"], "the message contains the field"
    assert f"{keys.LINT_IGNORE}: flag-removed" in said["message"], "the message contains the alternative"
    assert found.living_pods() == pods and revisions(found) == 1
    assert found.condition("Ready")["status"] == "True" and found.service.status["url"] == url


def test_long_refusal_message_keeps_the_remedy() -> None:
    found = edited(world(GOOD), *(f"--no-such-{'x' * 300}-{number}" for number in range(9)), "--tp-size 1", "--dtype=x")
    said = found.condition("RolledOut")["message"]
    assert said.endswith(f"{keys.LINT_IGNORE}: flag-unknown,flag-value,flag-joined") and "and 8 more" in said


def test_refused_configuration_creates_an_event() -> None:
    found = world(GOOD)
    found.edit(deps=deps(BAD))
    assert [event.reason for event in found.sync().events] == ["ConfigurationRefused"]


def test_new_service_with_refused_configuration_creates_no_pods() -> None:
    found = world(BAD)
    assert found.living_pods() == {} and revisions(found) == 0
    ready = found.condition("Ready")
    assert ready["reason"] == "ConfigurationRefused" and "--enable-deepep-moe" in ready["message"]
    edited(found, GOOD)
    assert found.condition("Ready")["status"] == "True" and not refused(found)


def test_refused_edit_does_not_block_other_services_of_the_runtime() -> None:
    found = edited(world(GOOD), BAD)
    plan = found.sync()
    assert {stand.state for ref, stand in plan.stands.items() if "Runtime" in ref.kind} == {
        EditState.IDLE
    } and not plan.rolls


def test_lint_ignore_annotation_permits_the_configuration() -> None:
    found = edited(world(GOOD), BAD)
    found.edit(service(notes={keys.LINT_IGNORE: "flag-unknown"}))
    found.settle()
    assert refused(found), "the message is about another rule"
    found.edit(service(notes=IGNORES))
    found.settle()
    assert not refused(found) and revisions(found) == 2
    assert found.condition("RolledOut")["status"] == "True"
    assert "flag-removed" not in str(found.condition("Advice"))
    found.edit(service())
    found.settle()
    assert not refused(found), "the revision has been stored"
    assert "flag-removed" in found.condition("Advice")["message"]


def test_unknown_rule_in_lint_ignore_annotation_gives_advice() -> None:
    found = world(GOOD, notes={keys.LINT_IGNORE: "flag-removd"})
    assert "names flag-removd, but `ome lint` has no such rule" in found.condition("Advice")["message"]


def test_scaling_and_recovery_continue_while_an_edit_is_refused() -> None:
    found = edited(world(GOOD), BAD)
    found.edit(service(3))
    found.settle()
    assert refused(found) and len(found.living_pods("engine")) == 3
    lost = next(iter(found.living_pods("engine")))
    before = found.living_pods()[lost]
    found.lose(lost)
    found.settle()
    assert len(found.living_pods("engine")) == 3 and found.living_pods().get(lost) != before
    assert found.condition("Ready")["status"] == "True"


def test_service_scaled_to_zero_returns_while_an_edit_is_refused() -> None:
    found = world(GOOD)
    found.edit(service(0))
    found.settle()
    assert found.living_pods("engine") == {}
    edited(found, BAD)
    found.edit(service(1))
    found.settle()
    assert refused(found) and len(found.living_pods("engine")) == 1


def test_deleted_statefulset_is_recreated_while_an_edit_is_refused() -> None:
    """While an edit is refused, a deleted StatefulSet of the serving slice is created again."""
    found = edited(world(GOOD), BAD)
    (gone,) = [key for key in found.children if key[0] == "StatefulSet"]
    del found.children[gone]
    found.settle()
    assert gone in found.children and refused(found)


# --- who refuses --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "more"),
    [
        ([BAD], {"image": "registry.corp/sglang:0.5.23-p3"}),  # a patch may have any flag
        ([BAD], {"image": "registry.corp/sglang:0.9.9"}),
        ([BAD], {"image": "registry.corp/sglang@sha256:" + "0" * 64}),
        ([BAD], {"judge": Validator(refuse=False)}),  # the chart disables refusals
        (["--tp-size=2"], {}),  # an error that is not from the parser
        (["--host", "0.0.0.0 --port 9"], {}),  # the parser takes this for a value
        ([f"--no-such-flag=$(X) {BAD}"], {"command": ["sh", "-c", "python3 -m sglang.launch_server $0"]}),
        (["--no-such-flag"], {"image": "vllm/vllm-openai:v0.32.0", "command": ["vllm", "serve"]}),
    ],
)
def test_finding_outside_refused_rules_does_not_refuse_edit(args: list[str], more: dict[str, Any]) -> None:
    found = edited(world(GOOD, **more), *args, **more)
    assert not refused(found) and revisions(found) == 2


@pytest.mark.parametrize(
    ("args", "rule"),
    [
        (["--no-such-flag"], "flag-unknown"),
        (["--mem-fraction-static=much"], "flag-value"),
        (["--kv-cache-dtype=fp4"], "flag-value"),
        (["--tp-size 1"], "flag-joined"),
    ],
)
@pytest.mark.parametrize("image", [OFFICIAL, "lmsysorg/sglang:v0.5.23-cu129-amd64"])
def test_configurations_that_the_parser_rejects_are_refused(args: list[str], rule: str, image: str) -> None:
    found = edited(world(GOOD, image=image), *args, image=image)
    assert refused(found) and f"{rule}: " in found.condition("RolledOut")["message"]


@pytest.mark.parametrize("on", [True, False])
def test_operator_setting_determines_whether_refusals_apply(on: bool) -> None:
    metrics, api = Metrics(), FakeApi()
    manager = Manager(Settings(lint_refuse=on), CORE, api, metrics, lambda: START)
    found = edited(world(GOOD), BAD, judge=manager.cluster.deps().judge)
    assert refused(found) == on and revisions(found) == (1 if on else 2)
    assert ("flag-removed" in str(found.condition("Advice"))) == (not on)


def test_engine_version_annotation_gives_the_version_of_a_digest_image() -> None:
    notes, image = {keys.ENGINE_VERSION: "0.5.23"}, "registry.corp/sglang@sha256:" + "0" * 64
    found = World(service(notes=notes), deps(GOOD, image=image), 1)
    found.settle()
    assert found.condition("Advice") == {} and not refused(found)
    assert refused(edited(found, BAD, image=image))


@pytest.mark.parametrize("seed", range(12 if SOAK else 4))
def test_no_pod_ever_starts_with_a_refused_configuration(seed: int) -> None:
    """No pod ever starts with refused arguments. Good and bad edits, scaling, lost pods and restarts of the operator happen
    in random order.
    """
    chance, found = random.Random(seed), world(GOOD)
    judge, groups = found.deps.judge, 1
    for _ in range(15):
        step = chance.choice(("good", "bad", "scale", "lose", "restart"))
        if step in ("good", "bad"):
            word = f"--mem-fraction-static=0.{chance.randint(5, 9)}" if step == "good" else chance.choice(ENDS)
            found.edit(deps=deps(word, judge=judge))
        elif step == "scale":
            groups = chance.randint(1, 3)
            found.edit(service(groups))
        elif step == "lose" and found.living_pods():
            found.lose(chance.choice(sorted(found.living_pods())))
        else:
            judge = Validator()
            found.edit(deps=replace(found.deps, judge=judge))
        found.run(chance.randint(1, 30))
        stored = [str(one.manifest) for (kind, _), one in found.children.items() if kind == "ControllerRevision"]
        assert not [word for word in ENDS for data in stored if word in data]
    found.settle()
    assert len(found.living_pods("engine")) == groups and found.condition("Ready")["status"] == "True"


def test_malicious_arguments_put_no_control_characters_into_messages() -> None:
    found = edited(world(GOOD), "--x\x1b[31m\nforged")
    assert refused(found) and found.condition("RolledOut")["message"].isprintable()


# --- what it costs --------------------------------------------------------------------------------


def test_rules_run_once_per_revision_and_not_in_each_reconciliation() -> None:
    judge = Validator()
    found = world(GOOD, judge=judge)
    assert judge.looked == 2, "the rules that refuse a new revision, and all rules for a stored one"
    for groups in (2, 3, 1):
        found.edit(service(groups))
        found.settle()
    assert judge.looked == 2
    edited(found, BAD)
    found.run(50)
    assert judge.looked == 3, "a refused revision is remembered, too"


def test_new_revision_is_checked_only_for_refusals() -> None:
    """For a new revision, the operator asks only for refusals. They are the same refusals that the complete check of all
    rules finds. Advice is computed only after the revision is stored.
    """
    asked, validator = list[RevisionUnderTest](), Validator()

    def judge(question: RevisionUnderTest) -> ValidationResult:
        asked.append(question)
        return validator(question)

    assert refused(edited(world(GOOD, judge=judge), BAD))
    new = [question for question in asked if question.refusals_only]
    assert {question.revision for question in new} - {question.revision for question in asked if not question.refusals_only}
    for question in new:
        found, complete = validator(question), validator(question._replace(refusals_only=False))
        assert found == ValidationResult(refused=complete.refused)


def test_exception_in_a_lint_rule_gives_advice_and_does_not_stop_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> Any:
        raise RuntimeError("a bug of ours")

    broken = replace(rules.RULES["gpus-too-few"], check=fails)
    monkeypatch.setitem(rules.RULES, "gpus-too-few", broken)
    found = edited(world(GOOD), BAD)
    assert refused(found) and found.condition("Ready")["status"] == "True"
    assert "failed (gpus-too-few: RuntimeError)" in found.condition("Advice")["message"]


def test_exception_in_the_validator_gives_advice_and_does_not_stop_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> Any:
        raise KeyError("a bug of ours")

    monkeypatch.setattr("ome_operator.lint.validator.subject", fails)
    found = edited(world(GOOD), BAD)
    assert not refused(found) and found.condition("RolledOut")["status"] == "True"
    assert "failed (KeyError)" in found.condition("Advice")["message"]
