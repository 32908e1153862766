"""The factors of the planner's kernel terms that were measured on Hopper GPUs: `ome_operator/sizing/priors.py:MEASURED`."""

import statistics
from collections.abc import Mapping
from functools import cache

from tests.gpu import tables
from tests.gpu.models import FILE, models


@cache
def measured() -> Mapping[str, float]:
    """Return the factor of each term of kernels: measured time / time at the rates of the data sheet.

    A factor is the geometric mean over the GPUs, models and batches of tests/gpu/results. Attention is that of the longest
    prompts, because short ones take a constant time, which is part of the term `layer`.
    """
    ratios: dict[str, list[float]] = {}
    for run in tables.runs():
        for model in models(FILE.read_text()):
            for batch in model.batches:
                for term in tables.decode_terms(run, model, batch, max(model.contexts)):
                    ratios.setdefault(f"decode {term.name}", []).append(term.measured / term.peak)
            for term in tables.prefill_terms(run, model, max(model.prompts)):
                ratios.setdefault(f"prefill {term.name}", []).append(term.measured / term.peak)
    matrices = statistics.geometric_mean(ratios["decode experts"] + ratios["decode projections, head"])
    attention = statistics.geometric_mean(ratios["decode attention"])
    return {
        "decode.weights": matrices,
        "decode.matrices": matrices,
        "decode.attention": attention,
        "prefill.experts": statistics.geometric_mean(ratios["prefill experts"]),
        "prefill.matrices": statistics.geometric_mean(ratios["prefill projections"]),
        "prefill.attention": statistics.geometric_mean(ratios["prefill attention"]),
    }
