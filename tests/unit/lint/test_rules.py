"""Tests that apply to all rules: their page, the wording of their messages, and their behavior with invalid input."""

import re
from typing import Any

import pytest
import yaml

from ome_operator.lint.page import PAGE, page_text
from ome_operator.lint.rules import FAMILIES, LONGEST, MOST, RULES
from tests.support.linting import found, grave
from tests.support.overlays import BASES
from tests.support.parts import ROOT

FLAG = re.compile(r"--[a-z][a-z0-9-]{5,}(?==)")


def test_documentation_of_rules_is_generated_from_the_rules(update: bool) -> None:
    if update:
        PAGE.write_text(page_text(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page_text(), "python -m ome_operator.lint.page"


def test_every_rule_has_id_title_consequence_and_evidence() -> None:
    assert len(RULES) == sum(map(len, FAMILIES.values())), "the names must be unique"
    for rule in RULES.values():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.id)
        assert rule.title and not rule.title.endswith(".")
        assert rule.ignored.endswith(".") and len(rule.evidence) > 20


def test_evidence_in_this_repository_exists() -> None:
    for rule in RULES.values():
        for path in re.findall(r"(?<![/\w])(?:docs|config|ome_operator)/[\w./-]+", rule.evidence):
            assert (ROOT / path.rstrip(".")).exists(), f"{rule.id}: {path}"


def body(args: object, **spec: object) -> list[dict[str, object]]:
    runner = {"name": "ome-container", "image": "sglang:v0.5.23", "command": ["sglang", "serve"], "args": args}
    return [
        {
            "apiVersion": "ome.io/v1beta1",
            "kind": "ClusterServingRuntime",
            "metadata": {"name": "rt"},
            "spec": {"engineConfig": {"runner": runner}, **spec},
        }
    ]


@pytest.mark.parametrize(
    "args",
    [
        [],
        [""],
        ["--"],
        ["--="],
        ["-"],
        ["--tp-size="],
        ["--tp-size", ""],
        ["--tp-size=0"],
        ["--tp-size=-8", "--attn-dp-size=0", "--ep-size=0", "--nnodes=0"],
        ["--tp-size=99999999999999999999"],
        ["--page-size=0", "--chunked-prefill-size=1"],
        ["--max-running-requests=1", "--attn-dp-size=0"],
        ["\x00--tp-size=1"],
        ["--tp-size=${", "--x=$(", "$(a", "{{"],
        ["--cuda-graph-bs-decode"],
        ["💥" * 1000],
        ["--mem-fraction-static=nan"],
        ["--mem-fraction-static=1e999"],
    ],
)
def test_rules_raise_for_no_argument(args: list[str]) -> None:
    for extra in ([], ["--moe-a2a-backend=deepep", "--enable-eplb"], ["--disaggregation-mode=decode"]):
        found(body([*args, *extra]))


def test_runtime_without_a_service_is_checked() -> None:
    args = ["--model-path=/m", "--host=0.0.0.0", "--tp-sise=8", "--device=cpu"]
    (error,) = [each for each in found(body(args)) if each.rule.severity == "error"]
    assert (error.rule.id, error.service, error.hit.place) == (
        "flag-unknown",
        "",
        ("ClusterServingRuntime rt", "spec.engineConfig.runner.args"),
    )
    assert error.hit.fix == ("--tp-sise", "--tp-size")


_LIMITED = {"limits": {"memory": "4Gi"}}


@pytest.mark.parametrize(
    ("args", "resources", "pod", "unbounded"),
    [
        (["--device=cpu"], None, None, True),
        (["--device", "cpu"], {"requests": {"memory": "4Gi"}}, None, True),
        (["--device=cpu"], {"limits": {"cpu": "2"}}, None, True),
        (["--device=cpu"], _LIMITED, None, False),
        (["--device=cpu"], None, _LIMITED, False),
        (["--device=cpu", "--max-total-tokens=4096"], None, None, False),
        (["--device=cpu", "--max-total-tokens=$(TOKENS)"], None, None, False),
        (["--device=cpu", "--mem-fraction-static=0.1"], None, None, False),
        (["--device=cuda"], None, None, False),
        ([], None, None, False),
    ],
)
def test_engine_on_cpus_needs_a_memory_limit(args: list[str], resources: object, pod: object, unbounded: bool) -> None:
    """An engine on CPUs needs a bound of its memory. A limit of the container or of the pod is such a bound, and so is a
    size of the KV cache in the arguments. A request is none.
    """
    bodies: Any = body(["--model-path=/m", *args])
    config = bodies[0]["spec"]["engineConfig"]
    config["runner"]["resources"] = resources or {}
    config |= {"resources": pod} if pod else {}
    hits = [each.hit for each in found(bodies) if each.rule.id == "cpu-memory-unbounded"]
    assert len(hits) == unbounded
    for hit in hits:
        assert hit.place == ("ClusterServingRuntime rt", "spec.engineConfig.runner.resources")
        assert "--max-total-tokens" in hit.remedy and "resources.limits.memory" in hit.remedy


def test_finding_is_reported_in_the_object_that_contains_the_arguments() -> None:
    """A finding is reported in the object that contains the arguments. If a service has its own arguments, they replace the
    arguments of its runtime, so the finding is in the service.
    """
    service = {
        "apiVersion": "ome.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "svc", "namespace": "team"},
        "spec": {
            "model": {"name": "kimi-k2-instruct"},
            "runtime": {"name": "rt"},
            "engine": {"runner": {"args": ["--tp-sise=8"]}},
        },
    }
    places = [each.hit.place for each in found([*body(["--nonsense"]), service]) if each.rule.id == "flag-unknown"]
    assert places == [("InferenceService svc", "spec.engine.runner.args")]


def test_number_and_length_of_findings_are_limited() -> None:
    findings = found(body([f"--unknown-{number}" for number in range(500)]))
    assert sum(each.rule.id == "flag-unknown" for each in findings) == MOST
    (long,) = [each for each in found(body(["--" + "x" * 50_000])) if each.rule.id == "flag-unknown"]
    assert len(long.hit.says) <= LONGEST + 2


def test_runtime_that_no_service_can_name_is_reported() -> None:
    (runtime,) = body([])
    (told,) = found([{**runtime, "metadata": {"name": "9" * 300}}])
    assert told.rule.id == "refused" and "too long" in told.hit.says


SPELLED = [
    (path.stem, flag) for path in sorted(BASES.glob("*.yaml")) for flag in sorted(set(FLAG.findall(path.read_text())))
]


@pytest.mark.parametrize(("base", "flag"), SPELLED)
def test_misspelled_flag_suppresses_dependent_findings(base: str, flag: str) -> None:
    """If a flag is misspelled, nothing that depends on the flag is computed. The only new finding is the wrong spelling: the
    engine would use the default only if the flag were absent.
    """
    text = (BASES / f"{base}.yaml").read_text()
    before = grave(found(yaml.safe_load_all(text)))
    new = [said for said in grave(found(yaml.safe_load_all(text.replace(f"{flag}=", f"{flag}d=")))) if said not in before]
    assert new and all(said.startswith("flag-unknown: ") for said in new)
