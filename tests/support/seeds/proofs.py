"""Proofs that the rows of tests/data/seeds.yaml still hold: each function examines the code, or runs it. It returns what is
wrong, or "" if the proof holds.

A proof is a map whose only key is the name of such a function, and whose value is the function's argument.
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
from ome_operator.sizing.constants import shipped_constants
from tests.support import parts
from tests.support.seeds import words
from tests.support.seeds.path import at
from tests.support.seeds.rows import Proof, Row, RowResult, only_written

Argument = Mapping[str, Any]


def prove_row(row: Row) -> tuple[RowResult, str]:
    """Return the result of a row, and the reason if what the row states does not work or differs."""
    works = _problems(row.proof)
    if not works:
        unrun = only_written(row.kind, row.proof) or row.expected == RowResult.WRITTEN
        return (RowResult.WRITTEN if unrun else RowResult.WORKS), ""
    differs = _problems(row.instead)
    if not differs:
        return RowResult.DIFFERS, works
    return RowResult.MISSING, f"{works}; instead: {differs}"


def _problems(proofs: Iterable[Proof]) -> str:
    """Return what is wrong with the first proof that fails, or that there is no proof."""
    said = [holds(name, argument) for proof in proofs for name, argument in proof.items()]
    return next((sentence for sentence in said if sentence), "" if said else "there is no proof")


def holds(name: str, argument: Any) -> str:
    """Return what is wrong with a proof; "" if it holds."""
    try:
        return PROOFS[name](argument)
    except words.NothingThere as error:
        return str(error)


def flag(argument: Argument) -> str:
    """Check that the engine had a flag in the version that was current when the document was written. Check also that the
    generated command and the pods contain the flag with the same value.
    """
    name, *values = shlex.split(argument["is"])
    if said := _known(argument["generate"], name, values):
        return said
    if not words.contains_sequence(words.command(argument["generate"], argument.get("block", 0)), [name, *values]):
        return f"ome generate {argument['generate']} does not write {argument['is']}"
    return _in_pods(argument["pods"], name, values) if "pods" in argument else ""


def _known(generate: str, name: str, values: list[str]) -> str:
    """Return what is wrong with a flag according to the engine's own list of flags: the list lacks it, or it has values
    although it takes none, or none although it takes some; "" if nothing is wrong. Flags with a single dash belong to other
    programs (mpirun), and are not checked.
    """
    if not name.startswith("--"):
        return ""
    engine = words.chosen_engine(generate)
    known = engine.command_line.find_flag(name)
    if known is None:
        return f"{engine.name} {engine.version} has no {name}"
    return f"{name} takes no value" if (known.takes == SWITCH) == bool(values) else ""


def _in_pods(pods: Argument, name: str, values: list[str]) -> str:
    run = words.run(pods)
    if words.contains_sequence(run, [name, *values]):
        return ""
    found = [at for at, word in enumerate(run) if word == name or (name.startswith("--") and word == f"{name}-size")]
    there = [run[at + 1 : at + 1 + len(values)] for at in found]
    same = [
        given for given in there if all("$" in ours or ours == theirs for ours, theirs in zip(given, values, strict=True))
    ]
    return "" if same else f"pods of {dict(pods)} have {name} with {there}"


def variable(argument: Argument) -> str:
    """Check that an environment variable is set before the generated command, and in the pods."""
    name, _, value = argument["is"].partition("=")
    if argument["is"] not in words.command(argument["generate"], argument.get("block", 0)):
        return f"ome generate {argument['generate']} does not set {argument['is']}"
    if "pods" in argument and (found := words.variables(argument["pods"]).get(name)) != value:
        return f"pods of {argument['pods']} have {name}={found}"
    return ""


def generates(argument: Argument) -> str:
    """Check a generated command. It has to contain the words of each entry of `has` next to each other, and must not
    contain the words of any entry of `lacks`.
    """
    found = words.command(argument["words"], argument.get("block", 0))
    if not found:
        return f"ome generate {argument['words']}: {words.generate(argument['words']).exception}"
    absent = [part for part in argument.get("has", ()) if not words.contains_sequence(found, shlex.split(part))]
    there = [part for part in argument.get("lacks", ()) if words.contains_sequence(found, shlex.split(part))]
    return "; ".join([f"no {part}" for part in absent] + [f"{part} is there" for part in there])


def tells(argument: Argument) -> str:
    """Check that the output of `ome generate`, on either stream or in its error, contains these texts."""
    done = words.generate(argument["words"])
    text = " ".join(f"{done.stdout} {done.stderr} {done.exception or ''}".split())
    return "; ".join(f"it does not say {part}" for part in argument["has"] if part not in text)


def explains(argument: list[str]) -> str:
    """Check that the output of `ome plan explain` contains these texts."""
    return "; ".join(f"it does not explain {part}" for part in argument if part not in _explained())


@cache
def _explained() -> str:
    return " ".join(published_figures.text(shipped_constants()).split())


def pods(argument: Argument) -> str:
    """Check the words of a container's command, its variables, and other places of its pod."""
    run, env, template = words.run(argument), words.variables(argument), words.pod(argument)
    said = [
        f"it does not run {part}" for part in argument.get("runs", ()) if not words.contains_sequence(run, shlex.split(part))
    ]
    said += [f"{name} is {env.get(name)}" for name, value in argument.get("env", {}).items() if env.get(name) != value]
    return "; ".join(said + _places(template, argument.get("at", {})))


