"""Tests of the step model: units, orders of magnitude, and the value of single terms."""

import math
from dataclasses import replace

import pytest

from ome_operator.sizing import steps
from ome_operator.sizing.constants import shipped_constants
from ome_operator.sizing.gpus import gpu, gpus
from ome_operator.sizing.shapes import shape
from ome_operator.sizing.steps import ServingStack
from ome_operator.sizing.workers import Worker

K2 = ServingStack(shape("Kimi-K2-Instruct"), gpu("h200"), "sglang")
KINDS = [Worker(8, 1, 1), Worker(8, 1, 8), Worker(1, 8, 1), Worker(1, 8, 8), Worker(1, 96, 96), Worker(1, 1, 1)]


def test_decode_step_takes_the_time_to_read_its_weights() -> None:
    """A decode step of a single request on 8 GPUs takes as long as reading 8 of 384 experts and all other weights at 4.8
    TB/s.
    """
    found = steps.decode_terms(K2, Worker(8, 1, 1), 1, 0)
    experts = 1014.7e9 * 8 / 384 / 8
    assert math.isclose(found["weights"], (experts + K2.shape.rest_bytes / 8) / 4.8e12, rel_tol=1e-3)


def test_prefill_needs_two_operations_per_active_parameter() -> None:
    work = (K2.shape.routed_flops + sum(K2.shape.rest_flops.values())) / 2
    assert math.isclose(work, K2.shape.facts.active_parameters or 0, rel_tol=1e-6)


@pytest.mark.parametrize("worker", KINDS, ids=str)
def test_fast_decoder_equals_the_sum_of_the_terms(worker: Worker) -> None:
    c = shipped_constants()
    step = steps.decoder(K2, worker, 3000, c)
    factors = steps.decode_factors(K2, worker, c)
    for batch in (0.5, 1, 7, 480, 46080):
        terms = steps.decode_terms(K2, worker, batch, 3000)
        assert math.isclose(step(batch), sum(factors[name] * time for name, time in terms.items()), rel_tol=1e-9)


@pytest.mark.parametrize("worker", KINDS, ids=str)
def test_doubled_rates_without_latency_halve_the_time(worker: Worker) -> None:
    """With twice the rates and no latency, a step takes half the time. All terms except fixed times are quotients: bytes
    divided by bytes per second, or operations divided by operations per second.
    """
    fast = replace(
        K2.gpu,
        bandwidth=K2.gpu.bandwidth * 2,
        link=K2.gpu.link * 2,
        network=K2.gpu.network * 2,
        flops={name: rate * 2 for name, rate in K2.gpu.flops.items()},
    )
    slow_terms = steps.decode_terms(K2, worker, 64, 3000)
    fast_terms = steps.decode_terms(replace(K2, gpu=fast), worker, 64, 3000)
    for name, time in slow_terms.items():
        if name in ("layer", "moe", "request") or name.startswith("hop"):
            assert fast_terms[name] == time
        elif name.startswith("wire"):
            assert fast_terms[name] <= time
        else:
            assert math.isclose(fast_terms[name], time / 2)


def test_number_of_experts_activated_by_a_batch_is_computed() -> None:
    assert steps.expected_expert_fraction(K2.shape, 0) == 0
    assert math.isclose(steps.expected_expert_fraction(K2.shape, 1), 8 / 384)
    assert steps.expected_expert_fraction(K2.shape, 10_000) > 0.999
    assert steps.expected_expert_fraction(shape("Qwen3-32B"), 10) == 0


def test_every_gpu_has_a_source_and_prices_have_a_date() -> None:
    for machine in gpus().values():
        assert machine.source and machine.memory > 0 and {"bf16", "fp8"} <= machine.flops.keys()
        if machine.price is not None:
            assert machine.price.usd > 0 and machine.price.source and machine.price.date[:2] == "20"


def test_known_gpus_equal_the_accelerator_classes() -> None:
    from ome_operator.cli.generate import bookshelf

    for name, hardware in bookshelf().hardware.items():
        machine = gpu(name)
        assert machine is gpu(hardware.accelerator.name)
        assert machine.memory == hardware.memory
        said = hardware.accelerator.spec.capabilities
        assert machine.bandwidth / 1e9 == float(said.memory_bandwidth_gbps or 0)
        assert math.isclose(
            machine.flops["bf16"] / 1e12, (said.performance and said.performance.fp16_tflops) or 0, rel_tol=0.01
        )


def test_over_the_network_a_gpu_sends_only_its_share_of_the_sums() -> None:
    """With TP 16 on two nodes, NVLink carries about as much data as with TP 8 on one node. Over the network, each of the
    eight adapters of a node carries only an eighth of the sums.
    """
    one, two, four = (steps.decode_terms(K2, Worker(gpus, 1, 1), 32, 3000) for gpus in (8, 16, 32))
    data = 2 * 61 * 32 * 7168 * 2
    assert "far.tp" not in one and math.isclose(two["far.tp"], data / 8 / K2.gpu.network)
    assert math.isclose(one["wire.tp"], data * 7 / 8 / K2.gpu.link)
    assert one["wire.tp"] < two["wire.tp"] < 1.08 * one["wire.tp"]
    assert math.isclose(four["far.tp"], 1.5 * two["far.tp"])
    assert math.isclose(four["hop.tp"], 2 * two["hop.tp"]), "a tree of four nodes has twice the depth"


def test_larger_link_domains_never_slow_an_all_reduce() -> None:
    worker, last = Worker(16, 1, 1), math.inf
    for domain in (4, 8, 16, 72):
        terms = steps.decode_terms(replace(K2, gpu=replace(K2.gpu, domain=domain)), worker, 64, 3000)
        now = sum(terms[name] for name in terms if name.startswith(("hop", "wire", "far")))
        assert now <= last
        last = now
