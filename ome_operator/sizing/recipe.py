"""A layout as a question to the cookbook, and the answer: the manifests, or why there are none."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ome_operator.cookbook import layout as cookbook
from ome_operator.cookbook.library import Library, engine
from ome_operator.cookbook.request import WIDE, RecipeRefused, RecipeRequest
from ome_operator.sizing.layouts import Layout, Side
from ome_operator.sizing.refused import PlanRefused
from ome_operator.sizing.request import PlanRequest
from ome_operator.sizing.steps import ServingStack
from ome_operator.sizing.workers import Worker

_ENGINES = {"trtllm": "tensorrt-llm"}
_PRECISIONS = {"fp8": "fp8", "int4": "fp4", "": "bf16"}
"""How the cookbook calls what weights are quantized in -> how the plan does."""
_BATCH, _STEP = 480, 8
"""Requests of a rank of decode that are captured at most, as in the published recipe, and in steps of how many."""


@dataclass(frozen=True)
class Recipe:
    """A layout that the cookbook can write."""

    said: dict[str, Any]
    """Options of `ome generate`."""
    plan: cookbook.Proposal

    @property
    def command(self) -> str:
        """The call of `ome generate`."""
        words = [word for name, value in self.said.items() for word in _option(name, value)]
        return shlex.join(["ome", "generate", *words])


def _option(name: str, value: Any) -> Iterator[str]:
    yield f"--{name.replace('_', '-')}"
    if value is not True:
        yield str(value)


def recipe(request: PlanRequest, layout: Layout, shelf: Library) -> Recipe:
    """The cookbook's answer; its RecipeRefused says why there is none."""
    served = shelf.model(request.place.shape.name)
    stored = served.facts.quantization
    weights = _PRECISIONS.get(stored.name if stored else "", "others")
    if weights != request.place.shape.precision:
        raise RecipeRefused(f"The weights of {served.name} are {weights}, and this is for {request.place.shape.precision}.")
    shelf.machine(request.place.gpu.name)
    said = {**_place(request.place), **(_apart(request, layout) if layout.prefill else _together(request, layout.decode))}
    return Recipe(said, cookbook.plan(RecipeRequest(**said), shelf))


def chosen_recipe(request: PlanRequest, layouts: Sequence[Layout], number: int, shelf: Library) -> Recipe:
    """Return the recipe of the layout with this number, from 1 on.

    Raises PlanRefused if there is no such layout, or no recipe for it; the reason names the best layout that has a recipe.
    """
    if number > len(layouts):
        raise PlanRefused(f"--layout {number}: {len(layouts)} layouts work.")
    found = _recipe_or_reason(request, layouts[number - 1], shelf)
    if isinstance(found, Recipe):
        return found
    tried = ((at, _recipe_or_reason(request, layout, shelf)) for at, layout in enumerate(layouts, 1))
    other = next((at for at, each in tried if isinstance(each, Recipe)), None)
    instead = f"--layout {other} is the best that has a recipe." if other else "No other layout has a recipe."
    raise PlanRefused(f"Layout {number} cannot be written. {found} {instead}")


def _recipe_or_reason(request: PlanRequest, layout: Layout, shelf: Library) -> Recipe | str:
    """Return the recipe of a layout, or the sentence that says why there is none."""
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


def _apart(request: PlanRequest, layout: Layout) -> dict[str, Any]:
    """Prefill and decode."""
    chosen = engine(_ENGINES.get(request.place.engine, request.place.engine))
    if WIDE not in chosen.strategies:
        raise RecipeRefused(f"{chosen.name} {chosen.version} has no recipe with prefill and decode apart.")
    prefill, decode = layout.prefill, layout.decode
    assert prefill is not None
    for stage, side in (("prefill", prefill), ("decode", decode)):
        _check(request, stage, side)
    if prefill.role.worker.tp != decode.role.worker.tp:
        raise RecipeRefused("Recipes share attention among equally many GPUs in prefill and decode.")
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
    """Refuse what recipes with prefill and decode apart do not have."""
    worker = side.role.worker
    if worker.ep != worker.gpus or worker.gpus == 1:
        raise RecipeRefused(f"Recipes with prefill and decode apart spread whole experts, and {stage} cuts them ({worker}).")
    if worker.gpus % request.per_node:
        raise RecipeRefused(f"Recipes with prefill and decode apart take whole nodes, and {stage} takes parts ({worker}).")


def batch(request: PlanRequest, decode: Side) -> int:
    """Requests of these lengths that the cache of a rank holds, which is the batch that is captured."""
    weight = sum(load.share * load.answer for load in request.loads)
    tokens = sum(load.share * load.answer * (load.prompt + load.answer) for load in request.loads) / weight
    return max(_STEP, min(_BATCH, int(-(-decode.fit.tokens / tokens // _STEP) * _STEP)))


def _together(request: PlanRequest, both: Side) -> dict[str, Any]:
    """Engines that read and answer."""
    worker: Worker = both.role.worker
    sizes = {"tp": worker.gpus, "nodes": both.nodes}
    if worker.kind in ("tp", "alone"):
        return {"strategy": "tp+ep", **sizes, "ep": worker.ep} if worker.ep > 1 else {"strategy": "tp", **sizes}
    if worker.kind == "dtp":
        return {"strategy": "tp+dp", **sizes, "dp": worker.dp}
    return {"strategy": "tp+dp+ep", **sizes, "dp": worker.dp, "ep": worker.ep}
