"""From a question to an answer that works as far as sizes can tell, or to the sentence that refuses it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ome_operator.api import propose_name
from ome_operator.capacity.memory import GIB
from ome_operator.cookbook import fit, roles
from ome_operator.cookbook.fit import RoleFit
from ome_operator.cookbook.library import Engine, Hardware, Library, Served, engine
from ome_operator.cookbook.published import Published, published
from ome_operator.cookbook.request import PIPELINE, STRATEGIES, WIDE, RecipeRefused, RecipeRequest


@dataclass(frozen=True)
class Proposal:
    """An answer that works, as far as sizes can tell."""

    request: RecipeRequest
    served: Served
    hardware: Hardware
    engine: Engine
    roles: tuple[RoleFit, ...]
    copies: int
    """Groups of each role."""
    per_node: int
    """Copies that share a node."""
    notes: tuple[str, ...]
    """What people should know, one sentence each."""

    @property
    def name(self) -> str:
        """Of service and namespace."""
        return self.request.name or self.served.model.name

    @property
    def runtime_name(self) -> str:
        """Says what the runtime is for."""
        size = "-".join(f"{f'{role.groups}x' if role.groups > 1 else ''}{role.nodes * role.gpus}" for role in self.roles)
        return f"{self.name}-{self.hardware.name}-{self.request.strategy.replace('+', '-')}{size}"

    @property
    def image(self) -> str:
        """Of the engine on this hardware."""
        return self.engine.images[self.hardware.vendor]

    @property
    def nodes(self) -> int:
        """That the whole service takes."""
        return -(-self.copies // self.per_node) * sum(role.nodes * role.groups for role in self.roles)

    @property
    def published(self) -> tuple[Published, ...]:
        """What others have measured with these sizes; of prompts that are kept, and of other batches, they say nothing."""
        if self.request.prefix_cache or self.request.decode_batch not in (None, self.served.wide_batch):
            return ()
        names = {"model": self.served.name, "hardware": self.hardware.name, "engine": self.engine.name}
        asked = {**names, "strategy": self.request.strategy}
        return tuple(each for each in published() if each.suits(asked, self.roles))

    @property
    def router(self) -> bool:
        """Whether a router chooses among leaders."""
        return len(self.roles) > 1 or (self.copies > 1 and self.engine.router)


def plan(request: RecipeRequest, known: Library) -> Proposal:
    """Sizes for what was asked; RecipeRefused where it cannot work."""
    served, hardware, chosen = (
        known.model(request.model),
        known.machine(request.hardware),
        engine(request.engine, request.version),
    )
    sample = known.elsewhere.get(served.name.lower(), "")
    _possible(request, served, hardware, chosen, f" {sample} is a service of it that needs none." if sample else "")
    if request.strategy == WIDE:
        return _apart(request, served, hardware, chosen)
    return _together(request, served, hardware, chosen)


def _possible(request: RecipeRequest, served: Served, hardware: Hardware, chosen: Engine, sample: str) -> None:
    """Everything but sizes. `sample`: what there is besides, as a sentence."""
    if request.strategy not in STRATEGIES:
        raise RecipeRefused(f"There is no strategy {request.strategy}: there is {', '.join(STRATEGIES)}.")
    if served.strategies and request.strategy not in served.strategies:
        known = ", ".join(f"--strategy {each}" for each in served.strategies)
        raise RecipeRefused(f"Of {served.name} there is a recipe for {known} alone.{sample}")
    if request.strategy not in chosen.strategies:
        known = ", ".join(chosen.strategies)
        raise RecipeRefused(f"{chosen.name} {chosen.version} has no preset for {request.strategy}: it has one for {known}.")
    if served.format != chosen.format:
        raise RecipeRefused(f"{chosen.name} reads {chosen.format} files, and those of {served.name} are {served.format}.")
    stored = served.facts.quantization.name if served.facts.quantization else ""
    if chosen.quantizations and stored not in chosen.quantizations:
        raise RecipeRefused(f"No recipe of {chosen.name} for {stored} weights is known, and those of {served.name} are.")
    if hardware.vendor not in chosen.images:
        raise RecipeRefused(f"There is no image of {chosen.name} {chosen.version} for {hardware.vendor} GPUs.")
    for asked, parser, what in (
        (request.tool_call_parser, served.tool_call_parser, "tool-call"),
        (request.reasoning_parser, served.reasoning_parser, "reasoning"),
    ):
        if asked and not parser:
            raise RecipeRefused(f"{served.name} has no {what} parser: {served.why}.")
    longest = served.facts.context_length
    if request.context_length and longest and request.context_length > longest:
        raise RecipeRefused(
            f"--context-length {request.context_length} is more than the {longest} tokens that {served.name} was made for."
        )
    if (request.kv_cache_dtype or "").startswith("fp8") and "fp8" not in (
        hardware.accelerator.spec.capabilities.features or ()
    ):
        raise RecipeRefused(f"--kv-cache-dtype {request.kv_cache_dtype}: {hardware.title} does not compute in FP8.")
    if request.model_type and not re.fullmatch(r"[A-Za-z0-9][\w.-]*", request.model_type):
        raise RecipeRefused(
            f"--model-type {request.model_type} is no type of a model: "
            "write a name as config.json has it, such as deepseek_v3."
        )
    if request.name and (proposed := propose_name(request.name)) != request.name:
        raise RecipeRefused(f"--name {request.name} cannot be the name of a service: {proposed} could.")


def _together(request: RecipeRequest, served: Served, hardware: Hardware, chosen: Engine) -> Proposal:
    """One engine reads and answers."""
    if given := [option for option, was in request.only_apart.items() if was]:
        raise RecipeRefused(f"{given[0]} belongs to --strategy pd.")
    size = roles.asked(request, chosen)
    role = _smallest(request, served, hardware, chosen) if size is None else roles.role(request, chosen, size)
    if why := fit.problem(served, hardware, role, request.kv_cache_dtype):
        raise RecipeRefused(f"{role.size} GPUs cannot work: {why}.{_instead(request, served, hardware, chosen)}")
    per_node = 1 if role.experts_on_cpus else request.gpus_per_node // role.gpus
    nodes = role.nodes if request.nodes is None else request.nodes
    if nodes < role.nodes:
        raise RecipeRefused(
            f"One copy of {served.name} needs {role.nodes} nodes of {request.gpus_per_node} {hardware.title}, "
            f"and there are {nodes}."
        )
    copies = 1 if request.nodes is None else nodes // role.nodes * per_node
    left = nodes % role.nodes
    notes = [f"{left} of {nodes} nodes stay empty: a copy takes {role.nodes}."] if left else []
    notes += _hints(request, served, hardware, chosen, (role,))
    return Proposal(request, served, hardware, chosen, (role,), copies, per_node, tuple(notes))


def _smallest(request: RecipeRequest, served: Served, hardware: Hardware, chosen: Engine) -> RoleFit:
    """The fewest nodes that work."""
    said = []
    for role in roles.candidates(request, chosen):
        if not (why := fit.problem(served, hardware, role, request.kv_cache_dtype)):
            return role
        said.append(f"on {role.nodes} node{'s' if role.nodes > 1 else ''} {why}")
    told = "; ".join(dict.fromkeys(said))
    raise RecipeRefused(f"{served.name} does not fit {request.strategy} on {hardware.title}: {told}.")


def _instead(request: RecipeRequest, served: Served, hardware: Hardware, chosen: Engine) -> str:
    """What works, for the end of a refusal."""
    works = (
        role for role in roles.candidates(request, chosen) if not fit.problem(served, hardware, role, request.kv_cache_dtype)
    )
    found = next(works, None)
    if found is None or not request.tp:
        return ""
    more = f" For more GPUs take --strategy {PIPELINE}." if request.tp > found.tp and PIPELINE in chosen.strategies else ""
    return f" --tp {found.tp} works.{more}"


def _apart(request: RecipeRequest, served: Served, hardware: Hardware, chosen: Engine) -> Proposal:
    """Prefill and decode, experts over all GPUs of each."""
    if why := fit.wide_problem(served, hardware, chosen):
        raise RecipeRefused(f"--strategy pd cannot work: {why}.")
    if (request.dp, request.ep, request.pp) != (None, None, None):
        raise RecipeRefused(
            "--strategy pd takes DP and EP from --prefill-nodes, --decode-nodes and --tp (GPUs that share attention): "
            "leave --dp, --ep and --pp out."
        )
    found = roles.apart(request, chosen, served)
    for role in found:
        if why := fit.problem(served, hardware, role, request.kv_cache_dtype):
            raise RecipeRefused(f"{role.stage.capitalize()} on {role.nodes} nodes cannot work: {why}.")
    left = (request.nodes or 0) - sum(role.nodes * role.groups for role in found)
    notes = [f"{left} of {request.nodes} nodes stay empty."] if left > 0 else []
    notes += _hints(request, served, hardware, chosen, found)
    return Proposal(request, served, hardware, chosen, found, 1, 1, tuple(notes))


def _hints(
    request: RecipeRequest, served: Served, hardware: Hardware, chosen: Engine, found: tuple[RoleFit, ...]
) -> Iterator[str]:
    wanted = request.context_length or served.facts.context_length or 0
    for role in found:
        left = fit.gpu_memory(served, hardware, role, request.kv_cache_dtype)
        if role.experts_on_cpus:
            yield f"The experts of {served.name} lie in the node's memory: a pod asks for {chosen.per_gpu.memory_gib} GiB."
            continue
        where = f"{role.stage}: " if role.stage else ""
        yield (
            f"{where}about {left.weights / GIB:.0f} of {hardware.memory / GIB:.0f} GiB of each GPU are weights; "
            f"the cache{' of one rank' if role.attention_dp else ''} holds about {left.tokens // 1000 * 1000:,} tokens."
        )
        if left.tokens < wanted:
            fp8 = "" if request.kv_cache_dtype else " --kv-cache-dtype fp8_e4m3 doubles it."
            yield f"A request of {wanted:,} tokens does not fit into it: longer ones than the cache are refused.{fp8}"
    if request.prefix_cache:
        yield (
            "The router sends what begins alike to the same group of prefill; in a group each rank has a cache of its own, "
            "and chance chooses the rank: what all requests share is found, the turns of a conversation often are not."
        )
    if request.model_type:
        yield f"The engine takes {served.name} for {request.model_type}: only for engines that do not know its own type."
    if request.host_network:
        yield "Pods are in their node's network: the engine's ports have to be free there, and no NetworkPolicy holds."
    for asked, own in (
        (request.reasoning_parser, served.reasoning_parser),
        (request.tool_call_parser, served.tool_call_parser),
    ):
        if isinstance(asked, str) and asked != own:
            yield f"{served.name} writes what the parser {own} reads; {asked} may not understand it."
    if served.reasoning_parser and not request.reasoning_parser:
        yield f"Without --reasoning-parser the thoughts of {served.name} stand in its answers."
    if served.tool_call_parser and not request.tool_call_parser:
        yield "Without --tool-call-parser tool calls come back as text."
