"""From a question to sizes: how many nodes, how the model is spread over them, and why not."""

from collections.abc import Iterator
from dataclasses import dataclass

from ome_operator import keys
from ome_operator.cookbook import fit
from ome_operator.cookbook.ask import STRATEGIES, Ask, RefusedError
from ome_operator.cookbook.fit import Role
from ome_operator.cookbook.library import Engine, Hardware, Library, Served, engine

MOST_NODES = 8
"""Of one copy, when the cookbook chooses."""
PREFILL, DECODE = "prefill", "decode"
WIDE_NODES = 16
"""Of the published recipe with prefill and decode apart; a quarter of them is for prefill."""
WIDE_SHARES = {PREFILL: 0.85, DECODE: 0.8}
"""Of a GPU's memory for weights and cache: all-to-all buffers and large batches need room beside them."""


@dataclass(frozen=True)
class Plan:
    """An answer that works, as far as sizes can tell."""

    ask: Ask
    served: Served
    hardware: Hardware
    engine: Engine
    roles: tuple[Role, ...]
    copies: int
    """Groups of each role."""
    notes: tuple[str, ...]
    """What people should know, one sentence each."""

    @property
    def name(self) -> str:
        """Of service and namespace."""
        return self.ask.name or self.served.model.name

    @property
    def runtime_name(self) -> str:
        """Says what the runtime is for."""
        size = "-".join(f"{role.nodes * role.gpus}" for role in self.roles)
        return f"{self.name}-{self.hardware.name}-{self.ask.strategy.replace('+', '-')}{size}"

    @property
    def image(self) -> str:
        """Of the engine on this hardware."""
        return self.engine.images[self.hardware.vendor]

    @property
    def router(self) -> bool:
        """Whether something has to choose among leaders."""
        return len(self.roles) > 1 or self.copies > 1


def plan(ask: Ask, known: Library) -> Plan:
    """Sizes for what was asked; RefusedError where it cannot work."""
    served, hardware, chosen = known.model(ask.model), known.machine(ask.hardware), engine(ask.engine, ask.version)
    _possible(ask, served, hardware, chosen)
    if ask.strategy == "pd":
        roles, copies, notes = _apart(ask, served, hardware, chosen)
    else:
        roles, copies, notes = _together(ask, served, hardware, chosen)
    return Plan(ask, served, hardware, chosen, roles, copies, (*notes, *_hints(ask, served, hardware, roles)))


def _possible(ask: Ask, served: Served, hardware: Hardware, chosen: Engine) -> None:
    """Everything but sizes."""
    if ask.strategy not in STRATEGIES:
        raise RefusedError(f"There is no strategy {ask.strategy}: there is {', '.join(STRATEGIES)}.")
    if ask.strategy not in chosen.strategies:
        known = ", ".join(chosen.strategies)
        raise RefusedError(f"{chosen.name} {chosen.version} has no preset for {ask.strategy}: it has one for {known}.")
    if hardware.vendor not in chosen.images:
        raise RefusedError(f"There is no image of {chosen.name} {chosen.version} for {hardware.vendor} GPUs.")
    for asked, parser, what in (
        (ask.tool_call_parser, served.tool_call_parser, "tool-call"),
        (ask.reasoning_parser, served.reasoning_parser, "reasoning"),
    ):
        if asked and not parser:
            raise RefusedError(f"{served.name} has no {what} parser: {served.why}.")
    longest = served.facts.context_length
    if ask.context_length and longest and ask.context_length > longest:
        raise RefusedError(
            f"--context-length {ask.context_length} is more than the {longest} tokens that {served.name} was made for."
        )
    if (ask.kv_cache_dtype or "").startswith("fp8") and "fp8" not in (hardware.accelerator.spec.capabilities.features or ()):
        raise RefusedError(f"--kv-cache-dtype {ask.kv_cache_dtype}: {hardware.title} does not compute in FP8.")
    if ask.gpus_per_node < 1:
        raise RefusedError("--gpus-per-node must be at least 1.")


