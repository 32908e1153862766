"""What recipes are made of: models, hardware, engines.

Facts come from the data of this package, from config/ and from the command lines of engines.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ome_operator import quantity
from ome_operator.api import AcceleratorClass, Facts, Model
from ome_operator.capacity.model import ModelFacts, matrix_widths
from ome_operator.cookbook.request import RecipeRefused
from ome_operator.engines import servers
from ome_operator.engines.flags import CommandLine, command_line
from ome_operator.modelinfo.extract import CONFIG, facts
from ome_operator.modelinfo.weight_sizes import WeightBytes, weight_bytes
from ome_operator.util import package_data
from ome_operator.util.kubeyaml import document


@dataclass(frozen=True)
class Served:
    """A model that recipes exist for."""

    name: str
    """Last part of its repository, as people call it."""
    repository: str
    model: Model
    manifest: str
    """Its file in config/models."""
    facts: Facts
    weights: WeightBytes
    widths: tuple[int, ...]
    """Columns of the matrices that tensor parallelism cuts, for quantization in blocks."""
    tool_call_parser: str | None
    reasoning_parser: str | None
    why: str
    """Why it has no parser, where it has none."""
    strategies: tuple[str, ...]
    """That it has recipes for; () for all."""
    remote_code: bool
    """Whether its tokenizer is Python code beside the weights."""
    wide_nodes: int
    """Of the published recipe with prefill and decode apart; a quarter of them is for prefill."""
    wide_batch: int
    """Requests of a rank of decode there."""

    @property
    def sizes(self) -> ModelFacts:
        """The model as `capacity` takes it."""
        return ModelFacts(self.name, self.facts, self.weights, self.widths)

    @property
    def place(self) -> str:
        """What a command by hand names: the repository, which engines fetch; the folder of GGUF files, which they do not."""
        return (self.model.spec.storage.path if self.format == "gguf" else None) or self.repository

    @property
    def format(self) -> str:
        """Of its files."""
        found = self.model.spec.model_format
        return found.name if found else ""


@dataclass(frozen=True)
class Hardware:
    """One kind of GPU."""

    name: str
    accelerator: AcceleratorClass
    memory: int
    """Bytes of one GPU."""
    vendor: str
    resource: str
    """What pods ask for."""

    @property
    def title(self) -> str:
        """As people write it."""
        return self.name.upper()


@dataclass(frozen=True)
class Wide:
    """What a recipe of wide expert parallelism needs."""

    vendor: str
    why: str
    quantization: str


@dataclass(frozen=True)
class Amounts:
    """What pods ask for beside each GPU."""

    cpu: int
    memory_gib: int


@dataclass(frozen=True)
class Engine:
    """One version of an engine."""

    name: str
    version: str
    command_line: CommandLine
    preset: str
    """Name of its template."""
    server: servers.Server
    images: Mapping[str, str]
    """Vendor → image."""
    shares: Mapping[str, float]
    """Strategy, or stage of it → share of a GPU's memory for weights and cache; `default` for the others."""
    strategies: tuple[str, ...]
    format: str
    """Of the weights that it reads."""
    quantizations: tuple[str, ...]
    """Of weights that it has a recipe for; () when any will do."""
    ray: bool
    """Whether Ray starts the ranks of other nodes; else each node starts its own."""
    router: bool
    """Whether our router can stand before several copies."""
    attention_on_all: bool
    """Whether DP attention has a rank on each GPU when nobody says how many; else on half of them."""
    per_gpu: Amounts
    wide: Wide | None


@dataclass(frozen=True)
class Library:
    """Everything that can be asked for."""

    models: Mapping[str, Served]
    """By name in lower case."""
    hardware: Mapping[str, Hardware]
    elsewhere: Mapping[str, str]
    """Name in lower case of a model that has not a recipe for everything → the file of a service that serves it."""

    def model(self, name: str) -> Served:
        """A model by its name, its repository or what follows its family: Kimi-K2-Base, moonshotai/Kimi-K2-Base, base."""
        asked = name.lower().rpartition("/")[2]
        found = [one for key, one in self.models.items() if key == asked or key.endswith(f"-{asked}")]
        if len(found) != 1:
            known = ", ".join(served.name for served in self.models.values())
            sample = self.elsewhere.get(asked)
            instead = f" {sample} is a service of {name} that needs none." if sample else ""
            raise RecipeRefused(f"There is no recipe for a model {name}: there are recipes for {known}.{instead}")
        return found[0]

    def machine(self, name: str) -> Hardware:
        """Hardware by the name of its GPU, or of its AcceleratorClass."""
        asked = name.lower()
        for key, one in self.hardware.items():
            if asked in (key, one.accelerator.name):
                return one
        known = ", ".join(sorted(self.hardware))
        raise RecipeRefused(f"The hardware {name} is not known: there is {known}, each a file of config/accelerators.")


