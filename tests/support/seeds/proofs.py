"""Proofs of rows: each function examines the code or runs it, and returns what is wrong, or "" if the proof holds.

A proof is a map with a single key, the name of such a function, and its argument.
"""

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from ome_operator.api import BenchmarkJob, Invalid, Model, Runtime, Serving, SglangModel
from ome_operator.cli.generate import bookshelf
from ome_operator.cookbook.layout import plan
from ome_operator.cookbook.library import Library
from ome_operator.cookbook.request import RecipeRefused, RecipeRequest
from ome_operator.core.benchmarkjob.job import PLAN, Images, desired_job
from ome_operator.core.observed.objects import Deps, Ref
from ome_operator.core.sglang import convert
from ome_operator.engines.flags import SWITCH
from ome_operator.sizing import published_figures
from ome_operator.sizing.constants import fitted
from tests.support import parts
from tests.support.seeds import words
from tests.support.seeds.path import at
from tests.support.seeds.rows import Proof, Row, Verdict

Told = Mapping[str, Any]


def judge(row: Row) -> tuple[Verdict, str]:
    """Return the verdict about a row, and why it does not work or differs."""
    works = _problems(row.proof)
    if not works:
        return Verdict.WORKS, ""
    differs = _problems(row.instead)
    if not differs:
        return Verdict.DIFFERS, works
    return Verdict.MISSING, f"{works}; instead: {differs}"


def _problems(proofs: Iterable[Proof]) -> str:
    """Return what is wrong with the first proof that fails, or that there is no proof."""
    said = [holds(name, told) for proof in proofs for name, told in proof.items()]
    return next((sentence for sentence in said if sentence), "" if said else "there is no proof")


def holds(name: str, told: Any) -> str:
    """Return what is wrong with a proof; "" if it holds."""
    try:
        return PROOFS[name](told)
    except words.NothingThere as error:
        return str(error)


def flag(told: Told) -> str:
    """A flag that the version of its time knows is in the generated command, and in pods with the same value."""
    name, *values = shlex.split(told["is"])
    if said := _known(told["generate"], name, values):
        return said
    if not words.stands(words.command(told["generate"], told.get("block", 0)), [name, *values]):
        return f"ome generate {told['generate']} does not write {told['is']}"
    return _in_pods(told["pods"], name, values) if "pods" in told else ""


def _known(generate: str, name: str, values: list[str]) -> str:
    """Check whether the engine's own list of flags contains a flag. Flags of other programs (mpirun) begin with a single
    dash.
    """
    if not name.startswith("--"):
        return ""
    engine = words.chosen(generate)
    known = engine.command_line.find(name)
    if known is None:
        return f"{engine.name} {engine.version} has no {name}"
    return f"{name} takes no value" if (known.takes == SWITCH) == bool(values) else ""


def _in_pods(pods: Told, name: str, values: list[str]) -> str:
    run = words.run(pods)
    if words.stands(run, [name, *values]):
        return ""
    found = [at for at, word in enumerate(run) if word == name or (name.startswith("--") and word == f"{name}-size")]
    there = [run[at + 1 : at + 1 + len(values)] for at in found]
    same = [
        given for given in there if all("$" in ours or ours == theirs for ours, theirs in zip(given, values, strict=True))
    ]
    return "" if same else f"pods of {dict(pods)} have {name} with {there}"


def variable(told: Told) -> str:
    """A variable is set before the generated command, and in pods."""
    name, _, value = told["is"].partition("=")
    if told["is"] not in words.command(told["generate"], told.get("block", 0)):
        return f"ome generate {told['generate']} does not set {told['is']}"
    if "pods" in told and (found := words.variables(told["pods"]).get(name)) != value:
        return f"pods of {told['pods']} have {name}={found}"
    return ""


def generates(told: Told) -> str:
    """Words are adjacent in a generated command, and other words are absent."""
    found = words.command(told["words"], told.get("block", 0))
    if not found:
        return f"ome generate {told['words']}: {words.generate(told['words']).exception}"
    absent = [part for part in told.get("has", ()) if not words.stands(found, shlex.split(part))]
    there = [part for part in told.get("lacks", ()) if words.stands(found, shlex.split(part))]
    return "; ".join([f"no {part}" for part in absent] + [f"{part} is there" for part in there])


def tells(told: Told) -> str:
    """The output of `ome generate`, on either stream or in its error, contains these texts."""
    done = words.generate(told["words"])
    text = " ".join(f"{done.stdout} {done.stderr} {done.exception or ''}".split())
    return "; ".join(f"it does not say {part}" for part in told["has"] if part not in text)


def explains(told: list[str]) -> str:
    """The output of `ome plan explain` contains these texts."""
    return "; ".join(f"it does not explain {part}" for part in told if part not in _explained())


@cache
def _explained() -> str:
    return " ".join(published_figures.text(fitted()).split())


def pods(told: Told) -> str:
    """Check the words of a container's command, its variables, and other places of its pod."""
    run, env, template = words.run(told), words.variables(told), words.pod(told)
    said = [f"it does not run {part}" for part in told.get("runs", ()) if not words.stands(run, shlex.split(part))]
    said += [f"{name} is {env.get(name)}" for name, value in told.get("env", {}).items() if env.get(name) != value]
    return "; ".join(said + _places(template, told.get("at", {})))


