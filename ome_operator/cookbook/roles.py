"""Compute the sizes of each role from the request and the engine."""

from collections.abc import Iterator

from ome_operator import keys
from ome_operator.capacity.division import redundant_experts
from ome_operator.capacity.memory import DECODE, PREFILL
from ome_operator.cookbook.fit import RoleFit
from ome_operator.cookbook.library import Engine, ServedModel
from ome_operator.cookbook.request import PIPELINE, SPREAD, RecipeRefused, RecipeRequest
from ome_operator.util.wording import count

MOST_NODES = 8
"""Largest number of nodes in a copy of the model that the cookbook chooses itself."""


def requested_gpus(request: RecipeRequest, chosen: Engine) -> int | None:
    """Return the number of GPUs in a copy of the model if the request sets it, otherwise None. Raises RecipeRefused for
    an option that the strategy does not accept.
    """
    parts = request.strategy.split("+")
    for option, value in (("tp", request.tp), ("pp", request.pp), ("ep", request.ep), ("dp", request.dp)):
        whole_copies = option == "dp" and parts == ["tp"] and chosen.router
        if value is not None and option not in parts and not whole_copies:
            raise RecipeRefused(
                f"--{option} requires a strategy with {option.upper()}, but --strategy is {request.strategy}."
            )
    if request.strategy == PIPELINE:
        return _stage(request) * request.pp if request.pp else None
    return request.dp if request.strategy == SPREAD else request.tp


def _stage(request: RecipeRequest) -> int:
    """Return the number of GPUs in a pipeline stage."""
    return request.tp or request.gpus_per_node


def candidates(request: RecipeRequest, chosen: Engine) -> Iterator[RoleFit]:
    """Yield roles on 1, 2, 4 and 8 complete nodes; for a pipeline, roles with 2 to 8 stages."""
    if request.strategy == PIPELINE:
        sizes = (_stage(request) * stages for stages in range(2, MOST_NODES + 1))
        yield from (
            role(request, chosen, size)
            for size in sizes
            if size <= request.gpus_per_node or size % request.gpus_per_node == 0
        )
        return
    nodes = 1
    while nodes <= MOST_NODES:
        yield role(request, chosen, request.gpus_per_node * nodes)
        nodes *= 2


def role(request: RecipeRequest, chosen: Engine, size: int) -> RoleFit:
    """Return the role of a single engine on `size` GPUs. Raises RecipeRefused if these GPUs do not fill complete nodes."""
    gpus, share = request.gpus_per_node, _share(chosen, request.strategy)
    if request.strategy.startswith("cpu"):
        return RoleFit(keys.ENGINE, "", nodes=1, gpus=1, tp=1, experts_on_cpus=True, share=share)
    if size > gpus and size % gpus:
        raise RecipeRefused(f"{size} GPUs do not fill complete nodes of {gpus} GPUs: use a multiple of {gpus}.")
    nodes = max(1, size // gpus)
    if request.strategy == SPREAD:
        return RoleFit(keys.ENGINE, "", nodes, min(size, gpus), tp=size, dp=size, attention_dp=True, ep=size, share=share)
    if request.strategy == PIPELINE:
        stage = _stage(request)
        return RoleFit(keys.ENGINE, "", nodes, min(size, gpus), tp=stage, cut=stage, pp=size // stage, share=share)
    half = max(1, size // 2)
    copies = 1 if request.attention_dp else request.dp or 1
    if copies > 1 and size * copies > gpus:
        raise RecipeRefused(
            f"--dp {copies} without DP attention runs {copies} copies of {size} GPUs in one node, which needs "
            f"{size * copies} GPUs, but a node has {gpus}. Use --strategy tp+dp for DP attention, or --nodes for copies "
            "on more nodes."
        )
    return RoleFit(
        component=keys.ENGINE,
        stage="",
        nodes=nodes,
        gpus=min(size * copies, gpus),
        tp=size,
        cut=size,
        dp=(request.dp or (size if chosen.attention_on_all else half)) if request.attention_dp else copies,
        attention_dp=request.attention_dp,
        ep=(request.ep or half) if request.spreads_experts else 1,
        share=share,
    )


def disaggregated_roles(request: RecipeRequest, chosen: Engine, served: ServedModel) -> tuple[RoleFit, RoleFit]:
    """Return the roles of prefill and decode. The experts are spread over all GPUs of a group. An attention rank has one
    GPU, or the number of GPUs that the request sets.
    """
    prefill, decode = _halves(request, served.wide_nodes)
    experts = served.facts.experts.routed if served.facts.experts else 0
    return (
        _wide(request, chosen, keys.ENGINE, PREFILL, _group(PREFILL, prefill, request.prefill_groups), experts),
        _wide(request, chosen, keys.DECODER, DECODE, _group(DECODE, decode, request.decode_groups), experts),
    )


def _group(stage: str, nodes: int, groups: int) -> tuple[int, int]:
    """Return the number of nodes in a group, and the number of groups, for a role with `nodes` nodes."""
    if nodes % groups:
        raise RecipeRefused(
            f"{nodes} nodes of {stage} cannot be divided into {groups} groups: "
            f"--{stage}-groups must divide the number of nodes."
        )
    return nodes // groups, groups


def _halves(request: RecipeRequest, usual: int) -> tuple[int, int]:
    """Return the number of prefill nodes and the number of decode nodes. A number that the request does not set is chosen
    so that both together are `usual`.
    """
    prefill, decode = request.prefill_nodes, request.decode_nodes
    whole = request.nodes or (prefill + decode if prefill and decode else usual)
    prefill = prefill or (whole - decode if decode else max(1, whole // 4))
    decode = decode or whole - prefill
    if prefill < 1 or decode < 1 or prefill + decode > whole:
        raise RecipeRefused(
            f"{count(whole, 'node')} {'is' if whole == 1 else 'are'} not enough for prefill and decode (prefill {prefill}, "
            f"decode {decode}): each needs at least one node. Raise --nodes, or lower --prefill-nodes or --decode-nodes."
        )
    return prefill, decode


def _wide(
    request: RecipeRequest, chosen: Engine, component: str, stage: str, size: tuple[int, int], experts: int
) -> RoleFit:
    """Return the role of prefill or decode in disaggregation. `size` holds the number of nodes in a group, and the number
    of groups.
    """
    nodes, groups = size
    gpus, together = nodes * request.gpus_per_node, request.tp or 1
    if gpus % together:
        raise RecipeRefused(
            f"With --strategy pd, --tp is the number of GPUs that share attention, but {stage} has {gpus} GPUs, which "
            f"is not a multiple of {together}: set --tp to a divisor of {gpus}."
        )
    return RoleFit(
        component=component,
        stage=stage,
        nodes=nodes,
        gpus=request.gpus_per_node,
        tp=gpus,
        dp=gpus // together,
        attention_dp=True,
        ep=gpus,
        redundant=redundant_experts(experts, gpus, spare=1 if stage == DECODE else 0),
        share=_share(chosen, stage),
        groups=groups,
    )


def _share(chosen: Engine, name: str) -> float:
    """Return the fraction of a GPU's memory for weights and KV cache. `name` is a strategy or a stage."""
    return chosen.shares.get(name, chosen.shares["default"])
