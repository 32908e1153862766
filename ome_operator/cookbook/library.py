"""The known models, hardware and engines for which recipes exist.

The facts are read from the data files of this package, from config/, and from the command lines of the engines.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from typing import Any

from ome_operator import quantity
from ome_operator.api import AcceleratorClass, Facts, Model
from ome_operator.api.well_known import ALIASES
from ome_operator.capacity.model import ModelFacts, matrix_widths
from ome_operator.cookbook.request import RecipeRefused
from ome_operator.engines import servers
from ome_operator.engines.flags import CommandLine, command_line
from ome_operator.modelinfo.extract import CONFIG, facts
from ome_operator.modelinfo.weight_sizes import WeightBytes, weight_bytes
from ome_operator.util import package_data
from ome_operator.util.kubeyaml import document


@dataclass(frozen=True)
class ServedModel:
    """A model for which recipes exist."""

    name: str
    """The last part of the model's repository, such as Kimi-K2-Instruct."""
    repository: str
    model: Model
    manifest: str
    """The text of the model's manifest in config/models."""
    facts: Facts
    weights: WeightBytes
    widths: tuple[int, ...]
    """Numbers of columns of the matrices that tensor parallelism cuts. They are needed to check quantization blocks."""
    tool_call_parser: str | None
    reasoning_parser: str | None
    why: str
    """The reason why the model has no parser of reasoning or tool calls; "" if it has one."""
    strategies: tuple[str, ...]
    """The strategies for which the model has recipes; empty if there are recipes for all strategies."""
    remote_code: bool | None
    """Whether the model's configuration or tokenizer is Python code that is stored with the weights; engines run such
    code only with --trust-remote-code. None if this is not known."""
    wide_nodes: int
    """Number of nodes in the published recipe with disaggregation. A quarter of them are for prefill."""
    wide_batch: int
    """Batch of a decode rank in the published recipe with disaggregation, in requests."""
    own: bool = False
    """Whether the model comes from `--from` instead of config/models. The cookbook then knows no parsers of the model."""

    @property
    def sizes(self) -> ModelFacts:
        """The facts of the model for the functions of `capacity`."""
        return ModelFacts(self.name, self.facts, self.weights, self.widths)

    @property
    def place(self) -> str:
        """The argument that names the model in a command that a user runs by hand. It is the model's repository, which
        the engine downloads. For GGUF files it is a directory, because engines do not download these files.
        """
        return (self.model.spec.storage.path if self.format == "gguf" else None) or self.repository

    @property
    def format(self) -> str:
        """The format of the model's weight files."""
        found = self.model.spec.model_format
        return found.name if found else ""


@dataclass(frozen=True)
class Hardware:
    """A GPU model."""

    name: str
    accelerator: AcceleratorClass
    memory: int
    """Memory of one GPU, in bytes."""
    vendor: str
    resource: str
    """The resource that pods request, such as nvidia.com/gpu."""

    @property
    def title(self) -> str:
        """The name of the GPU as it is usually written."""
        return self.name.upper()


@dataclass(frozen=True)
class WideExpertParallelism:
    """The requirements of a recipe with wide expert parallelism."""

    vendor: str
    why: str
    quantization: str


@dataclass(frozen=True)
class PodAmounts:
    """The amounts of CPU and memory that pods request for each GPU."""

    cpu: int
    memory_gib: int


@dataclass(frozen=True)
class Engine:
    """A version of an engine, with the facts that recipes need."""

    name: str
    version: str
    command_line: CommandLine
    preset: str
    """Name of the file in presets/, the template of the launch command."""
    server: servers.Server
    images: Mapping[str, str]
    """Maps the vendor of a GPU to the image of the engine."""
    shares: Mapping[str, float]
    """Strategy, or stage of a strategy → fraction of a GPU's memory for weights and KV cache. The entry `default` applies
    to all other strategies and stages."""
    strategies: tuple[str, ...]
    format: str
    """Format of the weight files that the engine reads."""
    quantizations: tuple[str, ...]
    """Quantizations of weights for which the engine has recipes; empty if there are recipes for all quantizations."""
    ray: bool
    """Whether Ray starts the ranks on the other nodes of a group. If not, each node starts its own ranks."""
    router: bool
    """Whether the operator's router can balance requests over several copies."""
    attention_on_all: bool
    """Whether DP attention has a rank on each GPU by default. If not, it has a rank on every second GPU."""
    per_gpu: PodAmounts
    wide: WideExpertParallelism | None


