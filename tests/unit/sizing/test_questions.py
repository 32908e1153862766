"""Tests of the answers of `ome plan` in addition to the list of layouts: percentiles, the order of GPUs, and models from
files.
"""

import json
from pathlib import Path

import pytest

from ome_operator.cli.generate import bookshelf
from ome_operator.sizing.calibration import shipped
from ome_operator.sizing.comparison import why_slower
from ome_operator.sizing.error_bars import GPU, MODEL, bars, held_out_predictions, trust
from ome_operator.sizing.gpus import gpu
from ome_operator.sizing.queueing import Load, Role, poisson_percentile
from ome_operator.sizing.shapes import shape, spellings
from ome_operator.sizing.steps import ServingStack
from ome_operator.sizing.workers import Worker
from tests.support.parts import ROOT
from tests.unit.modelinfo import configs
from tests.unit.sizing.test_calibration import GOOD
from tests.unit.sizing.test_calibration import file as rows_file
from tests.unit.sizing.test_command import refused, run


def test_tpot_percentiles_follow_random_arrivals() -> None:
    asked = ("--model", "DeepSeek-R1", "--hardware", "gb200", "--workload", "8k/1k", "-o", "json")
    apart, together = ("--prefill", "1xDEP8", "--decode", "1xDEP8"), ("--decode", "1xDEP8")

    def found(*words: object) -> dict[str, float]:
        prediction = json.loads(run(*asked, *words).stdout)["layouts"][0]["prediction"]
        return {"mean": prediction["tpotMs"]} | (prediction["tpotPercentilesMs"] or {})

    said = found(*apart)
    assert said["p50"] == pytest.approx(said["mean"], rel=0.02)
    assert said["p50"] < said["p90"] < said["p99"] < 2 * said["p50"]
    assert set(found(*apart, "--concurrency", 64)) == {"mean"}, "in a closed loop the batch does not vary at random"
    assert set(found(*together)) == {"mean"}, "prefill interrupts decode"


@pytest.mark.parametrize(("mean", "percentiles"), [(0, [0, 0, 0]), (10, [10, 14, 18]), (400, [400, 425.6, 446.5])])
def test_poisson_percentiles_are_computed(mean: float, percentiles: list[float]) -> None:
    assert [poisson_percentile(mean, part) for part in (0.5, 0.9, 0.99)] == pytest.approx(percentiles, abs=0.1)


def test_several_gpus_are_ordered_by_price_or_by_a_figure() -> None:
    asked = ("--model", "DeepSeek-R1", "--hardware", "h200,b200,gb200", "--nodes", 4, "--workload", "8k/1k", "-o", "json")

    def found(*words: str) -> list[dict[str, float]]:
        return [each for each in json.loads(run(*asked, *words).stdout)["gpus"] if "reason" not in each]

    for words, name, falling in (
        ((), "usdPerMillionOutputAllIn", False),
        (("--by", "tpot"), "tpotMs", False),
        (("--by", "ttft"), "ttftSeconds", False),
        (("--by", "throughput"), "outputTokensPerSecondPerGpu", True),
    ):
        figures = [each[name] for each in found(*words)]
        assert len(figures) == 3 and figures == sorted(figures, reverse=falling)
    within = found("--by", "tpot", "--tpot", "25")
    assert within and all(each["tpotMs"] <= 25 for each in within)


def test_smaller_nodes_within_a_link_domain_divide_a_model_as_larger_ones() -> None:
    """A model is divided over 8 GPUs of GB200 as over 8 of B200, so GB200, which is better in every number, is not slower.
    Its nodes have only 4 GPUs, but its links join 72.
    """
    asked = ("--model", "DeepSeek-R1", "--hardware", "b200,gb200", "--gpus", 8, "--workload", "8k/1k", "--concurrency", 64)
    said = {each["gpu"]: each for each in json.loads(run(*asked, "-o", "json").stdout)["gpus"]}
    assert said["gb200"]["outputTokensPerSecondPerGpu"] >= said["b200"]["outputTokensPerSecondPerGpu"]
    assert said["gb200"]["decode"] == "2 nodes: 1x TP1 DP8 EP1"
    assert "slower per GPU" not in run(*asked).stdout


def test_slower_better_gpu_is_explained() -> None:
    b200, gb200, h200 = (gpu(name) for name in ("b200", "gb200", "h200"))
    better, worse = (
        {"gpu": name, "trust": {"rows": rows}} for name, rows in (("x", "0.5.9, published 2026-03-25"), ("y", ""))
    )
    said = why_slower((better, worse), gb200, b200)
    assert said == "its nodes have 4 GPUs instead of 8, and divide the model in another way"
    said = why_slower((better, worse), b200, h200)
    assert (
        said == "the published runs are slower (those of X have 0.5.9, published 2026-03-25 and those of Y have no version)"
    )