def made(argument: Argument) -> str:
    """Check that an object that the operator creates for a service has these values at these places."""
    name = argument.get("name")
    found = [
        body
        for body in words.objects(argument)
        if body["kind"] == argument["kind"] and (name is None or body["metadata"]["name"] == name)
    ]
    if not found:
        return f"no {argument['kind']} {name or ''} is written"
    said = ["; ".join(_places(body, argument.get("at", {}))) for body in found]
    return "" if "" in said else said[0]


def shipped(argument: Argument) -> str:
    """Check that a file of `config` that users apply is valid, and has these values at these places."""
    file = parts.ROOT / argument["file"]
    if not file.is_file():
        return f"there is no {argument['file']}"
    kinds = {kind: parser for parser in (Model, Runtime, BenchmarkJob) for kind in parser.KINDS}
    said = []
    for body in parts.read_documents(file):
        parsed = kinds[body["kind"]].parse(body) if body["kind"] in kinds else None
        said.append(parsed.why if isinstance(parsed, Invalid) else "; ".join(_places(body, argument.get("at", {}))))
    return "" if "" in said else said[0]


def _places(data: Any, expected: Argument) -> list[str]:
    """Return a text about each place whose value differs; "" if all are equal. Where a list is expected, the actual list has
    to contain all of its entries.
    """
    said = []
    for place, value in expected.items():
        found = at(data, place)
        same = found is not None if value == "anything" else found == value
        if isinstance(value, list) and isinstance(found, list):
            same = all(entry in found for entry in value)
        if not same:
            said.append(f"{place} is {found}")
    return said


def facts(argument: Argument) -> str:
    """Check the facts that the catalog derives for a model from the model's own config.json."""
    found = shelf().model(argument["model"]).facts
    return "; ".join(_places(found, argument["at"]))


def sizes(argument: Argument) -> str:
    """Check fields of the plan that the cookbook makes for a model, or fields of one role of this plan."""
    try:
        made = plan(RecipeRequest(**argument["ask"]), shelf())
    except (RecipeRefused, TypeError) as error:
        return str(error)
    return "; ".join(_places(made.roles[argument["role"]] if "role" in argument else made, argument["at"]))


@cache
def shelf() -> Library:
    """Return the models and hardware of this checkout."""
    return bookshelf()


def text(argument: Argument) -> str:
    """Check that a file of the repository, or its comments, contain these words, regardless of line breaks."""
    file = parts.ROOT / argument["file"]
    if not file.is_file():
        return f"there is no {argument['file']}"
    found = " ".join(file.read_text(encoding="utf-8").replace("\n#", "\n").split())
    return "; ".join(
        f"{argument['file']} does not say {part}" for part in argument["has"] if " ".join(part.split()) not in found
    )


def benchmark(argument: Argument) -> str:
    """Check that the Job that is created from a sample contains these arguments of SGLang's own benchmark."""
    (body,) = [body for body in parts.read_documents(parts.ROOT / argument["sample"]) if body["kind"] == "BenchmarkJob"]
    service, deps = parts.kimi()
    status = {"url": "http://service:8080", "conditions": [{"type": "Ready", "status": "True"}]}
    body["metadata"]["uid"] = "uid"
    job, why = desired_job(
        Images("sglang", "ome"), parts.ensure_valid(BenchmarkJob.parse(body)), replace(service, status=status), deps
    )
    if job is None:
        return str(why)
    (run,) = [box for box in job["spec"]["template"]["spec"]["initContainers"] if box["name"] == "run"]
    (said,) = [json.loads(entry["value"]) for entry in run["env"] if entry["name"] == PLAN]
    args = [*said["serving"], *said["runs"][0]["args"]]
    absent = [part for part in argument.get("has", ()) if not words.contains_sequence(args, shlex.split(part))]
    return "; ".join([f"{part} is not in {args}" for part in absent] + _places(said, argument.get("at", {})))


def short_kinds(argument: Argument) -> str:
    """Check that a model and a Serving of sglang.ai/v1 are converted to a ClusterBaseModel and an InferenceService."""
    model = parts.ensure_valid(SglangModel.parse(argument["model"]))
    base, _ = convert.desired_object(model, Deps())
    made = {"ClusterBaseModel": base}
    if "serving" in argument and base is not None:
        _, deps = parts.kimi()
        found = parts.ensure_valid(Model.parse(base))
        known = replace(found, status={"facts": {**FACTS}})
        deps = replace(deps, models={Ref("ClusterBaseModel", "", found.name): known})
        made["InferenceService"], why = convert.desired_object(parts.ensure_valid(Serving.parse(argument["serving"])), deps)
        if made["InferenceService"] is None:
            return str(why)
    return "; ".join(_places(made, argument["at"]))


FACTS = {
    "architecture": "DeepseekV3ForCausalLM",
    "quantization": {"name": "fp8"},
    "parameters": 1026408232448,
    "format": {"name": "safetensors"},
    "framework": {"name": "transformers"},
}
"""The facts that an agent reads from the files of Kimi K2."""


def tested(argument: str) -> str:
    """Check that the repository contains this test, which shows the row's claim with real components."""
    file, _, name = argument.partition("::")
    path = parts.ROOT / file
    return "" if path.is_file() and f"def {name}(" in path.read_text() else f"there is no test {argument}"


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
