"""docs/catalog.md, from the files of config."""

from typing import Any

from ome_operator import keys, quantity
from ome_operator.engines.servers import strategy
from ome_operator.facts import Observed
from ome_operator.sync import sync
from tests.support import parts
from tests.support.world import START

SAMPLES = parts.ROOT / "config/samples/isvc"
OWN = "kimi-k2-chosen.yaml"
"""It names no runtime: what is chosen for it is in the list already."""
HEAD = """# Catalog

Every row is a sample that applies as it is, with the model and the runtime that it names; in the tests all of them come up
on simulated nodes. GPUs are those of one group of each role.

Written from the files in `config` by `pytest tests/golden --update-golden`.

| model | sample | runtime | engine | nodes × GPUs | strategy |
|---|---|---|---|---|---|
"""


def samples() -> list[str]:
    """The samples that name a model and a runtime of the catalog."""
    found = sorted(path.relative_to(SAMPLES) for path in SAMPLES.rglob("*.yaml") if path.name != OWN)
    return [str(path) for path in found if path.parts[0] != "ome"]  # those are for machines without GPUs


def page() -> str:
    """The whole page."""
    rows = sorted(_row(one) for one in samples())
    return HEAD + "".join(rows)


def _row(sample: str) -> str:
    service, deps = parts.shipped(sample)
    (model,), (runtime,) = deps.models.values(), deps.runtimes.values()
    plan = sync(service, deps, Observed(), START)
    roles = {}
    for one in plan.apply:
        labels = one.manifest["metadata"]["labels"]
        if one.manifest["kind"] == "StatefulSet" and keys.GROUP_INDEX not in labels:
            roles[labels[keys.COMPONENT]] = one.manifest["spec"]["template"]["spec"]["containers"][0]
    nodes, ways = [], []
    for name in (keys.ENGINE, keys.DECODER):
        if name in roles:
            size = next(int(env["value"]) for env in roles[name]["env"] if env["name"] == "LWS_GROUP_SIZE")
            nodes.append(f"{size} × {quantity.gpus(roles[name])}")
            divided = [f"{kind} {number}".strip() for kind, number in strategy(roles[name]).items()]
            ways.append(", ".join(divided) or "CPU and GPU")
    image = roles[keys.ENGINE]["image"].rpartition("/")[2]
    way = ways[0] if len(ways) == 1 else f"prefill {ways[0]}; decode {ways[1]}"
    cells: list[Any] = [
        getattr(model.spec, "display_name", model.name),
        f"[{service.name}](../config/samples/isvc/{sample})",
        runtime.name,
        image if not image.startswith("release:") else f"tensorrt-llm {image.removeprefix('release:')}",
        " + ".join(nodes),
        way,
    ]
    return f"| {' | '.join(map(str, cells))} |\n"