ONE, LONG = Worker(8, 1, 1), (8000, 1000)


@pytest.mark.parametrize(
    ("model", "machine", "worker", "load", "without"),
    [
        ("DeepSeek-R1", "b200", ONE, LONG, "deployment"),
        ("DeepSeek-R1", "gb200", ONE, LONG, "GPU"),
        ("Llama-3.1-8B", "b200", ONE, LONG, "model"),
        ("Llama-3.1-8B", "gb200", ONE, LONG, "GPU or of its model; the larger of the two errors is shown"),
        ("DeepSeek-R1", "b200", Worker(1, 8, 1), LONG, "GPU or of its model; the larger of the two errors is shown"),
        ("DeepSeek-R1", "b200", ONE, (100_000, 10), "GPU or of its model; the larger of the two errors is shown"),
    ],
)
def test_error_bars_come_from_fits_without_similar_rows(
    model: str, machine: str, worker: Worker, load: tuple[int, int], without: str
) -> None:
    found = trust(ServingStack(shape(model, "fp8"), gpu(machine), "sglang"), None, Role(1, worker), Load(*load))
    assert found.basis.endswith(f"without the rows of its {without}")
    assert bool(found.extrapolated) == (without != "deployment")
    if " or " in without:
        for name, bar in found.error_bars.items():
            assert bar.ninth >= max(left_out_here(kind, name) for kind in (GPU, MODEL))


def left_out_here(kind: str, figure: str) -> float:
    """Return the error that nine of ten rows of SGLang on Blackwell do not exceed, if their GPU or model is left out."""
    rows = {
        row.id for row in shipped() if row.together and row.place.engine == "sglang" and row.place.gpu.family == "blackwell"
    }
    return bars(each.ratios for each in held_out_predictions() if each.left_out == kind and each.id in rows)[figure].ninth


def test_calibration_row_may_name_its_model_by_a_config_file(tmp_path: Path) -> None:
    config = next(
        json.loads(line)["config"]
        for line in (ROOT / "tests/data/models/published.jsonl").read_text().splitlines()
        if "Qwen3.5-397B" in line
    )
    (tmp_path / "models").mkdir()
    (tmp_path / "models/config.json").write_text(json.dumps(config))
    rows = (
        GOOD | {"id": "file", "model": "models/config.json", "mtp": "2", "prefill": "", "p_gpus": ""},
        GOOD | {"id": "none", "model": "other.json"},
    )
    (tmp_path / "runs.csv").write_text(rows_file(*rows))
    said = json.loads(run("validate", tmp_path / "runs.csv", "-o", "json").stdout)
    assert [(each["id"], each["class"]) for each in said["predictions"]] == [("file", "sglang b200 fp8 together mtp")]
    assert "cannot be read: No such file or directory." in said["refused"]["none"]
    assert "nineOfTen" in said["classes"]["sglang b200 fp8 together mtp"]["tpot"]


def test_model_is_planned_in_the_precision_of_its_files(tmp_path: Path) -> None:
    """A model is planned in the precision that its files state. NVIDIA states the precision in a separate file. If it is
    stated in an unknown form, nothing is guessed.
    """
    config = next(
        json.loads(line)["config"]
        for line in (ROOT / "tests/data/models/published.jsonl").read_text().splitlines()
        if "NVIDIA-Nemotron-3-Nano" in line
    )
    file = tmp_path / "config.json"
    asked = ("--model", file, "--hardware", "b200", "--gpus", 4, "--workload", "1k/1k")
    file.write_text(json.dumps(config))
    assert "(bf16) on" in run(*asked).stdout
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "NVFP4", "group_size": 16}}))
    assert "(fp4) on" in run(*asked).stdout
    file.write_text(json.dumps(config | {"quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED"}}))
    assert "is not known: pass --precision, one of bf16, fp8, fp4, mxfp4, int4. Put the weight files" in refused(*asked)
    assert "(fp4) on" in run(*asked, "--precision", "fp4").stdout


def test_plan_accepts_the_model_and_precision_names_of_other_commands() -> None:
    """A model is planned under each name under which `ome generate` has a recipe, unless its weights are GGUF files. A
    precision may be written as in the names of models.
    """
    known = bookshelf()
    for name in (*known.models, *known.aliases):
        if known.model(name).format != "gguf":
            assert shape(name).layers == known.model(name).facts.layers
    for written, meant in (("FP8", "fp8"), ("NVFP4", "fp4"), ("nvfp4", "fp4")):
        assert shape("Kimi-K2-Instruct", written).precision == meant
        assert shape("Qwen3.5-27B", written).precision == meant