def made(told: Told) -> str:
    """An object that the operator creates for a service has these values at these places."""
    name = told.get("name")
    found = [
        body
        for body in words.objects(told)
        if body["kind"] == told["kind"] and (name is None or body["metadata"]["name"] == name)
    ]
    if not found:
        return f"no {told['kind']} {name or ''} is written"
    said = ["; ".join(_places(body, told.get("at", {}))) for body in found]
    return "" if "" in said else said[0]


def shipped(told: Told) -> str:
    """A file of `config` that users apply is valid, and has these values at these places."""
    file = parts.ROOT / told["file"]
    if not file.is_file():
        return f"there is no {told['file']}"
    kinds = {kind: parser for parser in (Model, Runtime, BenchmarkJob) for kind in parser.KINDS}
    said = []
    for body in parts.read(file):
        parsed = kinds[body["kind"]].parse(body) if body["kind"] in kinds else None
        said.append(parsed.why if isinstance(parsed, Invalid) else "; ".join(_places(body, told.get("at", {}))))
    return "" if "" in said else said[0]


def _places(data: Any, expected: Told) -> list[str]:
    """Return the places whose values differ. A list has to contain every given entry."""
    said = []
    for place, value in expected.items():
        found = at(data, place)
        same = found is not None if value == "anything" else found == value
        if isinstance(value, list) and isinstance(found, list):
            same = all(entry in found for entry in value)
        if not same:
            said.append(f"{place} is {found}")
    return said


def facts(told: Told) -> str:
    """Check the facts that the catalog derives of a model from its own config.json."""
    found = shelf().model(told["model"]).facts
    return "; ".join(_places(found, told["at"]))


def sizes(told: Told) -> str:
    """Check how the cookbook divides a model: fields of a role of the plan, or of the plan itself."""
    try:
        made = plan(RecipeRequest(**told["ask"]), shelf())
    except (RecipeRefused, TypeError) as error:
        return str(error)
    return "; ".join(_places(made.roles[told["role"]] if "role" in told else made, told["at"]))


@cache
def shelf() -> Library:
    """Return the models and hardware of this checkout."""
    return bookshelf()


def text(told: Told) -> str:
    """A file of the repository, or its comments, contain these words, regardless of line breaks."""
    file = parts.ROOT / told["file"]
    if not file.is_file():
        return f"there is no {told['file']}"
    found = " ".join(file.read_text(encoding="utf-8").replace("\n#", "\n").split())
    return "; ".join(f"{told['file']} does not say {part}" for part in told["has"] if " ".join(part.split()) not in found)


def benchmark(told: Told) -> str:
    """Arguments of SGLang's own benchmark are in the Job that is created from a sample."""
    (body,) = [body for body in parts.read(parts.ROOT / told["sample"]) if body["kind"] == "BenchmarkJob"]
    service, deps = parts.kimi()
    status = {"url": "http://service:8080", "conditions": [{"type": "Ready", "status": "True"}]}
    body["metadata"]["uid"] = "uid"
    job, why = desired_job(
        Images("sglang", "ome"), parts.good(BenchmarkJob.parse(body)), replace(service, status=status), deps
    )
    if job is None:
        return str(why)
    (run,) = [box for box in job["spec"]["template"]["spec"]["initContainers"] if box["name"] == "run"]
    (said,) = [json.loads(entry["value"]) for entry in run["env"] if entry["name"] == PLAN]
    args = [*said["serving"], *said["runs"][0]["args"]]
    absent = [part for part in told.get("has", ()) if not words.stands(args, shlex.split(part))]
    return "; ".join([f"{part} is not in {args}" for part in absent] + _places(said, told.get("at", {})))


def short_kinds(told: Told) -> str:
    """A model and a Serving of sglang.ai/v1 are converted to a ClusterBaseModel and an InferenceService."""
    model = parts.good(SglangModel.parse(told["model"]))
    base, _ = convert.desired_object(model, Deps())
    made = {"ClusterBaseModel": base}
    if "serving" in told and base is not None:
        _, deps = parts.kimi()
        found = parts.good(Model.parse(base))
        known = replace(found, status={"facts": {**FACTS}})
        deps = replace(deps, models={Ref("ClusterBaseModel", "", found.name): known})
        made["InferenceService"], why = convert.desired_object(parts.good(Serving.parse(told["serving"])), deps)
        if made["InferenceService"] is None:
            return str(why)
    return "; ".join(_places(made, told["at"]))


FACTS = {
    "architecture": "DeepseekV3ForCausalLM",
    "quantization": {"name": "fp8"},
    "parameters": 1026408232448,
    "format": {"name": "safetensors"},
    "framework": {"name": "transformers"},
}
"""The facts that an agent reads from the files of Kimi K2."""


def tested(told: str) -> str:
    """The repository contains a test that shows it with real components."""
    file, _, name = told.partition("::")
    path = parts.ROOT / file
    return "" if path.is_file() and f"def {name}(" in path.read_text() else f"there is no test {told}"


PROOFS: dict[str, Callable[[Any], str]] = {
    proof.__name__: proof
    for proof in (
        flag,
        variable,
        generates,
        tells,
        explains,
        pods,
        made,
        shipped,
        facts,
        sizes,
        text,
        benchmark,
        short_kinds,
        tested,
    )
}
