"""Tests of all combinations: each is rejected with a message, or becomes a command and manifests that the operator
accepts.
"""

import itertools
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml

from ome_operator import api, keys
from ome_operator.cookbook.command import commands
from ome_operator.cookbook.command import variables as meanings
from ome_operator.cookbook.layout import PlanProposal, plan
from ome_operator.cookbook.library import Library, engine, engines
from ome_operator.cookbook.manifests import manifests
from ome_operator.cookbook.preset import in_pods, in_shell
from ome_operator.cookbook.request import RecipeRefused, RecipeRequest
from ome_operator.core.observed.objects import Deps, Observed, Ref
from ome_operator.core.reconcile.sync import sync
from ome_operator.engines.flags import SWITCH, command_line
from tests.support import parts
from tests.support.parts import change_deps
from tests.support.simulator import START

ROUTER = command_line("sglang-router-0.3.2")


def asks(shelf: Library) -> Iterator[RecipeRequest]:
    """Yield requests with every choice in every version of every engine: without options, with 16 nodes, with parsers if
    the model has them, and with all other options.
    """
    for name, versions in engines().items():
        for version in versions:
            strategies = engine(name, version).strategies
            for hardware, served, strategy in itertools.product(shelf.hardware, shelf.models.values(), strategies):
                ask = RecipeRequest(hardware=hardware, model=served.name, strategy=strategy, engine=name, version=version)
                yield ask
                yield replace(
                    ask,
                    nodes=16,
                    reasoning_parser=bool(served.reasoning_parser),
                    tool_call_parser=bool(served.tool_call_parser),
                    context_length=65536,
                    kv_cache_dtype=None if name == "ktransformers" else "fp8_e4m3",
                )


Outcome = tuple[RecipeRequest, PlanProposal | str]


@pytest.fixture(scope="module")
def outcomes(shelf: Library) -> list[Outcome]:
    """Return each request with its plan, or with the message that rejects it."""
    return [(ask, answer(ask, shelf)) for ask in asks(shelf)]


def answer(ask: RecipeRequest, shelf: Library) -> PlanProposal | str:
    try:
        made = plan(ask, shelf)
        in_pods(made)  # The version may not have this parser.
        return made
    except RecipeRefused as error:
        return str(error)


def explained(text: str) -> set[str]:
    """Return the variables of commands that have an explanation."""
    return {said.partition(":")[0].removeprefix("$") for said in meanings(text)}


def flags(args: list[str]) -> dict[str, str]:
    return {name: value for name, _, value in (arg.partition("=") for arg in args) if name.startswith("--")}


def problems(line: Any, args: list[str]) -> list[str]:
    """Return the flags that a version does not have, or has deprecated."""
    found = []
    for flag, value in flags(args).items():
        known = line.find_flag(flag)
        if known is None or known.deprecated:
            found.append(flag)
            continue
        alone = known.takes == SWITCH or flag.endswith("-selector")  # The value of a selector is a separate argument.
        if alone != (value == "") or (known.choices and value not in known.choices):
            found.append(f"{flag} {value}")
    return found


def test_every_combination_is_generated_or_refused_with_a_sentence(outcomes: list[Outcome]) -> None:
    refused = [said for _, said in outcomes if isinstance(said, str)]
    assert len(outcomes) - len(refused) > 100
    assert len(refused) > 30
    assert [said for said in refused if not said.endswith(".") or len(said) < 30] == []


def test_every_generated_recipe_is_a_command_within_the_node_limits(outcomes: list[Outcome]) -> None:
    for ask, made in outcomes:
        if isinstance(made, PlanProposal):
            text = commands(made)
            assert made.served.place in text
            assert "None" not in text and "{{" not in text
            assert set(re.findall(r"\$\{?([A-Z]\w*[A-Z]|\w*NODE0|HOST1)\b", text)) <= explained(text), "what a person sets"
            assert made.nodes <= (ask.nodes or made.nodes)


