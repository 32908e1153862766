"""Generates docs/catalog.md from the files of config."""

from ome_operator.api import Invalid
from ome_operator.core.catalog.status import runtime_status
from tests.support import parts
from tests.support.simulator import START

SAMPLES = parts.ROOT / "config/samples/isvc"
OWN = "kimi-k2-chosen.yaml"
"""A sample that names no runtime. It is not listed, because the runtime that is chosen for it is already in the list."""
HEAD = """# Catalog

Each row is a sample service that can be applied unchanged, together with the model and the runtime that it names. The tests
start every sample on simulated nodes. The columns *nodes* and *GPUs* count one group of each role. If prefill and decode
are separate, prefill comes first: `4 + 12` means 4 nodes for prefill and 12 for decode.

`pytest tests/golden --update-golden` generates this page from the files in `config`.

| model | sample | runtime | engine | nodes | GPUs | strategy |
|---|---|---|---|---|---|---|
"""


def samples() -> list[str]:
    """Return the samples of config/samples that name both a model and a runtime of the catalog."""
    found = sorted(path.relative_to(SAMPLES) for path in SAMPLES.rglob("*.yaml") if path.name != OWN)
    return [str(path) for path in found if path.parts[0] != "ome"]  # without the samples for machines without GPUs


def page() -> str:
    """Return the text of docs/catalog.md."""
    rows = sorted(_row(one) for one in samples())
    return HEAD + "".join(rows)


def _row(sample: str) -> str:
    service, deps = parts.shipped_service(sample)
    (model,), (runtime,) = deps.models.values(), deps.runtimes.values()
    assert not isinstance(model, Invalid) and not isinstance(runtime, Invalid)
    said = runtime_status(runtime, (), START)
    cells = [
        model.spec.display_name,
        f"[{service.name}](../config/samples/isvc/{sample})",
        runtime.name,
        said["engine"],
        said["nodes"].replace("+", " + "),
        said["gpus"],
        said.get("strategy", ""),
    ]
    return f"| {' | '.join(map(str, cells))} |\n"