def library(models: Iterable[tuple[Model, str]], classes: Iterable[AcceleratorClass], samples: Mapping[str, str]) -> Library:
    """The library from models with the text of their files, and accelerator classes; those that lack a size are left out.

    `samples`: name of a model's object → the file of a service that serves it.
    """
    data = _data("models.yaml")
    served, elsewhere = {}, {}
    for model, text in models:
        repository = model.spec.storage.storage_uri.partition("://")[2].partition("@")[0]
        name = repository.rpartition("/")[2]
        if name in data and (one := _served(name, repository, model, text, data[name])):
            served[name.lower()] = one
        known = served.get(name.lower())
        if (known is None or known.strategies) and (sample := samples.get(model.name)):
            elsewhere[name.lower()] = sample
    hardware = {one.name: one for one in map(_hardware, classes) if one is not None}
    ordered = dict(sorted(hardware.items(), key=lambda item: (item[1].vendor != "nvidia", item[0])))
    whole_first = dict(sorted(served.items(), key=lambda item: bool(item[1].strategies)))
    return Library(whole_first, ordered, elsewhere)


def engines() -> Mapping[str, tuple[str, ...]]:
    """Engine → its versions that have presets, the newest first."""
    return {name: tuple(one["versions"]) for name, one in _data("engines.yaml").items()}


@cache
def engine(name: str, version: str | None = None) -> Engine:
    """An engine that has presets; without a version its newest."""
    known = engines()
    if name not in known:
        raise RecipeRefused(f"There is no preset for the engine {name}: there is one for {', '.join(known)}.")
    if version is not None and version not in known[name]:
        raise RecipeRefused(f"There is no preset for {name} {version}: there is one for {', '.join(known[name])}.")
    chosen = version or known[name][0]
    whole = _data("engines.yaml")[name]
    data = whole["versions"][chosen]
    return Engine(
        name=name,
        version=chosen,
        command_line=command_line(data["commandLine"]),
        preset=data["preset"],
        server=next(one for one in servers.known_servers() if one.name == name),
        images=data["images"],
        shares=whole["memoryShares"],
        strategies=tuple(data.get("strategies") or whole["strategies"]),
        format=whole["format"],
        quantizations=tuple(whole.get("quantizations") or ()),
        ray=data.get("ray", False),
        router=whole.get("router", False),
        attention_on_all=whole["attentionDp"] == "all",
        per_gpu=Amounts(whole["perGpu"]["cpu"], whole["perGpu"]["memoryGiB"]),
        wide=Wide(**whole["wide"]) if "wide" in whole else None,
    )


def source(name: str) -> str:
    """The text of a file of this package's data."""
    return package_data.text("ome_operator.cookbook", name)


@cache
def _data(name: str) -> dict[str, Any]:
    found: dict[str, Any] = document(source(name))
    return found


def _served(name: str, repository: str, model: Model, text: str, data: Mapping[str, Any]) -> Served | None:
    config = published_config(repository)
    sizes = weight_bytes(config) if config is not None else None
    if config is None or sizes is None:
        return None
    return Served(
        name=name,
        repository=repository,
        model=model,
        manifest=text,
        facts=facts({CONFIG: json.dumps(config)}),
        weights=sizes,
        widths=matrix_widths(config),
        tool_call_parser=data["toolCallParser"],
        reasoning_parser=data["reasoningParser"],
        why=data.get("why", ""),
        strategies=tuple(data.get("strategies", ())),
        remote_code=data["remoteCode"],
        wide_nodes=data["wide"]["nodes"],
        wide_batch=data["wide"]["batch"],
    )


def _hardware(one: AcceleratorClass) -> Hardware | None:
    spec = one.spec
    if not spec.model or not spec.vendor or spec.capabilities.memory_gb is None or not spec.resources:
        return None
    return Hardware(spec.model.lower(), one, memory(one) or 0, spec.vendor, spec.resources[0].name)


def memory(accelerator: AcceleratorClass) -> int | None:
    """Bytes of a GPU of a class; None where the class does not say it."""
    said = accelerator.spec.capabilities.memory_gb
    if said is None:
        return None
    # Memory is sold in GB and built in GiB: the driver of an H200 ("141 GB") reports 143771 MiB.
    amount = quantity.parse(said)
    return int(amount) if amount >= 10**6 else int(amount * 2**30)


def published_config(repository: str) -> Mapping[str, Any] | None:
    """The sizes in the config.json of a model of config/models, by the last part of its repository."""
    name = repository.rpartition("/")[2]
    found: Mapping[str, Any] | None = (_data("models.yaml").get(name) or {}).get("config")
    return found or _data("shapes.yaml").get(name)
