"""Tests of settings of autoscalers that cannot be used: for each, `ome lint` reports one sentence with the field and what to
write instead, and a service that has such settings keeps its size.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from ome_operator.lint import rules
from ome_operator.lint.finding import Finding
from tests.support.demanded import Demanded, spec
from tests.support.linting import looked_at
from tests.support.yamls import model, runtime, service

TARGETS = {"timeToFirstToken": "3s", "timeBetweenTokens": "50ms"}
ROLE = {"minReplicas": 1, "maxReplicas": 4, "autoscaler": {"class": "Demand"}}
BOUNDS = {"minReplicas": 1, "maxReplicas": 4}
CLASS = "ome.io/autoscalerClass"
BACK = "ome.io/scaled-back"
KEDA = {"enableKeda": True, "promServerAddress": "http://a", "customPromQuery": "q", "scalingThreshold": "1"}
CRON = {"class": "KEDA", "keda": {"triggers": [{"type": "cron"}]}}
TIME = {"start": "08:00", "end": "18:00", "minimum": {"engine": 2}}
ZERO = {"engine": 0, "decoder": 0}
DURATION = 'write a duration such as "90s", "15m" or "1h30m"'
QUOTES = "write a string; put quotes around numbers, true and false"
WHOLE = "write a whole number without quotes"
DAYS = "write 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat' or 'Sun'"
OF_DAY = 'write a time of day such as "08:30"'
BOUND = "lower minReplicas or raise maxReplicas"
MAXIMUM = "so the service always has the maximum: lower spare, or raise maxReplicas"


class Written(NamedTuple):
    """A service: its parts, and what is said about it. Engine and decoder have the class Demand if they are not set."""

    said: str
    """A regular expression that a sentence matches; "" if nothing is said."""
    demand: Any = TARGETS
    """`spec.scalingPolicy.demand`; None if it is missing."""
    engine: Any = ROLE
    decoder: Any = ROLE
    router: Any = ()
    notes: Mapping[str, str] = {}
    spec: Mapping[str, Any] = {}
    runtime: Mapping[str, Any] = {}
    without: tuple[str, ...] = ()
    """Components that the service does not have."""


def of_demand(field: str, said: str, *values: Any) -> list[Any]:
    """Return a case for each value of a field of `demand`. The sentence names the field, and contains `said`."""
    path = re.escape(f"spec.scalingPolicy.demand.{field}")
    return [
        pytest.param(
            Written(said and f"{path}.*{re.escape(said)}", {**TARGETS, field: value}), id=f"{field}: {str(value)[:30]}"
        )
        for value in values
    ]


def of_bounds(role: str, field: str, number: Any, said: str) -> Written:
    """Return a case of a service of which one of the three roles has a number that cannot be used."""
    parts: dict[str, Any] = {"router": ROLE, role: {**ROLE, field: number}}
    return Written(f"spec.{role}.*{said}", {**TARGETS, "requestsPerRouter": 5}, **parts)


def of_schedule(said: str, *values: Any) -> list[Any]:
    return of_demand("schedule", said, *([{**TIME, **value}] for value in values))


DEMANDS = [
    *of_demand("timeToFirstToken", DURATION, "-1s", "3", "3sec", "3 s", "1d", "NaN", "inf", "", "1e3s", "\uff13s", "P1D"),
    *of_demand("timeToFirstToken", QUOTES, 3, 3.5, True, []),
    *of_demand("timeToFirstToken", "is missing: set it", None),
    *of_demand("timeToFirstToken", "keep it below 65 characters", "9" * 64 + "s"),
    *of_demand("timeToFirstToken", "write 100ms or more", "0s", "0.0s", "1ns", "99ms"),
    *of_demand("timeToFirstToken", "so it is treated as 400 s: write 400s or less", "401s", "1h30m", "99999999h"),
    *of_demand("timeToFirstToken", "", "100ms", "400s"),
    *of_demand("timeBetweenTokens", DURATION, "-50ms", "50", "nan"),
    *of_demand("timeBetweenTokens", "is missing: set it", None),
    *of_demand("timeBetweenTokens", "write a time such as 50ms", "0s", "0ms"),
    *of_demand("timeBetweenTokens", "", "1ns", "99999999h"),
    *of_demand("coolDown", DURATION, "-1s", "nan"),
    *of_demand("coolDown", QUOTES, 60),
    *of_demand("coolDown", "write 168h or less", "169h", "9" * 63 + "h"),
    *of_demand("coolDown", "", "0s", "168h", None),
    *of_demand("gpuBudget", "write 1 or more", 0, -1),
    *of_demand("gpuBudget", WHOLE, "16", 16.5, "all", True, 1e300),
    *of_demand("gpuBudget", "needs 16 GPUs: raise gpuBudget, or lower minReplicas", 1, 15),
    *of_demand("gpuBudget", "", 16, 2**31, None),
    *of_demand("requestsPerRouter", "write 1 or more", 0, -1),
    *of_demand("requestsPerRouter", WHOLE, "5", "50%"),
    *of_demand("requestsPerRouter", "write spec.router.autoscaler.class: Demand", 1, 2**31),
    *of_demand("changesPerHour", "write 1 or more", 0, -1),
    *of_demand("changesPerHour", "write 100 or less", 101),
    *of_demand("changesPerHour", WHOLE, "40", "150%"),
    *of_demand("priority", "write -1000 or more", -1001),
    *of_demand("priority", "write 1000 or less", 1001),
    *of_demand("priority", WHOLE, "high", 1.5),
    *of_demand("mode", "write 'Recommend' or 'Apply'", "apply", "Observe", "", True),
    *of_demand("spare", "write a map of keys and values", 1, "50%"),
    *of_demand("spare", "write 0 or more", {"decoder": -1}),
    *of_demand("spare", "write 1000 or less", {"decoder": 1001}, {"decoder": 10**20}),
    *of_demand("spare", WHOLE, {"decoder": "1"}, {"decoder": "150%"}),
    *of_demand("spare", MAXIMUM, {"decoder": 3}, {"decoder": 4}),
    *of_demand("spare", "", {}, {"decoder": 0}, {"decoder": 2}),
    *of_demand("schedule", "write a list", "daily", {"a": 1}),
    *of_demand("schedule", "write a map of keys and values", ["0 8 * * *"], [None]),
    *of_demand("schedule", "keep at most 20", [TIME] * 21, [TIME] * 300),
    *of_demand("schedule", "", [], None, [TIME] * 20, [TIME, {**TIME, "start": "09:00", "minimum": {"engine": 3}}]),
    *of_demand("schedule", "start is missing: set it", [{"end": "18:00", "minimum": {"engine": 2}}]),
    *of_demand("schedule", "minimum is missing: set it", [{"start": "08:00", "end": "18:00"}]),
    *of_schedule(OF_DAY, {"end": "24:00"}, {"start": "8:00"}, {"start": "08:00:00"}, {"start": "08:00Z"}, {"end": "08:60"}),
    *of_schedule(QUOTES, {"start": 480}),
    *of_schedule(DAYS, {"days": ["Monday"]}, {"days": ["mon"]}, {"days": ["1"]}),
    *of_schedule("write a list", {"days": "Mon-Fri"}),
    *of_schedule("keep at most 7", {"days": ["Mon"] * 8}),
    *of_schedule("write 0 or more", {"minimum": {"engine": -1}}),
    *of_schedule("write 1000 or less", {"minimum": {"engine": 10**20}}),
    *of_schedule("which is used: raise maxReplicas", {"minimum": {"engine": 9}}),
    *of_schedule("raise it, or remove the entry", {"minimum": {"engine": 1}}, {"minimum": {"engine": 1, "decoder": 1}}),
    *of_schedule(
        "write spec.scalingPolicy.demand.schedule[0].minimum.engine", {"minimum": {}}, {"minimum": {"engine": None}}
    ),
    *of_schedule("write 0 for engine and decoder, or remove it", {"minimum": {"engine": 0}}),
    *of_schedule("write minReplicas: 0 and autoscaler.class: Demand for spec.engine and spec.decoder", {"minimum": ZERO}),
    *of_schedule("", {"end": "08:00"}, {"days": []}, {"days": ["Mon", "Mon"]}, {"minimum": {"engine": 4}}),
]
TOO_LONG = {**TARGETS, "schedule": [TIME] * 1000}
UNSCALED = "spec.engine has the autoscaler class Demand.*so its number never changes: raise maxReplicas"
UNBOUNDED = "engine.maxReplicas is not set, so the class Demand does not scale engine.*write spec.engine.maxReplicas"
NEEDS = "autoscaler.class Demand needs"
FIXED = {"minReplicas": 1, "autoscaler": {"class": "Demand"}}
UNUSED = f"annotation {CLASS} has no effect, because .* take precedence: remove the annotation"
NO_KEDA = (
    "kedaConfig has no effect without the autoscaler class KEDA and a maxReplicas above minReplicas: write both, or remove"
)
SERVICES = {
    "a thousand times": Written("need .* KiB of the operator's memory.*shorten long lists", TOO_LONG),
    "demand is empty": Written("timeToFirstToken is missing: set it; .*timeBetweenTokens is missing: set it", {}),
    "demand is a text": Written("demand is .3s.: write a map of keys and values", "3s"),
    "no demand": Written(f"{NEEDS} targets: set spec.scalingPolicy.demand", None),
    "no demand for three roles": Written(f"{NEEDS} targets: set spec.scalingPolicy.demand", None, router=ROLE),
    "unknown class": Written(
        "spec.engine.autoscaler.class is .Magic.: write .HPA.", engine={"autoscaler": {"class": "Magic"}}
    ),
    "class in lower case": Written("class is .demand.: write .HPA.", engine={**ROLE, "autoscaler": {"class": "demand"}}),
    "no class": Written("spec.engine.autoscaler.class is missing: set it", engine={**ROLE, "autoscaler": {}}),
    "autoscaler is a text": Written("spec.engine.autoscaler is .Demand.: write a map", engine={"autoscaler": "Demand"}),
    "class of no role": Written("write spec.decoder.autoscaler.class: Demand", engine=BOUNDS, decoder=BOUNDS),
    "class of one role": Written("", decoder={}),
    "class of the router only": Written("set it", engine={}, decoder={}, router=ROLE),
    "class of the runtime": Written(
        "", engine={}, decoder=BOUNDS, runtime={"decoderConfig": {"autoscaler": {"class": "Demand"}}}
    ),
    "KEDA without triggers": Written(
        "add keda.triggers", None, engine={}, decoder={**BOUNDS, "autoscaler": {"class": "KEDA"}}
    ),
    "KEDA with an empty list": Written(
        "write spec.decoder.autoscaler.keda.triggers",
        None,
        {},
        {**BOUNDS, "autoscaler": {"class": "KEDA", "keda": {"triggers": []}}},
    ),
    "KEDA is not installed": Written("its size stays.*install KEDA", None, {}, {**BOUNDS, "autoscaler": CRON}),
    "KEDA beside Demand": Written("its size stays.*install KEDA", decoder={**BOUNDS, "autoscaler": CRON}),
    "a metric beside Demand": Written(
        "spec.engine.scaleMetric has no effect.*write HPA", engine={**ROLE, "scaleMetric": "cpu"}
    ),
    "a metric and a target": Written("write HPA", engine={**ROLE, "scaleMetric": "cpu", "scaleTarget": 50}),
    "a target beside Demand": Written(
        "spec.engine.scaleTarget has no effect.*write HPA", engine={**ROLE, "scaleTarget": 50}
    ),
    "a metric beside External": Written(
        "write HPA, or remove", None, {**BOUNDS, "autoscaler": {"class": "External"}, "scaleMetric": "cpu"}, {}
    ),
    "a metric beside None": Written(
        "write HPA, or remove", None, {**BOUNDS, "autoscaler": {"class": "None"}, "scaleMetric": "cpu"}, {}
    ),
    "hpa beside Demand": Written("write HPA, or remove hpa", engine={**ROLE, "autoscaler": {"class": "Demand", "hpa": {}}}),
    "keda beside Demand": Written(
        "write KEDA, or remove keda", engine={**ROLE, "autoscaler": {"class": "Demand", "keda": {}}}
    ),
    "kedaConfig beside Demand": Written(
        "spec.engine.kedaConfig has no effect.*write KEDA", engine={**ROLE, "kedaConfig": KEDA}
    ),
    "kedaConfig of the service": Written(f"spec.{NO_KEDA}", spec={"kedaConfig": KEDA}),
    "kedaConfig without a range": Written(f"spec.engine.{NO_KEDA}", None, {"kedaConfig": KEDA}, {}),
    "kedaConfig that is switched off": Written("", engine={**ROLE, "kedaConfig": {**KEDA, "enableKeda": False}}),
    **{f"annotation {one} beside the class": Written(UNUSED, notes={CLASS: one}) for one in ("hpa", "none", "external")},
    "annotation keda beside the class": Written("spec.router.maxReplicas has to be greater", notes={CLASS: "keda"}),
    "annotation beside three classes": Written(
        UNUSED, {**TARGETS, "requestsPerRouter": 5}, router=ROLE, notes={CLASS: "magic"}
    ),
    "unknown class in the annotation": Written(
        "nothing scales engine, decoder and router; write hpa, keda, external or none$",
        *(None, BOUNDS, BOUNDS),
        notes={CLASS: "magic"},
    ),
    "Demand in the annotation": Written(
        "nothing scales engine, decoder and router; write hpa, .*or autoscaler.class: Demand into spec.engine",
        *(None, BOUNDS, BOUNDS),
        notes={CLASS: "Demand"},
    ),
    "annotation without a value": Written("", notes={CLASS: ""}),
    **{
        f"{BACK} is {one}": Written("has no effect: .*Remove it", {**TARGETS, "mode": "Apply"}, notes={BACK: one})
        for one in ("x", "prefill=0,decode=1,routers=1", "prefill=9999,decode=1,routers=1", "prefill=2,decode=nan,routers=1")
    },
    f"{BACK} beside Recommend": Written("has no effect: .*Remove it", notes={BACK: "prefill=2,decode=1,routers=1"}),
    "maxReplicas is missing": Written(UNBOUNDED, engine=FIXED),
    "maxReplicas is missing beside other fields": Written(
        UNBOUNDED, {**TARGETS, "spare": {"engine": 1}, "schedule": [TIME]}, engine=FIXED
    ),
    "maxReplicas is 0": Written(UNSCALED, engine={**ROLE, "maxReplicas": 0}),
    "maxReplicas of the router is missing": Written(UNBOUNDED.replace("engine", "router"), router=FIXED),
    **{
        f"{name} of {role}: {number}": of_bounds(role, name, number, said)
        for role in ("engine", "decoder", "router")
        for name, number, said in (
            ("minReplicas", 5, BOUND),
            ("minReplicas", -1, "write 0 or more"),
            ("minReplicas", "1", WHOLE),
            ("maxReplicas", 10**9, "write 1000 or less"),
            ("maxReplicas", "4", WHOLE),
            ("maxReplicas", 4.5, WHOLE),
        )
    },
    "minReplicas of the runtime above maxReplicas": Written(
        "spec.decoder.maxReplicas is 2, but minReplicas of the runtime is 3.*write spec.decoder.minReplicas",
        *(None, {}),
        {"maxReplicas": 2},
        runtime={"decoderConfig": {"minReplicas": 3}},
    ),
    "minReplicas of the runtime above maxReplicas, with a metric": Written(
        "write spec.decoder.minReplicas",
        *(None, {}),
        {"maxReplicas": 2, "scaleMetric": "cpu"},
        runtime={"decoderConfig": {"minReplicas": 3}},
    ),
    "minReplicas of the runtime above maxReplicas, with Demand": Written(
        "spec.decoder.*raise maxReplicas",
        decoder={**FIXED, "minReplicas": None, "maxReplicas": 2},
        runtime={"decoderConfig": {"minReplicas": 3}},
    ),
    "no decoder": Written(
        "add spec.decoder, or use another class",
        {**TARGETS, "spare": {"decoder": 1}, "schedule": [{**TIME, "minimum": {"decoder": 2}}, TIME]},
        without=("decoder",),
    ),
    "no router": Written("add spec.router, or use another class", {**TARGETS, "requestsPerRouter": 5}, without=("router",)),
    "a budget below one pair": Written(
        "gpuBudget is 8, but .* needs 16 GPUs: raise gpuBudget", {**TARGETS, "gpuBudget": 8, "spare": {"decoder": 1}}
    ),
    "a budget below a role without the class": Written(
        "gpuBudget is 24, but .* needs 32 GPUs: raise gpuBudget", {**TARGETS, "gpuBudget": 24}, engine={"minReplicas": 3}
    ),
    "a time without groups, and an overlapping one": Written(
        "schedule.1..minimum is 0 for one role only.*write 0",
        {**TARGETS, "schedule": [{**TIME, "minimum": ZERO}, {**TIME, "minimum": {"engine": 0, "decoder": 1}}]},
        engine={**ROLE, "minReplicas": 0},
        decoder={**ROLE, "minReplicas": 0},
    ),
    "a time without groups for a role without the class": Written(
        "spec.engine keeps its groups: write minReplicas: 0 and autoscaler.class: Demand for spec.engine",
        {**TARGETS, "schedule": [{**TIME, "minimum": ZERO}]},
        engine={**BOUNDS, "minReplicas": 0},
        decoder={**ROLE, "minReplicas": 0},
    ),
    "a request that wakes nothing": Written("wakeOnRequest has no effect.*set minReplicas", spec={"wakes": True}),
    "a policy that has no effect": Written("spec.scalingPolicy.mode has no effect", spec={"mode": "Pinned"}),
}


def findings(case: Written) -> list[Finding]:
    """Return what `ome lint` says about a service. The missing decoder and router have findings of their own."""
    whole = service("team", "svc", "rt", *(one for one in ("engine", "decoder", "router") if one not in case.without))
    for name, part in (("engine", case.engine), ("decoder", case.decoder), ("router", case.router or {})):
        if name not in case.without:
            whole["spec"][name] = part
    policy = {} if case.demand is None else {"demand": case.demand}
    policy |= {"wakeOnRequest": True} if "wakes" in case.spec else {}
    policy |= {"mode": case.spec["mode"]} if "mode" in case.spec else {}
    more = {"scalingPolicy": policy, "kedaConfig": case.spec.get("kedaConfig")}
    whole["spec"] |= {name: value for name, value in more.items() if value}
    whole["metadata"]["annotations"] = dict(case.notes)
    below = runtime("rt", gpus=8, decoder=True)
    for name, part in case.runtime.items():
        below["spec"][name] = {**below["spec"][name], **part}
    subjects = [one for one in looked_at([whole, model(), below], whole=False) if one.service == "team/svc"]
    return [one for subject in subjects for one in rules.check(subject) if one.rule.id in SCALING]


SCALING = ("refused", "advice", "demand-unusable")
OTHERS = ("runtime rt does not fit this service", "spec.router is missing")


def sentences(found: list[Finding]) -> list[str]:
    """Return each sentence of the findings of `ome lint`, ending with its remedy, without the sentences in OTHERS."""
    every = list[str]()
    for one in found:
        advice = re.split(r"; (?=spec|annotation|class|the annotation)", one.hit.says)
        every += advice if one.rule.id == "advice" else [f"{one.hit.says}: {one.hit.remedy}"]
    return [one for one in every if not one.startswith(OTHERS)]


@pytest.mark.parametrize("case", [*DEMANDS, *(pytest.param(case, id=name) for name, case in SERVICES.items())])
def test_unusable_autoscaler_setting_gives_one_sentence_with_field_and_remedy(case: Written) -> None:
    found = sentences(findings(case))
    assert len(found) == bool(case.said), found
    assert all(re.search(case.said, one) for one in found), found
    assert all(re.search(r"spec\b|annotation|class", one) for one in found), found


P, BASE = {"start": "00:00", "end": "00:00"}, spec("Apply")
KEPT: dict[str, tuple[dict[str, Any], str]] = {
    "budget": (spec("Apply", gpuBudget=1), "DemandIgnored"),
    "first token": (spec("Apply", timeToFirstToken="0s"), "DemandIgnored"),
    "tokens": (spec("Apply", timeBetweenTokens="0s"), "DemandIgnored"),
    "tokens that no group reaches": (spec("Apply", timeBetweenTokens="1ns"), "DemandUnmet"),
    "huge targets": (
        spec("Apply", timeToFirstToken="99999999h", timeBetweenTokens="99999999h", coolDown="999h"),
        "Followed",
    ),
    "no targets": ({**BASE, "scalingPolicy": {}}, "DemandIgnored"),
    "no policy": ({**BASE, "scalingPolicy": None}, "DemandIgnored"),
    "no router": ({**BASE, "router": None}, "DemandIgnored"),
    "zero for roles that keep their groups": (spec("Apply", schedule=[{**P, "minimum": ZERO}]), "Followed"),
    "another class": (spec("Apply", {"autoscaler": {"class": "External"}}), ""),
    "no class": (spec("Apply", {"autoscaler": None}), ""),
    "KEDA that is not installed": (spec("Apply", {"autoscaler": CRON}), ""),
    "KEDA without triggers": (spec("Apply", {"autoscaler": {"class": "KEDA", "keda": {"triggers": []}}}), ""),
}


@pytest.mark.parametrize("name", KEPT)
def test_service_keeps_its_size_after_an_unusable_edit(name: str) -> None:
    world = Demanded(**BASE)
    world.rate = 28.0
    world.decide(100)
    assert world.decoders() == 2
    body, reason = KEPT[name]
    world.edited(**{field: value for field, value in body.items() if value is not None})
    world.settle()
    if reason:
        world.decide(60)
    told = world.condition("FollowsDemand")
    assert (world.decoders(), len(world.living_pods("engine")), told["reason"] if told else "") == (2, 1, reason)
