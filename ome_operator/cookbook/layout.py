"""Convert a request to a proposal whose sizes fit the model and the hardware, or reject the request with a message."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ome_operator.api import propose_name
from ome_operator.capacity.memory import GIB
from ome_operator.cookbook import fit, roles
from ome_operator.cookbook.fit import RoleFit
from ome_operator.cookbook.library import Engine, Hardware, Library, ServedModel, engine
from ome_operator.cookbook.published import PublishedResult, published_results
from ome_operator.cookbook.request import PIPELINE, STRATEGIES, WIDE, RecipeRefused, RecipeRequest
from ome_operator.util.wording import count


@dataclass(frozen=True)
class PlanProposal:
    """A plan whose sizes fit the model and the hardware."""

    request: RecipeRequest
    served: ServedModel
    hardware: Hardware
    engine: Engine
    roles: tuple[RoleFit, ...]
    copies: int
    """Number of copies of the service, each with all groups of every role."""
    per_node: int
    """Number of copies of the service that share a node."""
    notes: tuple[str, ...]
    """Notes for the user, one sentence each."""

    @property
    def name(self) -> str:
        """The name of the service and of its namespace."""
        return self.request.name or self.served.model.name

    @property
    def runtime_name(self) -> str:
        """The name of the runtime, which contains the hardware, the strategy and the sizes."""
        size = "-".join(f"{f'{role.groups}x' if role.groups > 1 else ''}{role.nodes * role.gpus}" for role in self.roles)
        return f"{self.name}-{self.hardware.name}-{self.request.strategy.replace('+', '-')}{size}"

    @property
    def image(self) -> str:
        """The image of the engine for this hardware."""
        return self.engine.images[self.hardware.vendor]

    @property
    def nodes(self) -> int:
        """The number of nodes of the whole service."""
        return -(-self.copies // self.per_node) * sum(role.nodes * role.groups for role in self.roles)

    @property
    def published(self) -> tuple[PublishedResult, ...]:
        """The published measurements of a recipe with these sizes. The result is () if prefill caches prompts, or if the
        decode batch differs from the published recipe, because such configurations were not measured.
        """
        if self.request.prefix_cache or self.request.decode_batch not in (None, self.served.wide_batch):
            return ()
        names = {"model": self.served.name, "hardware": self.hardware.name, "engine": self.engine.name}
        asked = {**names, "strategy": self.request.strategy}
        return tuple(each for each in published_results() if each.matches_plan(asked, self.roles))

    @property
    def router(self) -> bool:
        """Whether the service has a router that chooses among the leaders of its engines."""
        return len(self.roles) > 1 or (self.copies > 1 and self.engine.router)


def plan(request: RecipeRequest, known: Library) -> PlanProposal:
    """Return the plan for a request. Raises RecipeRefused with the reason if the request cannot work."""
    served, hardware, chosen = (
        known.model(request.model),
        known.machine(request.hardware),
        engine(request.engine, request.version),
    )
    sample = known.elsewhere.get(served.name.lower(), "")
    _check_request(
        request, served, hardware, chosen, f" The service {sample} serves this model without a recipe." if sample else ""
    )
    if request.strategy == WIDE:
        return _disaggregated(request, served, hardware, chosen)
    return _together(request, served, hardware, chosen)


def _check_request(request: RecipeRequest, served: ServedModel, hardware: Hardware, chosen: Engine, sample: str) -> None:
    """Raise RecipeRefused if the request cannot work for a reason other than sizes. `sample` is a sentence that names an
    alternative, for the message.
    """
    if request.strategy not in STRATEGIES:
        raise RecipeRefused(f"There is no strategy {request.strategy}: use one of {', '.join(STRATEGIES)}.")
    if served.strategies and request.strategy not in served.strategies:
        known = ", ".join(f"--strategy {each}" for each in served.strategies)
        raise RecipeRefused(f"{served.name} has recipes only for {known}.{sample}")
    if request.strategy not in chosen.strategies:
        known = ", ".join(chosen.strategies)
        raise RecipeRefused(f"{chosen.name} {chosen.version} has no preset for {request.strategy}: use one of {known}.")
    if served.format != chosen.format:
        raise RecipeRefused(
            f"{chosen.name} reads {chosen.format} files, but the files of {served.name} are {served.format}."
        )
    stored = served.facts.quantization.name if served.facts.quantization else ""
    if chosen.quantizations and stored not in chosen.quantizations:
        raise RecipeRefused(f"{chosen.name} has no recipe for {stored} weights, the format of {served.name}.")
    if hardware.vendor not in chosen.images:
        raise RecipeRefused(f"There is no image of {chosen.name} {chosen.version} for {hardware.vendor} GPUs.")
    for asked, parser, what in (
        (request.tool_call_parser, served.tool_call_parser, "tool-call"),
        (request.reasoning_parser, served.reasoning_parser, "reasoning"),
    ):
        if asked and not parser and not (served.own and isinstance(asked, str)):
            raise RecipeRefused(f"{served.name} has no {what} parser: {served.why}.")
    longest = served.facts.context_length
    if request.context_length and longest and request.context_length > longest:
        raise RecipeRefused(
            f"--context-length {request.context_length} is more than the context length of {served.name}, which is "
            f"{longest} tokens: write a lower number."
        )
    if (request.kv_cache_dtype or "").startswith("fp8") and "fp8" not in (
        hardware.accelerator.spec.capabilities.features or ()
    ):
        raise RecipeRefused(f"--kv-cache-dtype {request.kv_cache_dtype}: {hardware.title} does not support FP8.")
    if request.model_type and not re.fullmatch(r"[A-Za-z0-9][\w.-]*", request.model_type):
        raise RecipeRefused(
            f"--model-type {request.model_type} is not a model type: write the model_type of a config.json, such as "
            "deepseek_v3."
        )
    if request.name and (proposed := propose_name(request.name)) != request.name:
        raise RecipeRefused(f"--name {request.name} cannot be the name of a service: write, for example, {proposed}.")


def _together(request: RecipeRequest, served: ServedModel, hardware: Hardware, chosen: Engine) -> PlanProposal:
    """Return the plan of a service in which one engine does both prefill and decode."""
    if given := [option for option, was in request.only_disaggregated.items() if was]:
        raise RecipeRefused(f"{given[0]} works only with --strategy pd: leave it out, or use --strategy pd.")
    size = roles.requested_gpus(request, chosen)
    role = _smallest(request, served, hardware, chosen) if size is None else roles.role(request, chosen, size)
    if why := fit.problem(served, hardware, role, request.kv_cache_dtype):
        raise RecipeRefused(f"{role.size} GPUs cannot work: {why}.{_instead(request, served, hardware, chosen)}")
    per_node = 1 if role.experts_on_cpus else request.gpus_per_node // role.gpus
    nodes = role.nodes if request.nodes is None else request.nodes
    if nodes < role.nodes:
        raise RecipeRefused(
            f"One copy of {served.name} needs {role.nodes} nodes of {request.gpus_per_node} {hardware.title}, but "
            f"--nodes is {nodes}: raise --nodes to a multiple of {role.nodes}."
        )
    copies = 1 if request.nodes is None else nodes // role.nodes * per_node
    left = nodes % role.nodes
    notes = [f"{left} of {nodes} nodes stay unused: a copy needs {role.nodes}."] if left else []
    notes += _hints(request, served, hardware, chosen, (role,))
    return PlanProposal(request, served, hardware, chosen, (role,), copies, per_node, tuple(notes))


def _smallest(request: RecipeRequest, served: ServedModel, hardware: Hardware, chosen: Engine) -> RoleFit:
    """Return the role with the fewest nodes on which the model fits. Raises RecipeRefused with the reason for each size
    if the model fits on none.
    """
    messages = []
    for role in roles.candidates(request, chosen):
        if not (why := fit.problem(served, hardware, role, request.kv_cache_dtype)):
            return role
        messages.append(f"on {count(role.nodes, 'node')} {why}")
    message = "; ".join(dict.fromkeys(messages))
    raise RecipeRefused(f"{served.name} does not fit {request.strategy} on {hardware.title}: {message}.")


def _instead(request: RecipeRequest, served: ServedModel, hardware: Hardware, chosen: Engine) -> str:
    """Return a sentence that names a size that works, for the end of a message; "" if no size works."""
    works = (
        role for role in roles.candidates(request, chosen) if not fit.problem(served, hardware, role, request.kv_cache_dtype)
    )
    found = next(works, None)
    if found is None or not request.tp:
        return ""
    more = f" For more GPUs, use --strategy {PIPELINE}." if request.tp > found.tp and PIPELINE in chosen.strategies else ""
    return f" --tp {found.tp} works.{more}"


def _disaggregated(request: RecipeRequest, served: ServedModel, hardware: Hardware, chosen: Engine) -> PlanProposal:
    """Return the plan of a service with prefill and decode on different GPUs. Each of the two roles spreads the experts
    over all its GPUs.
    """
    if why := fit.wide_problem(served, hardware, chosen):
        raise RecipeRefused(f"--strategy pd cannot work: {why}.")
    if (request.dp, request.ep, request.pp) != (None, None, None):
        raise RecipeRefused(
            "--strategy pd computes DP and EP from --prefill-nodes, --decode-nodes and --tp (the GPUs that share "
            "attention): leave out --dp, --ep and --pp."
        )
    found = roles.disaggregated_roles(request, chosen, served)
    for role in found:
        if why := fit.problem(served, hardware, role, request.kv_cache_dtype):
            raise RecipeRefused(f"{role.stage.capitalize()} on {count(role.nodes, 'node')} cannot work: {why}.")
    left = (request.nodes or 0) - sum(role.nodes * role.groups for role in found)
    notes = [f"{left} of {request.nodes} nodes stay unused."] if left > 0 else []
    notes += _hints(request, served, hardware, chosen, found)
    return PlanProposal(request, served, hardware, chosen, found, 1, 1, tuple(notes))


def _hints(
    request: RecipeRequest, served: ServedModel, hardware: Hardware, chosen: Engine, found: tuple[RoleFit, ...]
) -> Iterator[str]:
    yield from _memory_hints(request, served, hardware, chosen, found)
    if request.prefix_cache:
        yield (
            "The router sends prompts with the same prefix to the same prefill group. Within the group, a rank is chosen "
            "at random, and each rank has its own cache. A prefix that all requests share is therefore usually cached, "
            "but the history of a single conversation often is not."
        )
    if served.own:
        yield from _about_code(served)
    if request.model_type:
        yield (
            f"The engine loads {served.name} as {request.model_type}: use --model-type only if the engine does not "
            "support the model's own type."
        )
    if request.host_network:
        yield "Pods use the host network: the engine's ports must be free on the node, and no NetworkPolicy applies to them."
    yield from _parser_hints(request, served)


def _memory_hints(
    request: RecipeRequest, served: ServedModel, hardware: Hardware, chosen: Engine, found: tuple[RoleFit, ...]
) -> Iterator[str]:
    """Yield notes about the GPU memory of each role: what the weights take, and how many tokens fit into the rest."""
    wanted = request.context_length or served.facts.context_length or 0
    for role in found:
        left = fit.gpu_memory(served, hardware, role, request.kv_cache_dtype)
        if role.experts_on_cpus:
            yield (
                f"The experts of {served.name} are kept in the memory of the node, not of the GPU: each pod requests "
                f"{chosen.per_gpu.memory_gib} GiB."
            )
            continue
        where = f"{role.stage}: " if role.stage else ""
        about = f"about {size:.0f}" if (size := left.weights / GIB) >= 1 else "less than 1"
        weights = f"{where}{about} of {hardware.memory / GIB:.0f} GiB of each GPU are weights; "
        if not served.facts.kv_bytes_per_token:
            yield f"{weights}{left.cache / GIB:.0f} GiB are left for the cache, whose size per token is not known."
            continue
        yield (
            f"{weights}the cache{' of one rank' if role.attention_dp else ''} holds about "
            f"{left.tokens // 1000 * 1000:,} tokens."
        )
        if left.tokens < wanted:
            fp8 = "" if request.kv_cache_dtype else " --kv-cache-dtype fp8_e4m3 doubles the size of the cache."
            yield f"A request of {wanted:,} tokens does not fit: the engine rejects requests longer than the cache.{fp8}"


def _parser_hints(request: RecipeRequest, served: ServedModel) -> Iterator[str]:
    """Yield notes about parsers that differ from the parsers of the model, or that are missing."""
    for asked, own in (
        (request.reasoning_parser, served.reasoning_parser),
        (request.tool_call_parser, served.tool_call_parser),
    ):
        if own and isinstance(asked, str) and asked != own:
            yield f"{served.name} writes the output format of the parser {own}; the parser {asked} may fail to parse it."
    if served.reasoning_parser and not request.reasoning_parser:
        yield f"Without --reasoning-parser, the reasoning of {served.name} is part of its answers."
    if served.tool_call_parser and not request.tool_call_parser:
        yield "Without --tool-call-parser, tool calls are returned as text."


def _about_code(served: ServedModel) -> Iterator[str]:
    """Yield notes about Python code that is stored with the weights of a model from `--from`."""
    if served.remote_code:
        yield (
            f"The files of {served.name} name Python code that is stored with the weights (auto_map). The arguments contain "
            "--trust-remote-code, so that the engine runs this code: review the code first."
        )
    if served.remote_code is None:
        yield (
            f"It is not known whether {served.name} has Python code of its own, because its files were not read: if the "
            "engine exits with `contains custom code`, add --trust-remote-code."
        )