def test_every_preset_variable_is_read_by_its_engine_version(outcomes: list[Outcome]) -> None:
    """Every variable that a preset sets is read by that version of the engine, because an engine ignores an unknown variable
    without an error.
    """
    for made in (one for _, one in outcomes if isinstance(one, PlanProposal) and one.engine.name == "sglang"):
        for filled in (in_pods(made), in_shell(made)):
            names = {word.name for launch in filled.launches for word in launch.env if word.name.startswith("SGLANG_")}
            assert names <= made.engine.command_line.variables.keys(), made.engine.version


def test_every_generated_manifest_is_rendered_by_the_operator(outcomes: list[Outcome]) -> None:
    """Every generated manifest is valid YAML that the operator renders, the runtime has the sizes of the plan, and a
    reconciliation of the service yields no advice.
    """
    for made in (one for _, one in outcomes if isinstance(one, PlanProposal)):
        model, runtime, namespace, *files, service = yaml.load_all(manifests(made).all, Loader=yaml.CSafeLoader)
        assert [one["kind"] for one in files] == ["ConfigMap"] * len(files)
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
            assert gpus * role.nodes == role.size
            for runner in runners(part):
                if runner.get("command", part["runner"]["command"]) != ["/bin/bash", "-c"]:
                    assert problems(made.engine.command_line, runner.get("args", [])) == []
                else:
                    assert all(isinstance(one, str) and "{{" not in one for one in runner.get("args", []))
            assert part["runner"]["image"] == made.engine.images[made.hardware.vendor]
        if made.router:
            assert made.engine.name == "sglang"
            assert problems(ROUTER, runtime["spec"]["routerConfig"]["runner"]["args"]) == []
        sizes = {name: part["minReplicas"] for name, part in service["spec"].items() if "minReplicas" in part}
        assert sizes == {role.component: made.copies for role in made.roles} | ({keys.ROUTER: 1} if made.router else {})
        if made.request.nodes is None and made.served.name == INSTRUCT[made.engine.format]:
            told = [each for each in advice(asked, *parsed) if made.engine.preset != GUIDE or "--enable-metrics" not in each]
            assert told == []


