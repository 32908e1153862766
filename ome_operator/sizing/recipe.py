"""Convert a layout of `ome plan` to a request to the cookbook. The cookbook returns manifests, or the reason why it has
no recipe for the request.
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ome_operator.cookbook import layout as cookbook
from ome_operator.cookbook.library import Library, engine
from ome_operator.cookbook.request import WIDE, RecipeRefused, RecipeRequest
from ome_operator.sizing.errors import PlanRefused
from ome_operator.sizing.layouts import Layout, Side
from ome_operator.sizing.request import PlanRequest
from ome_operator.sizing.steps import ServingStack
from ome_operator.sizing.workers import Worker

_ENGINES = {"trtllm": "tensorrt-llm"}
_PRECISIONS = {"fp8": "fp8", "int4": "int4", "mxfp4": "mxfp4", "nvfp4": "fp4", "": "bf16"}
"""Maps the name of a model's quantization in the cookbook to the precision in `ome plan`."""
_BATCH, _STEP = 480, 8
"""Largest batch of a decode rank for which CUDA graphs are captured, as in the published recipe, and the number to a
multiple of which batches are rounded up."""


@dataclass(frozen=True)
class Recipe:
    """A layout for which the cookbook has manifests."""

    options: dict[str, Any]
    """Options of `ome generate`, by name."""
    plan: cookbook.PlanProposal

    @property
    def command(self) -> str:
        """The command line of `ome generate` that writes the same manifests."""
        words = [word for name, value in self.options.items() for word in _option(name, value)]
        return shlex.join(["ome", "generate", *words])


def _option(name: str, value: Any) -> Iterator[str]:
    yield f"--{name.replace('_', '-')}"
    if value is not True:
        yield str(value)


def recipe(request: PlanRequest, layout: Layout, shelf: Library) -> Recipe:
    """Return the cookbook's recipe for a layout. Raises RecipeRefused with the reason if the cookbook has no recipe for it.
    `shelf` contains the models and machines of the cookbook.
    """
    served = shelf.model(request.place.shape.name)
    stored = served.facts.quantization
    weights = _PRECISIONS.get(stored.name if stored else "", "others")
    if weights != request.place.shape.precision:
        raise RecipeRefused(
            f"The weights of {served.name} are {weights}, but the plan assumes {request.place.shape.precision}: pass the "
            "precision of the weights to --precision."
        )
    shelf.machine(request.place.gpu.name)
    options = {
        **_place(request.place),
        **(_disaggregated(request, layout) if layout.prefill else _together(request, layout.decode)),
    }
    return Recipe(options, cookbook.plan(RecipeRequest(**options), shelf))


def chosen_recipe(request: PlanRequest, layouts: Sequence[Layout], number: int, shelf: Library) -> Recipe:
    """Return the recipe of the layout with this number; the first layout has the number 1.

    Raises PlanRefused if there is no such layout or the cookbook has no recipe for it. In the second case, the message names
    the best layout that has a recipe.
    """
    if number > len(layouts):
        raise PlanRefused(f"There is no --layout {number}, because only {len(layouts)} layouts work: choose a lower number.")
    found = _recipe_or_reason(request, layouts[number - 1], shelf)
    if isinstance(found, Recipe):
        return found
    tried = ((at, _recipe_or_reason(request, layout, shelf)) for at, layout in enumerate(layouts, 1))
    other = next((at for at, each in tried if isinstance(each, Recipe)), None)
    instead = f"--layout {other} is the best layout for which a recipe exists." if other else "No other layout has a recipe."
    raise PlanRefused(f"Layout {number} cannot be written as manifests. {found} {instead}")


def _recipe_or_reason(request: PlanRequest, layout: Layout, shelf: Library) -> Recipe | str:
    """Return the recipe of a layout, or the sentence that states why there is none."""
    try:
        return recipe(request, layout, shelf)
    except RecipeRefused as error:
        return str(error)


def _place(place: ServingStack) -> dict[str, Any]:
    named = _ENGINES.get(place.engine, place.engine)
    return {
        "hardware": place.gpu.name,
        "model": place.shape.name,
        **({} if named == "sglang" else {"engine": named}),
        **({} if place.gpu.node == 8 else {"gpus_per_node": place.gpu.node}),
    }


def _disaggregated(request: PlanRequest, layout: Layout) -> dict[str, Any]:
    """Return the options of `ome generate` for a layout with disaggregation of prefill and decode. Raises RecipeRefused
    if no recipe matches the layout.
    """
    chosen = engine(_ENGINES.get(request.place.engine, request.place.engine))
    if WIDE not in chosen.strategies:
        raise RecipeRefused(f"{chosen.name} {chosen.version} has no recipe with prefill-decode disaggregation.")
    prefill, decode = layout.prefill, layout.decode
    assert prefill is not None
    for stage, side in (("prefill", prefill), ("decode", decode)):
        _check(request, stage, side)
    if prefill.role.worker.tp != decode.role.worker.tp:
        raise RecipeRefused("Recipes require the same TP size of attention in prefill and in decode.")
    shared, groups = decode.role.worker.tp, (prefill.role.copies, decode.role.copies)
    return {
        "strategy": WIDE,
        "prefill_nodes": prefill.role.gpus // request.per_node,
        "decode_nodes": decode.role.gpus // request.per_node,
        **({"prefill_groups": groups[0]} if groups[0] > 1 else {}),
        **({"decode_groups": groups[1]} if groups[1] > 1 else {}),
        **({"tp": shared} if shared > 1 else {}),
        "decode_batch": batch(request, decode),
        **({"prefix_cache": True} if any(load.hit for load in request.loads) else {}),
    }


def _check(request: PlanRequest, stage: str, side: Side) -> None:
    """Raise RecipeRefused if the workers of a side in a disaggregated layout do not have the form that recipes have."""
    worker = side.role.worker
    if worker.ep != worker.gpus or worker.gpus == 1:
        raise RecipeRefused(
            f"Disaggregated recipes use expert parallelism over all GPUs of a worker, but {stage} does not ({worker})."
        )
    if worker.gpus % request.per_node:
        raise RecipeRefused(f"Disaggregated recipes use complete nodes, but {stage} uses a part of a node ({worker}).")


def batch(request: PlanRequest, decode: Side) -> int:
    """Return the batch of a decode rank: the number of requests of the request's lengths for which the KV cache of the rank
    has space, rounded up to a multiple of 8, and at most 480.
    """
    weight = sum(load.share * load.answer for load in request.loads)
    tokens = sum(load.share * load.answer * (load.prompt + load.answer) for load in request.loads) / weight
    return max(_STEP, min(_BATCH, int(-(-decode.fit.tokens / tokens // _STEP) * _STEP)))


def _together(request: PlanRequest, both: Side) -> dict[str, Any]:
    """Return the options of `ome generate` for a layout whose engines do both prefill and decode. `both` is the only side of
    the layout.
    """
    worker: Worker = both.role.worker
    sizes = {"tp": worker.gpus, "nodes": both.nodes}
    if worker.kind in ("tp", "alone"):
        return {"strategy": "tp+ep", **sizes, "ep": worker.ep} if worker.ep > 1 else {"strategy": "tp", **sizes}
    if worker.kind == "dtp":
        return {"strategy": "tp+dp", **sizes, "dp": worker.dp}
    return {"strategy": "tp+dp+ep", **sizes, "dp": worker.dp, "ep": worker.ep}
