"""Every combination is either refused with a sentence or becomes a command and YAML that the operator understands."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from ome_operator import api, keys
from ome_operator.cookbook.ask import STRATEGIES, Ask, RefusedError
from ome_operator.cookbook.command import commands
from ome_operator.cookbook.library import Library, engines
from ome_operator.cookbook.manifests import manifests, nodes
from ome_operator.cookbook.plan import Plan, plan
from ome_operator.cookbook.preset import form_of
from ome_operator.engines import command_line
from ome_operator.facts import Deps, Observed, Ref
from ome_operator.sync import sync
from tests.support import parts
from tests.support.world import START

VERSIONS = [(name, version) for name, versions in engines().items() for version in versions]
ROUTER = command_line("sglang-router-0.3.2")


def asks(shelf: Library) -> Iterator[Ask]:
    """All choices of the page, in every version of every engine; with parsers where the model has them, and the tips."""
    choices = itertools.product(shelf.hardware, shelf.models.values(), STRATEGIES, VERSIONS, (False, True))
    for hardware, served, strategy, (name, version), tips in choices:
        yield Ask(
            hardware=hardware,
            model=served.name,
            strategy=strategy,
            engine=name,
            version=version,
            nodes=16 if tips else None,
            reasoning_parser=tips and bool(served.reasoning_parser),
            tool_call_parser=tips and bool(served.tool_call_parser),
            context_length=65536 if tips else None,
            kv_cache_dtype="fp8_e4m3" if tips else None,
        )


Outcome = tuple[Ask, Plan | str]


@pytest.fixture(scope="module")
def outcomes(shelf: Library) -> list[Outcome]:
    """Each question with its plan, or the sentence that refuses it."""
    return [(ask, answer(ask, shelf)) for ask in asks(shelf)]


def answer(ask: Ask, shelf: Library) -> Plan | str:
    try:
        return plan(ask, shelf)
    except RefusedError as error:
        return str(error)


def flags(args: list[str]) -> dict[str, str]:
    return {name: value for name, _, value in (arg.partition("=") for arg in args) if name.startswith("--")}


def problems(line: Any, args: list[str]) -> list[str]:
    """Flags that a version does not understand, or calls deprecated."""
    found = []
    for flag, value in flags(args).items():
        form = form_of(line, flag)
        known = form is not None and flag not in line.deprecated
        alone = form == "switch" or flag.endswith("-selector")  # a selector stands in an argument of its own
        if not known or alone != (value == "") or (isinstance(form, tuple) and value not in form):
            found.append(f"{flag} {value}")
    return found


def test_every_combination_is_answered_or_refused_with_a_sentence(outcomes: list[Outcome]) -> None:
    refused = [said for _, said in outcomes if isinstance(said, str)]
    assert len(outcomes) - len(refused) > 100
    assert len(refused) > 30
    assert [said for said in refused if not said.endswith(".") or len(said) < 30] == []


def test_every_answer_is_a_command_and_keeps_to_the_nodes(outcomes: list[Outcome]) -> None:
    for ask, made in outcomes:
        if isinstance(made, Plan):
            assert commands(made).count("--model-path") >= len(made.roles)
            assert nodes(made) <= (ask.nodes or nodes(made))


def test_every_answer_is_yaml_that_the_operator_renders(outcomes: list[Outcome]) -> None:
    """All kinds parse, the runtime has the sizes of the plan, and a first pass over the service has no advice."""
    for made in (one for _, one in outcomes if isinstance(one, Plan)):
        model, runtime, namespace, service = yaml.load_all(manifests(made).all, Loader=yaml.CSafeLoader)
        assert namespace["metadata"]["name"] == service["metadata"]["namespace"]
        parsed = [kind.parse(body) for kind, body in ((api.Model, model), (api.Runtime, runtime))]
        service["metadata"] |= {"uid": "uid", "generation": 1}
        asked = api.InferenceService.parse(service)
        for one in (*parsed, asked):
            assert not isinstance(one, api.Invalid), one
        for role in made.roles:
            part = runtime["spec"][f"{role.component}Config"]
            assert part.get("worker", {}).get("size", 0) == role.nodes - 1
            gpus = int(part["runner"]["resources"]["limits"][made.hardware.resource])
            assert gpus * role.nodes == role.tp * (1 if role.attention_dp else role.dp)
            assert problems(made.engine.command_line, part["runner"]["args"]) == []
            assert part["runner"]["image"].startswith("docker.io/")
        if made.router:
            assert problems(ROUTER, runtime["spec"]["routerConfig"]["runner"]["args"]) == []
        sizes = {name: part["minReplicas"] for name, part in service["spec"].items() if "minReplicas" in part}
        assert sizes == {role.component: made.copies for role in made.roles} | ({keys.ROUTER: 1} if made.router else {})
        assert problems_of(asked, *parsed) == []


def problems_of(service: Any, model: Any, runtime: Any) -> list[str]:
    """What the operator's first pass says against it."""
    holders = {f"models.ome.io/clusterbasemodel.{model.name}": frozenset(f"node-{number}" for number in range(64))}
    deps = Deps(
        models={Ref(model.kind, "", model.name): model},
        runtimes={Ref(runtime.kind, "", runtime.name): runtime},
        registry_image="registry:1",
        holders=holders,
    )
    status = sync(service, deps, Observed(), START).status or {}
    return [f"{one['type']}: {one.get('message')}" for one in status.get("conditions", ()) if one["type"] == "Advice"]


def test_prefill_and_decode_are_launched_as_the_shipped_runtime_launches_them(shelf: Library) -> None:
    """One recipe, whether it is applied from config/ or generated."""
    ask = Ask(hardware="h200", model="instruct", strategy="pd", tool_call_parser=True)
    (made,) = yaml.safe_load_all(manifests(plan(ask, shelf)).runtime)
    shipped = parts.read(parts.ROOT / "config/runtimes/srt/kimi-k2-pd-rt.yaml")[0]
    for part in ("engineConfig", "decoderConfig"):
        ours, theirs = made["spec"][part], shipped["spec"][part]
        assert flags(ours["runner"]["args"]) == flags(theirs["runner"]["args"])
        assert variables(ours) == variables(theirs)
        for field in ("image", "resources", "securityContext", "volumeMounts"):
            assert ours["runner"][field] == theirs["runner"][field]
        for field in ("annotations", "leader", "worker", "volumes", "timeoutSeconds"):
            assert ours[field] == theirs[field]
    assert sorted(router_args(made)) == sorted(router_args(shipped))


def router_args(runtime: dict[str, Any]) -> list[str]:
    args: list[str] = runtime["spec"]["routerConfig"]["runner"]["args"]
    return args


def variables(part: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one.get("value") for one in part["runner"]["env"]}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_explained_yaml_is_the_same_objects(strategy: str, shelf: Library) -> None:
    made = plan(Ask(hardware="h200", model="instruct", strategy=strategy), shelf)
    plain, explained = manifests(made), manifests(made, explain=True)
    assert list(yaml.safe_load_all(plain.all)) == list(yaml.safe_load_all(explained.all))
    assert explained.runtime.count("#") > plain.runtime.count("#") + 8