def _together(ask: Ask, served: Served, hardware: Hardware, chosen: Engine) -> tuple[tuple[Role, ...], int, list[str]]:
    """One engine reads and answers."""
    if ask.prefill_nodes or ask.decode_nodes:
        raise RefusedError("--prefill-nodes and --decode-nodes belong to --strategy pd.")
    if ask.tp is None:
        role = _smallest(ask, served, hardware, chosen)
    else:
        role = _role(ask, chosen, ask.tp)
        if why := fit.problem(served, hardware, role, ask.kv_cache_dtype):
            raise RefusedError(f"--tp {ask.tp} cannot work: {why}.{_instead(ask, served, hardware, chosen)}")
    per_node = ask.gpus_per_node // role.gpus
    nodes = role.nodes if ask.nodes is None else ask.nodes
    if nodes < role.nodes:
        raise RefusedError(
            f"One copy of {served.name} needs {role.nodes} nodes of {ask.gpus_per_node} {hardware.title}, "
            f"and there are {nodes}."
        )
    copies = (nodes // role.nodes) * (per_node if ask.nodes is not None else 1)
    left = nodes % role.nodes
    notes = [f"{left} of {nodes} nodes stay empty: a copy takes {role.nodes}."] if left else []
    return (role,), copies, notes


def _role(ask: Ask, chosen: Engine, tp: int) -> Role:
    gpus = ask.gpus_per_node
    copies = 1 if ask.attention_dp else ask.dp or 1
    if tp * copies > gpus and copies > 1:
        raise RefusedError(
            f"--dp {copies} without DP attention is {copies} copies of {tp} GPUs in one node: {tp * copies} GPUs, "
            f"and a node has {gpus}. Take --strategy tp+dp for DP attention, or --nodes for copies on more nodes."
        )
    if tp > gpus and tp % gpus:
        raise RefusedError(f"--tp {tp} does not fill nodes of {gpus} GPUs: take a multiple of {gpus}.")
    if ask.ep is not None and not ask.experts_apart:
        raise RefusedError(f"--ep belongs to --strategy tp+ep and tp+dp+ep, and this is {ask.strategy}.")
    return Role(
        component=keys.ENGINE,
        stage="",
        nodes=max(1, tp // gpus),
        gpus=min(tp * copies, gpus),
        tp=tp,
        dp=(ask.dp if ask.dp is not None else max(1, tp // 2)) if ask.attention_dp else copies,
        attention_dp=ask.attention_dp,
        ep=(ask.ep if ask.ep is not None else max(1, tp // 2)) if ask.experts_apart else 1,
        share=chosen.share,
    )


def _candidates(ask: Ask, chosen: Engine) -> Iterator[Role]:
    """Whole nodes: 1, 2, 4, 8."""
    nodes = 1
    while nodes <= MOST_NODES:
        yield _role(ask, chosen, ask.gpus_per_node * nodes)
        nodes *= 2


def _smallest(ask: Ask, served: Served, hardware: Hardware, chosen: Engine) -> Role:
    said = []
    for role in _candidates(ask, chosen):
        if not (why := fit.problem(served, hardware, role, ask.kv_cache_dtype)):
            return role
        said.append(f"on {role.nodes} node{'s' if role.nodes > 1 else ''} {why}")
    raise RefusedError(f"{served.name} does not fit {ask.strategy} on {hardware.title}: {'; '.join(said)}.")


def _instead(ask: Ask, served: Served, hardware: Hardware, chosen: Engine) -> str:
    """What works, for the end of a refusal."""
    for role in _candidates(ask, chosen):
        if not fit.problem(served, hardware, role, ask.kv_cache_dtype):
            return f" --tp {role.tp} works."
    return ""


def _apart(ask: Ask, served: Served, hardware: Hardware, chosen: Engine) -> tuple[tuple[Role, ...], int, list[str]]:
    """Prefill and decode, experts over all GPUs of each."""
    if why := fit.wide_problem(served, hardware, chosen):
        raise RefusedError(f"--strategy pd cannot work: {why}.")
    if (ask.tp, ask.dp, ask.ep) != (None, None, None):
        raise RefusedError(
            "--strategy pd takes TP, DP and EP from --prefill-nodes and --decode-nodes: leave --tp, --dp, --ep out."
        )
    prefill, decode = _halves(ask)
    experts = served.facts.experts.routed if served.facts.experts else 0
    roles = (
        _wide(ask, keys.ENGINE, PREFILL, prefill, _redundant(experts, prefill * ask.gpus_per_node, spare=0)),
        _wide(ask, keys.DECODER, DECODE, decode, _redundant(experts, decode * ask.gpus_per_node, spare=1)),
    )
    for role in roles:
        if why := fit.problem(served, hardware, role, ask.kv_cache_dtype):
            raise RefusedError(f"{role.stage.capitalize()} on {role.nodes} nodes cannot work: {why}.")
    return roles, 1, []


def _halves(ask: Ask) -> tuple[int, int]:
    """Nodes for prefill and for decode."""
    prefill, decode = ask.prefill_nodes, ask.decode_nodes
    whole = ask.nodes or (None if prefill and decode else WIDE_NODES)
    if whole is not None:
        prefill = prefill or (whole - decode if decode else max(1, whole // 4))
        decode = decode or whole - prefill
        if prefill < 1 or decode < 1 or (ask.nodes and prefill + decode > ask.nodes):
            raise RefusedError(f"{whole} nodes are not enough for prefill and decode: prefill {prefill}, decode {decode}.")
    assert prefill and decode
    return prefill, decode


def _redundant(experts: int, gpus: int, spare: int) -> int:
    """Copies of experts, so that all GPUs hold equally many; `spare` more on each for those that are busy."""
    return -experts % gpus + (0 if experts % gpus else spare * gpus)


def _wide(ask: Ask, component: str, stage: str, nodes: int, redundant: int) -> Role:
    gpus = nodes * ask.gpus_per_node
    return Role(
        component, stage, nodes, ask.gpus_per_node, tp=gpus, dp=gpus, attention_dp=True, ep=gpus, redundant=redundant,
        share=WIDE_SHARES[stage],
    )  # fmt: skip


def _hints(ask: Ask, served: Served, hardware: Hardware, roles: tuple[Role, ...]) -> Iterator[str]:
    wanted = ask.context_length or served.facts.context_length or 0
    for role in roles:
        found = fit.room(served, hardware, role, ask.kv_cache_dtype)
        where = f"{role.stage}: " if role.stage else ""
        yield (
            f"{where}about {found.weights / fit.GIB:.0f} of {hardware.memory / fit.GIB:.0f} GiB of each GPU are weights; "
            f"the cache{' of one rank' if role.attention_dp else ''} holds about {found.tokens // 1000},000 tokens."
        )
        if found.tokens < wanted:
            fp8 = "" if ask.kv_cache_dtype else " --kv-cache-dtype fp8_e4m3 doubles it."
            yield f"A request of {wanted:,} tokens does not fit into it: longer ones than the cache are refused.{fp8}"
    if served.reasoning_parser and not ask.reasoning_parser:
        yield f"Without --reasoning-parser the thoughts of {served.name} stand in its answers."
    if served.tool_call_parser and not ask.tool_call_parser:
        yield "Without --tool-call-parser tool calls come back as text."