def runners(part: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the main containers of a component: the container for all pods, for the leader, and for the workers, as far as
    the component has them.
    """
    found = (part["runner"], part.get("leader", {}).get("runner"), part.get("worker", {}).get("runner"))
    return [one for one in found if one]


GUIDE = "sglang-guide"
"""The preset that repeats a published guide word for word, which has no --enable-metrics."""
INSTRUCT = {"safetensors": "Kimi-K2-Instruct", "gguf": "Kimi-K2-Instruct-GGUF"}
"""A model for each weight format, which is enough for the slow part of the test: reconciling the service."""


def advice(service: Any, model: Any, runtime: Any) -> list[str]:
    """Return the advice that the operator's first reconciliation gives for a service."""
    holders = {f"models.ome.io/clusterbasemodel.{model.name}": frozenset(f"node-{number}" for number in range(64))}
    deps = change_deps(
        Deps(),
        models={Ref(model.kind, "", model.name): model},
        runtimes={Ref(runtime.kind, "", runtime.name): runtime},
        registry_image="registry:1",
        holders=holders,
    )
    status = sync(service, deps, Observed(), START).status or {}
    return [f"{one['type']}: {one.get('message')}" for one in status.get("conditions", ()) if one["type"] == "Advice"]


SHIPPED: dict[str, tuple[str, dict[str, Any]]] = {
    "SGLang, prefill and decode": ("srt/kimi-k2-pd-rt", {"strategy": "pd"}),
    "SGLang, for agents": (
        "srt/kimi-k2-pd-agentic-rt",
        {
            "strategy": "pd",
            "prefill_nodes": 8,
            "decode_nodes": 8,
            "prefill_groups": 4,
            "decode_batch": 40,
            "prefix_cache": True,
            "context_length": 65536,
        },
    ),
    "vLLM, TP on Ray": ("vllm/kimi-k2-tp16-ray-rt", {"engine": "vllm", "version": "0.17.1", "tp": 16}),
    "vLLM, DP and EP": ("vllm/kimi-k2-dp16-ep-rt", {"engine": "vllm", "strategy": "dp+ep", "dp": 16}),
    "TensorRT-LLM": ("trtllm/kimi-k2-tp16-mpi-rt", {"engine": "tensorrt-llm", "strategy": "tp+dp+ep", "tp": 16}),
    "KTransformers": ("ktransformers/kimi-k2-gguf-rt", {"model": "gguf", "engine": "ktransformers", "strategy": "cpu"}),
    "KTransformers, AMX": (
        "ktransformers/kimi-k2-gguf-amx-rt",
        {"model": "gguf", "engine": "ktransformers", "strategy": "cpu+amx"},
    ),
}


@pytest.mark.parametrize("case", SHIPPED)
def test_generated_launch_commands_equal_those_of_shipped_runtimes(case: str, shelf: Library) -> None:
    """A recipe starts the engine in the same way, whether it comes from config/ or is generated."""
    file, asked = SHIPPED[case]
    ask = RecipeRequest(**{"hardware": "h200", "model": "instruct", "tool_call_parser": "model" not in asked, **asked})
    (made,) = yaml.safe_load_all(manifests(plan(ask, shelf)).runtime)
    shipped = parts.read_documents(parts.ROOT / f"config/runtimes/{file}.yaml")[0]
    components = [name for name in ("engineConfig", "decoderConfig") if name in shipped["spec"]]
    for name in components:
        ours, theirs = made["spec"][name], shipped["spec"][name]
        for our, their in zip(runners(ours), runners(theirs), strict=True):
            assert words(our) == words(their)
        assert variables(ours) == variables(theirs)
        for field in ("image", "command", "resources", "securityContext", "workingDir"):
            assert ours["runner"].get(field) == theirs["runner"].get(field)
        assert ours.get("annotations") == theirs.get("annotations")
        assert ours.get("worker", {}).get("size") == theirs.get("worker", {}).get("size")
    if "routerConfig" in shipped["spec"]:
        assert sorted(words(made["spec"]["routerConfig"]["runner"])) == sorted(
            words(shipped["spec"]["routerConfig"]["runner"])
        )


def test_generated_multi_node_and_thinking_arguments_equal_shipped_ones(shelf: Library) -> None:
    """Generated arguments for TP over several nodes, and for a thinking model, equal the shipped ones, except that the
    shipped files write --tp-size for --tp and request less memory.
    """
    for file, asked in (
        ("kimi-k2-tp16-rt", {"model": "instruct", "tp": 16}),
        ("kimi-k2-thinking-rt", {"model": "thinking"}),
    ):
        ask = RecipeRequest(hardware="h200", tool_call_parser=True, reasoning_parser=asked["model"] == "thinking", **asked)
        (made,) = yaml.safe_load_all(manifests(plan(ask, shelf)).runtime)
        shipped = parts.read_documents(parts.ROOT / f"config/runtimes/srt/{file}.yaml")[0]
        ours, theirs = (words(one["spec"]["engineConfig"]["runner"]) for one in (made, shipped))
        assert [one.replace("--tp=", "--tp-size=") for one in ours] == [one.replace(":50000", ":5757") for one in theirs]


def words(runner: dict[str, Any]) -> list[str]:
    """Return the arguments of a container, or the words of its script, as a set with variables in shell syntax."""
    args: list[str] = runner.get("args", [])
    if any("\n" in one for one in args):
        args = shlex.split(args[0].replace("\\\n", " "), comments=True)
    return sorted(re.sub(r"\$\((\w+)\)", r"$\1", one) for one in args)


def variables(part: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one.get("value", "$(POD_IP)") for one in part["runner"]["env"]}


EVERY = [(name, strategy) for name in engines() for strategy in engine(name).strategies]


@pytest.mark.parametrize(("name", "strategy"), EVERY)
def test_explained_yaml_contains_the_same_objects(name: str, strategy: str, shelf: Library) -> None:
    model = "gguf" if name == "ktransformers" else "instruct"
    made = plan(RecipeRequest(hardware="b200", model=model, engine=name, strategy=strategy), shelf)
    plain, explained = manifests(made), manifests(made, explain=True)
    assert list(yaml.safe_load_all(plain.all)) == list(yaml.safe_load_all(explained.all))
    assert explained.runtime.count("#") > plain.runtime.count("#") or "- |" in plain.runtime