def test_model_may_be_named_by_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a directory next to the caller has the name of a known model, the name stands for the model."""
    place = tmp_path / "Kimi-K2-Instruct"
    place.mkdir()
    (place / "config.json").write_text(json.dumps({**configs.QWEN3_30B, "_name_or_path": "a\nb"}))
    assert "a␤b (bf16)" in run("--model", place, "--hardware", "h200", "--workload", "2000/200").stdout
    monkeypatch.chdir(tmp_path)
    for name, title in (("./Kimi-K2-Instruct", "a␤b (bf16)"), ("Kimi-K2-Instruct", "Kimi-K2-Instruct (fp8)")):
        assert title in run("--model", name, "--hardware", "h200", "--workload", "2000/200").stdout


PRECISIONS = {"fp8": "fp8", "nvfp4": "fp4", "mxfp4": "mxfp4", "bf16": "bf16"}
"""Ends of the names of published checkpoints, and the precision of their weights."""


def test_precision_suffix_of_a_model_name_is_used() -> None:
    """If the name of a model ends with a precision, its weights are planned in this precision. `ome plan --model
    Qwen3-32B-FP8` planned them in BF16 before.
    """
    known = spellings()
    for name in known:
        end = name.lower().rpartition("-")[2]
        if end in PRECISIONS:
            assert shape(name).precision == PRECISIONS[end], name
    assert sum(name.lower().endswith("-fp8") for name in known) >= 10


def test_model_weights_are_those_of_its_recipe() -> None:
    """`ome plan` plans a known model with the size of its published weights, as its recipe states it. Reported: `ome plan
    --model Kimi-K2-Thinking` planned FP8 weights, although the published weights are INT4.
    """
    for model in bookshelf().models.values():
        if model.format != "gguf":
            planned = shape(model.name).known.weights
            assert planned is not None and planned.total == pytest.approx(model.weights.total, rel=0.01), model.name
    for name in ("Kimi-K2.5", "Kimi-K2.6"):
        assert shape(name).precision == "int4"


UNEVEN = {
    ("Kimi-K2-Instruct", "1xTP24"): "64 attention heads cannot be divided by 24 GPUs",
    ("Kimi-K2-Instruct", "1x(tp3 dp8 etp1 ep24)"): "64 attention heads cannot be divided by 3 GPUs",
    ("Kimi-K2-Instruct", "1xTP32"): "2048 columns wide cannot be cut into 32 pieces",
    ("Qwen3-235B-A22B-FP8", "1xTP8"): "1536 columns wide cannot be cut into 8 pieces",
    ("Qwen3-32B", "2xTP3"): "64 attention heads cannot be divided by 3 GPUs",
    ("gpt-oss-120b", "1x(tp12 dp1 etp1 ep12)"): "64 attention heads cannot be divided by 12 GPUs",
}
"""A model and a layout, and why no engine can start with it."""


@pytest.mark.parametrize(("asked", "why"), UNEVEN.items(), ids=str)
@pytest.mark.parametrize("option", ["--decode", "--prefill"])
def test_given_layout_must_divide_the_model(asked: tuple[str, str], why: str, option: str) -> None:
    name, layout = asked
    others = ("--decode", "1xTP16") if option == "--prefill" else ()
    found = refused("--model", name, "--hardware", "h200", "--workload", "2000/200", option, layout, *others)
    assert why in found and found.startswith(option)


INSTEAD = {
    ("MiniMax-M2.5", "1xTP8"): "Write 1xTEP8, in which each of the 8 GPUs holds complete experts.",
    ("MiniMax-M2.5", "2xDTP8"): "Write 2xDEP8, in which each of the 8 GPUs holds complete experts.",
    ("Kimi-K2-Instruct", "1xTP32"): "Write 1xDEP32, in which each of the 32 GPUs holds complete experts.",
    ("Qwen3-32B", "2xTP3"): "Write 6xTP1.",
}
"""A model and a layout that cannot work, and the layout that the refusal names."""


@pytest.mark.parametrize(("asked", "instead"), INSTEAD.items(), ids=str)
def test_the_layout_that_a_refusal_names_works(asked: tuple[str, str], instead: str) -> None:
    common = ("--model", asked[0], "--hardware", "h200", "--workload", "2000/200", "--decode")
    assert refused(*common, asked[1]).endswith(instead)
    assert run(*common, instead.split()[1].rstrip(".,")).exit_code == 0


@pytest.mark.parametrize(
    "words", [("validate",), ("--model", "DeepSeek-R1", "--hardware", "h200", "--workload", "2000/100")]
)
def test_calibration_file_without_rows_is_refused(words: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "own.csv"
    file.write_text(rows_file())
    given = (*words, file) if words == ("validate",) else (*words, "--calibration", file)
    assert "contains no rows" in refused(*given)
