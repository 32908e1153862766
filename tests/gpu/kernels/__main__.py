"""Measure one group of kernels, and print a JSON line for each.

    python -m tests.gpu.kernels roofline
    python -m tests.gpu.kernels decode Kimi-K2
    python -m tests.gpu.kernels prefill Kimi-K2 --small --once     # on a CPU: tries the code with small sizes

A measurement that fails is a line with `why`, and the next one starts. With --once each kernel runs once and is not timed,
which compiles it.
"""

import argparse
import dataclasses
import gc
import json
import math
import traceback
from collections.abc import Callable, Iterable, Iterator

import torch

from tests.gpu.kernels import attention, layer, roofline
from tests.gpu.kernels.layer import Part
from tests.gpu.kernels.timing import ON_GPU, Timing, measure
from tests.gpu.models import FILE, Model, models, small

LARGEST_ERROR = 0.02
"""Largest relative error of a kernel against FP32 on the same quantized numbers. BF16 output alone causes 0.002."""
ON_CPU = 0.15
"""Largest relative error on a CPU, where Triton's interpreter truncates numbers that a GPU rounds."""


class Report:
    """Prints what is measured."""

    def __init__(self, once: bool, **labels: object) -> None:
        self.once, self.labels = once, labels

    def parts(self, make: Callable[[], Iterable[Part]], **labels: object) -> list[tuple[Part, Timing]]:
        """Measure the parts that a function makes, and return them with their times."""
        measured = []
        try:
            for part in make():
                timing = Timing(0.0, 0.0, 0.0, 0, False) if self.once else measure(part.calls)
                self.line(part, timing, **labels)
                measured.append((part, timing))
        except Exception as error:
            why = f"{type(error).__name__}: {error}"[:600]
            print(
                json.dumps({**self.labels, **labels, "ok": False, "why": why, "at": traceback.format_exc()[-600:]}),
                flush=True,
            )
        gc.collect()
        if ON_GPU:
            torch.cuda.empty_cache()
        return measured

    def line(self, part: Part, timing: Timing, **labels: object) -> None:
        """Print a measurement."""
        largest = LARGEST_ERROR if ON_GPU else ON_CPU
        ok = part.error is None or (math.isfinite(part.error) and part.error <= largest)
        facts = {"part": part.name, "kernel": part.kernel, **timing.facts(), "bytes": part.bytes, "flops": part.flops}
        print(
            json.dumps({**self.labels, **labels, **facts, "error": part.error, "ok": ok, "shapes": part.shapes}), flush=True
        )


def decode(model: Model, report: Report) -> None:
    """Measure the parts of a decode step, and all of them in one CUDA graph."""
    for batch in model.batches:
        fixed = report.parts(lambda batch=batch: _decode_parts(model, batch), tokens=batch)  # type: ignore[misc]
        if model.copies:
            report.parts(lambda batch=batch: [_without_copies(model, batch)], tokens=batch)  # type: ignore[misc]
        for context in model.contexts if model.latent else ():
            attended = report.parts(
                lambda batch=batch, context=context: attention.decode(model, batch, context),  # type: ignore[misc]
                tokens=batch,
                context=context,
            )
            if not report.once and fixed and attended:
                fastest = min(attended, key=lambda each: each[1].seconds)
                whole = [part for part, _ in (*fixed, fastest) if part.name not in ("head", "dense_gate_up", "dense_down")]
                report.parts(lambda whole=whole: [_together(whole)], tokens=batch, context=context)  # type: ignore[misc]


def _decode_parts(model: Model, batch: int) -> Iterator[Part]:
    yield layer.experts_masked(model, batch)
    yield from layer.projections(model, batch, decode=True)
    yield from layer.small_kernels(model, batch)
    yield layer.head(model, batch)
    yield from layer.dense_layer(model, batch)


def _without_copies(model: Model, batch: int) -> Part:
    """Return the experts of a rank as in `decode`, without redundant copies. The difference in time is the cost of reading
    the copies.
    """
    return dataclasses.replace(
        layer.experts_masked(dataclasses.replace(model, copies=0), batch), name="experts_without_copies"
    )


def _together(parts: list[Part]) -> Part:
    """Return a complete layer as one part. A call of it runs every given part once; successive calls use different copies
    of the weights.
    """

    def call(copy: int) -> None:
        for part in parts:
            part.calls[copy % len(part.calls)]()

    calls: list[layer.Call] = [lambda copy=copy: call(copy) for copy in range(4)]  # type: ignore[misc]
    kernels = "; ".join(sorted({part.kernel for part in parts}))
    return Part("layer", kernels, calls, sum(part.bytes for part in parts), sum(part.flops for part in parts))


def prefill(model: Model, report: Report) -> None:
    """Measure the parts of a prefill step."""
    report.parts(lambda: [layer.experts_contiguous(model, model.tokens)], tokens=model.tokens)
    for prompt in model.prompts if model.latent else ():
        report.parts(
            lambda prompt=prompt: attention.prefill(model, model.tokens, prompt),  # type: ignore[misc]
            tokens=model.tokens,
            context=prompt,
        )
    report.parts(lambda: layer.projections(model, model.tokens, decode=False), tokens=model.tokens)
    report.parts(lambda: layer.small_kernels(model, model.tokens), tokens=model.tokens)
    report.parts(lambda: layer.dense_layer(model, model.tokens), tokens=model.tokens)


def main() -> None:
    """Parse the arguments, and run the measurement that they name."""
    parser = argparse.ArgumentParser(description="Measure kernels of one GPU's share of a model.")
    parser.add_argument("step", choices=("roofline", "decode", "prefill"))
    parser.add_argument("model", nargs="?", default="")
    parser.add_argument("--small", action="store_true", help="small sizes, to try the code on a CPU")
    parser.add_argument("--once", action="store_true", help="run each kernel once, without timing")
    words = parser.parse_args()
    torch.manual_seed(0)
    report = Report(words.once, step=words.step, **({"model": words.model} if words.model else {}))
    with torch.inference_mode():
        if words.step == "roofline":
            report.parts(roofline.parts)
            return
        model = next(each for each in models(FILE.read_text()) if each.name == words.model)
        (decode if words.step == "decode" else prefill)(small(model) if words.small else model, report)


if __name__ == "__main__":
    main()