@dataclass(frozen=True)
class Library:
    """The models, hardware and engines that a request can name."""

    models: Mapping[str, ServedModel]
    """Models by their name in lower case."""
    hardware: Mapping[str, Hardware]
    elsewhere: Mapping[str, str]
    """Maps the name (in lower case) of a model without recipes for some strategies to the file of a service that serves
    the model."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Other name of a model → its key in `models`, both in lower case. The other names come from the annotation
    `ome.io/also-known-as`. The owner of the repository is removed from each name. An example is kimi-k2-chat."""

    def model(self, name: str) -> ServedModel:
        """Return the model that `name` identifies. `name` is the name of the model, such as Kimi-K2-Base; another known
        name of it; its repository, such as moonshotai/Kimi-K2-Base; or the part of the name after the model family, such
        as base.

        Raises RecipeRefused for an unknown or ambiguous name.
        """
        asked = name.lower().rpartition("/")[2]
        asked = self.aliases.get(asked, asked)
        found = [one for key, one in self.models.items() if key == asked or key.endswith(f"-{asked}")]
        if len(found) != 1:
            known = ", ".join(served.name for served in self.models.values())
            sample = self.elsewhere.get(asked)
            instead = f" The service {sample} serves {name} without a recipe." if sample else ""
            near = [] if found else get_close_matches(asked, self.models, 1)
            meant = f" Did you mean {self.models[near[0]].name}?" if near else ""
            raise RecipeRefused(f"There is no recipe for the model {name}: use one of {known}.{meant}{instead}")
        return found[0]

    def machine(self, name: str) -> Hardware:
        """Return hardware by the name of the GPU or the name of its AcceleratorClass. Raises RecipeRefused for an unknown
        name.
        """
        asked = name.lower()
        for key, one in self.hardware.items():
            if asked in (key, one.accelerator.name):
                return one
        known = ", ".join(sorted(self.hardware))
        raise RecipeRefused(f"The hardware {name} is unknown: use one of {known} (config/accelerators).")


def library(models: Iterable[tuple[Model, str]], classes: Iterable[AcceleratorClass], samples: Mapping[str, str]) -> Library:
    """Return the library of these models (each with the text of its file) and accelerator classes. Models and classes
    with an unknown size are left out.

    `samples` maps the name of a model object to the file of a service that serves the model.
    """
    data = _data("models.yaml")
    served, elsewhere, aliases = {}, {}, {}
    for model, text in models:
        repository = model.spec.storage.storage_uri.partition("://")[2].partition("@")[0]
        name = repository.rpartition("/")[2]
        if name in data and (one := _served(name, repository, model, text, data[name])):
            served[name.lower()] = one
            names = (alias.strip().lower().rpartition("/")[2] for alias in model.annotations.get(ALIASES, "").split(","))
            aliases.update({alias: name.lower() for alias in names if alias})
        known = served.get(name.lower())
        if (known is None or known.strategies) and (sample := samples.get(model.name)):
            elsewhere[name.lower()] = sample
    hardware = {one.name: one for one in map(_hardware, classes) if one is not None}
    ordered = dict(sorted(hardware.items(), key=lambda item: (item[1].vendor != "nvidia", item[0])))
    whole_first = dict(sorted(served.items(), key=lambda item: bool(item[1].strategies)))
    return Library(whole_first, ordered, elsewhere, {alias: key for alias, key in aliases.items() if alias not in served})


_OTHER_NAMES = {"trtllm": "tensorrt-llm", "trt-llm": "tensorrt-llm"}
"""Names of engines that are accepted in addition to their keys, also by `ome plan`."""


def engines() -> Mapping[str, tuple[str, ...]]:
    """Return the versions for which presets exist, by engine, the newest first."""
    return {name: tuple(one["versions"]) for name, one in _data("engines.yaml").items()}


@cache
def engine(name: str, version: str | None = None) -> Engine:
    """Return an engine for which presets exist. Without `version`, return its newest version. A version may begin with v,
    as the tags of images do. Raises RecipeRefused if there is no preset.
    """
    known, name = engines(), _OTHER_NAMES.get(name.lower(), name.lower())
    version = version.removeprefix("v") if version is not None else None
    if name not in known:
        raise RecipeRefused(f"There is no preset for the engine {name}: use one of {', '.join(known)}.")
    if version is not None and version not in known[name]:
        raise RecipeRefused(f"There is no preset for {name} {version}: use one of the versions {', '.join(known[name])}.")
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
        per_gpu=PodAmounts(whole["perGpu"]["cpu"], whole["perGpu"]["memoryGiB"]),
        wide=WideExpertParallelism(**whole["wide"]) if "wide" in whole else None,
    )


def source(name: str) -> str:
    """Return the text of a data file of this package."""
    return package_data.text("ome_operator.cookbook", name)


@cache
def _data(name: str) -> dict[str, Any]:
    found: dict[str, Any] = document(source(name))
    return found


def _served(name: str, repository: str, model: Model, text: str, data: Mapping[str, Any]) -> ServedModel | None:
    config = published_config(repository)
    sizes = weight_bytes(config) if config is not None else None
    if config is None or sizes is None:
        return None
    return ServedModel(
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
    """Return the memory in bytes of a GPU of this class; None if the class does not state it."""
    stated = accelerator.spec.capabilities.memory_gb
    if stated is None:
        return None
    # Vendors state memory in GB, but the driver reports it in MiB: 143771 MiB for an H200 ("141 GB").
    amount = quantity.parse(stated)
    return int(amount) if amount >= 10**6 else int(amount * 2**30)


def published_config(repository: str) -> Mapping[str, Any] | None:
    """Return the fields of config.json that state the sizes of a model in config/models; None if the model is unknown.
    `repository` is the model's repository; only the part after the last slash identifies the model.
    """
    name = repository.rpartition("/")[2]
    found: Mapping[str, Any] | None = (_data("models.yaml").get(name) or {}).get("config")
    return found or _data("shapes.yaml").get(name)


def published_names() -> list[str]:
    """Return the names of the models of which `published_config` knows the sizes."""
    return [*(name for name, said in _data("models.yaml").items() if said.get("config")), *_data("shapes.yaml")]
