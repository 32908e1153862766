"""Tests of the `ome plan` command: text for people, JSON documents, and messages for invalid input."""

import json
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from typer.testing import CliRunner, Result

from ome_operator.cli.app import app
from ome_operator.errors import UserError
from ome_operator.sizing.plot import pareto_frontier
from tests.support.parts import ROOT
from tests.unit.sizing.test_calibration import GOOD
from tests.unit.sizing.test_calibration import file as rows_file

PLANS = ROOT / "tests/data/plans"
K2 = ("--model", "Kimi-K2-Instruct", "--hardware", "h200")
H200 = ("--hardware", "h200", "--workload", "1k/1k")
GOLDEN = {
    "kimi-k2-h200-16": (*K2, "--nodes", "16", "--workload", "2000/100"),
    "kimi-k2-h200-agentic": (*K2, "--nodes", "16", "--workload", "30k/2k", "--prefix-hit", "0.9", "--tpot", "50"),
    "kimi-k2-h200-rate": (*K2, "--workload", "2000/500", "--requests-per-second", "40", "--tpot", "40", "--price", "2.30"),
    "deepseek-r1-gb200": (
        *("--model", "DeepSeek-R1", "--hardware", "gb200", "--precision", "fp4"),
        *("--nodes", "12", "--workload", "8k/1k"),
    ),
    "gpt-oss-b200-together": (
        *("--model", "gpt-oss-120b", "--hardware", "b200", "--gpus", "2", "--engine", "vllm"),
        *("--workload", "1k/1k", "--concurrency", "64"),
    ),
    "deepseek-r1-compared": (
        *("--model", "DeepSeek-R1", "--hardware", "h200,b200,gb200,mi300x"),
        *("--nodes", "4", "--workload", "8k/1k", "--tpot", "40"),
    ),
    "deepseek-r1-given": (
        *("--model", "DeepSeek-R1", "--hardware", "gb200", "--workload", "8k/1k"),
        *("--prefill", "2xDEP8", "--decode", "1xDEP32", "--mtp", "1", "--accepted", "0.85"),
    ),
    "explain": ("explain",),
}


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["plan", *map(str, words)])


@pytest.mark.parametrize("name", GOLDEN)
def test_plan_text_is_readable(name: str, update: bool) -> None:
    found = run(*GOLDEN[name])
    assert found.exit_code == 0
    file = PLANS / f"{name}.txt"
    if update:
        file.write_text(found.stdout)
    assert file.read_text() == found.stdout, "see `pytest tests/unit/sizing --update-golden`"


def test_sixteen_nodes_take_less_than_a_second() -> None:
    run(*GOLDEN["kimi-k2-h200-16"])
    began = time.process_time()
    run(*GOLDEN["kimi-k2-h200-16"])
    assert time.process_time() - began < 1


def test_plan_command_writes_json() -> None:
    said = json.loads(run(*K2, "--nodes", "16", "--workload", "2000/100", "-o", "json").stdout)
    first = said["layouts"][0]
    found, load = first["prediction"], said["asked"]["workload"][0]
    assert found["outputTokensPerSecond"]["deployment"] == pytest.approx(found["requestsPerSecond"] * load["out"], rel=1e-3)
    into = found["inputTokensPerSecond"]["node"] * first["prefill"]["nodes"]
    assert into == pytest.approx(found["requestsPerSecond"] * load["in"], rel=1e-3)
    assert first["price"]["date"] and first["price"]["source"]
    assert set(first["trust"]) == {"basis", "rows", "extrapolated"}, "too few rows of SGLang on Hopper"
    one = json.loads(
        run("--model", "DeepSeek-R1", "--hardware", "b200", "--nodes", "1", "--workload", "1k/1k", "-o", "json").stdout
    )
    assert set(one["layouts"][0]["trust"]) >= {"basis", "rows", "extrapolated", "throughput", "tpot", "ttft"}


def test_given_gpu_price_changes_the_plan() -> None:
    asked = (*K2, "--nodes", 4, "--workload", "2000/100", "-o", "json")
    prices = [json.loads(run(*asked, "--price", usd).stdout)["layouts"][0]["price"] for usd in (1, 2)]
    assert prices[0]["usdPerMillionOutput"] * 2 == pytest.approx(prices[1]["usdPerMillionOutput"], rel=1e-3)


def test_plan_command_reads_workload_file(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text("- {in: 500, out: 200, share: 0.8}\n- {in: 40k, out: 2k, share: 0.2, hit: 0.9}\n")
    said = json.loads(run(*K2, "--nodes", "8", "--workload", file, "-o", "json").stdout)
    assert [each["in"] for each in said["asked"]["workload"]] == [500, 40000]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- {in: 500, out: 200, share: 0.8}\n- {in: 40k, out: 2k, share: 0.3}\n", "add up to 1.1, and must add up to 1."),
        ("- {in: 500, out: 200, share: half}\n", "The share 'half' is not a number from 0 to 1."),
        ("- {in: 500, out: 200}\n- {in: 500, out: 200}\n", "has a workload without the field share."),
        (
            "- {in: 500, out: 200, size: 1}\n",
            "the unknown field size: the fields of a workload are in, out, share, hit.",
        ),
        ("- {in: 500}\n", "has a workload without the field out."),
        ("just words", "is not a list of workloads"),
        ("a: [", "is not valid YAML"),
        ("- {in: 500, out: 200}\n---\n- {in: 500, out: 200}\n", "is not valid YAML: it contains several documents"),
        ("- " * 150 + "a", "is not valid YAML: it has more than 100 levels of nested lists or maps"),
        ("- {in: !!timestamp 2001-01-01, out: 200}\n", "is not valid YAML: Kubernetes does not support !!timestamp"),
        ("", "is not a list of workloads"),
        ("- {in: [1], out: 200}\n", "is not a length in tokens"),
    ],
)
def test_invalid_workload_file_is_refused(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(text)
    assert said in refused(*K2, "--nodes", "8", "--workload", file)


def refused(*words: object) -> str:
    """Return the message of the UserError with which the command failed."""
    found = run(*words)
    assert isinstance(found.exception, UserError), found.output
    return str(found.exception)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--model", "Kimi-K9", *H200), "No data for the model Kimi-K9: the closest known name is Kimi-K3."),
        ((*K2[:2], "--hardware", "h300", *H200[2:]), "No data for the GPU h300: the closest known name is h200."),
        ((*K2, "--workload", "1x/1k"), "'1x' has the unknown unit x: the units are k, K, M."),
        ((*K2, "--workload", "1k/1k", "--ttft", "2h"), "'2h' has the unknown unit h: the units are s, ms, m, min."),
        ((*K2, "--workload", "0/10"), "A length of 0 tokens is out of range"),
        ((*K2, "--workload", "1000000000/10"), "A length of 1,000,000,000 tokens is out of range"),
        ((*K2, "--workload", "300k/10"), "300,010 tokens of prompt and answer together exceed the context length of"),
        ((*K2, "--workload", "1k"), "The workload '1k' is not IN/OUT"),
        ((*K2, "--workload", "1k/1k", "--nodes", 400), "400 nodes are more than the 384 experts of Kimi-K2-Instruct"),
        ((*K2[:3], "h100", *H200[2:], "--nodes", 1), "than is available. The smallest change that fits: --nodes 2."),
        ((*K2, "--workload", "1k/1k", "--nodes", 4, "--tpot", 1), "on 4 nodes of H200 meets these bounds"),
        ((*K2, "--workload", "1k/1k", "--nodes", 4, "--requests-per-second", 1e6), "nodes would be enough."),
        ((*K2, "--workload", "1k/1k", "--requests-per-second", -1), "--requests-per-second is -1: pass a number above 0"),
        ((*K2, "--workload", "1k/1k", "--nodes", 4, "--price", "nan"), "--price is nan: pass a number above 0"),
        ((*K2, "--workload", "1k/1k", "--requests-per-second", 1, "--concurrency", 1), "pass only one of them"),
        ((*K2, "--workload", "1k/1k", "--engine", "slgang"), "engine slgang: the closest known name is sglang."),
        ((*K2, "--workload", "1k/1k", "--mtp", 2, "--accepted", 3), "--accepted is 3: pass 0 to 2"),
        ((*K2, "--workload", "1k/1k", "--accepted", 1), "--accepted needs --mtp"),
        ((*K2, "--workload", "1k/1k", "--gpus", 3), "--gpus is 3: pass 1, 2 or 4 GPUs of a node, or a multiple of the 8"),
        ((*K2, "--workload", "1k/1k", "--gpus", 8, "--nodes", 1), "pass only one of them"),
        ((*K2, "--workload", "1k/1k", "--decode", "1xTP16", "--nodes", 1), "leave out --nodes and --gpus"),
        ((*K2, "--workload", "1k/1k", "--prefill", "1xTP16"), "--prefill needs --decode"),
        ((*K2, "--workload", "1k/1k", "--decode", "1xTP2"), "--decode 1xTP2 does not fit into 1 node of H200"),
        ((*K2, "--workload", "1k/1k", "--decode", "1xXP2"), "--decode: The layout '1xXP2' cannot be parsed"),
        ((*K2[:3], "h200,h200", *H200[2:]), "--hardware contains h200 twice: name each GPU once."),
        ((*K2[:3], "mi300x", *H200[2:]), "Too few published runs on MI300X are known"),
        ((*K2, "--workload", "1k/1k", "--precision", "fp5"), "The precision fp5 is not supported"),
        ((*K2, "--workload", "1k/1k", "--prefix-hit", "1"), "A hit rate must be below 1"),
        ((*K2, "--workload", "1k/1k", "--prefix-hit", "1.2"), "--prefix-hit 1.2 is not a number from 0 to 1."),
        ((*K2, "--workload", "1k/1k", "--tpot", 0), "--tpot is 0: write a number above 0."),
        ((*K2, "--workload", "1k/1k", "--ttft", "soon"), "'soon' is not a time for --ttft: write a number such as 2000."),
        ((*K2, "--workload", "1k/1k", "--nodes", 4, "--plot", "/nowhere/x.png"), "pass a name that ends in .svg."),
        ((*K2, "--workload", "1k/1k", "--by", "tpot"), "--by sorts several GPUs: pass several GPUs to --hardware, or leave"),
        (("validate", "/nowhere.csv"), "/nowhere.csv cannot be read: No such file or directory."),
        (("validate", ROOT / "README.md"), "lacks the columns"),
    ],
)  # fmt: skip
def test_plan_command_refuses_invalid_options(words: tuple[object, ...], said: str) -> None:
    assert said in refused(*words)


def test_plan_accepts_an_own_model(tmp_path: Path) -> None:
    from tests.unit.modelinfo.configs import QWEN3_30B

    file = tmp_path / "config.json"
    file.write_text(json.dumps(QWEN3_30B))
    assert run("--model", file, "--hardware", "h100", "--nodes", 2, "--workload", "1k/1k").exit_code == 0
    file.write_text("{}")
    assert "are unknown" in refused("--model", file, "--hardware", "h100", "--nodes", 2, "--workload", "1k/1k")
    for broken in ("{", "[" * 100_000):
        file.write_text(broken)
        assert "is not valid JSON" in refused("--model", file, "--hardware", "h100", "--nodes", 2, "--workload", "1k/1k")


UNKNOWN = {
    "model_type": "minimax_m9", "hidden_size": 4096, "num_attention_heads": 64, "num_key_value_heads": 8,
    "num_hidden_layers": 60, "num_local_experts": 128, "num_experts_per_tok": 8, "n_shared_experts": 0,
    "mlp_layer_types": ["sparse"] * 60, "moe_intermediate_size": 2048,
}  # fmt: skip


def test_a_model_of_an_unknown_family_gets_a_rough_speed(tmp_path: Path) -> None:
    """For a model of an unknown family, the plan states the memory, because the size of the model's files is known, and a
    rough speed instead of an estimate with an error.
    """
    file, index = tmp_path / "config.json", tmp_path / "model.safetensors.index.json"
    file.write_text(json.dumps(UNKNOWN))
    asked = ("--model", file, "--hardware", "b200", "--nodes", 1, "--workload", "1k/1k")
    assert "are not known. Put the weight files, or their model.safetensors.index.json, next to" in refused(*asked)
    index.write_text(json.dumps({"metadata": {"total_size": 420 * 10**9}, "weight_map": {}}))
    text = run(*asked).stdout
    assert "error: not known" in text and "so the figures are rough, at the rates of the data sheet" in text
    index.write_text(json.dumps({"metadata": {"total_size": 42 * 10**12}, "weight_map": {}}))
    assert "does not fit on 1 node" in refused(*asked)
    file.write_text(json.dumps({**UNKNOWN, "num_hidden_layers": 10**9}))
    assert "1,000,000,000 layers, but models of at most 1,000 layers are supported: check config.json." in refused(*asked)
    file.write_text(json.dumps({**UNKNOWN, "num_hidden_layers": 10**9, "model_type": "llama"}))
    assert "1,000,000,000 layers, but models of at most 1,000 layers are supported: check config.json." in refused(*asked)


@pytest.mark.parametrize("family", ["llama", "unknown"])
@pytest.mark.parametrize("field", ["hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"])
@pytest.mark.parametrize("stated", [0, -4, 1.5, True, "32", 10**30])
def test_invalid_size_in_the_config_is_named(tmp_path: Path, family: str, field: str, stated: object) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**UNKNOWN, "model_type": family, field: stated}))
    text = refused("--model", file, "--hardware", "b200", "--nodes", 1, "--workload", "1k/1k")
    assert f"states {field}: {json.dumps(stated)}, but a whole number above 0 is needed: check config.json." in text


GPU_FILE = {
    "name": "mine", "family": "blackwell", "memory": 180, "bandwidth": 7000, "tflops": {"bf16": 2000, "fp8": 4000},
    "link": 1800, "domain": 8, "network": 50, "node": 8,
}  # fmt: skip


def test_plan_accepts_an_own_gpu_file(tmp_path: Path) -> None:
    file = tmp_path / "gpu.yaml"
    file.write_text(json.dumps({**GPU_FILE, "price": 4.1}))
    said = run("--model", "DeepSeek-R1", "--hardware", f"b200,{file}", "--nodes", 1, "--workload", "1k/1k", "-o", "json")
    prices = {each["gpu"]: each["usdPerMillionOutputAllIn"] for each in json.loads(said.stdout)["gpus"]}
    assert set(prices) == {"b200", "mine"} and all(prices.values())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"memory": 0}, "memory is 0: write a number above 0 and below a billion."),
        ({"bandwidth": -1}, "bandwidth is -1: write a number above 0"),
        ({"tflops": {"bf16": "fast"}}, "tflops.bf16 is 'fast': write a number above 0"),
        ({"tflops": {"fp8": 1}}, "tflops is not a map of bf16"),
        ({"node": 7.5}, "node is 7.5: write a whole number above 0"),
        ({"link": None}, "link is None: write a number above 0"),
        ({"family": "volta"}, "the family 'volta' is unknown: the families are blackwell, "),
        ({"price": 0}, "price is 0: write a number above 0"),
        ({"price": float("inf")}, "Kubernetes does not support the number .inf"),
        ({"bandwith": 1}, "has the unknown field bandwith: the closest known name is bandwidth."),
    ],
)
def test_invalid_hardware_file_is_refused(change: dict[str, object], said: str, tmp_path: Path) -> None:
    file = tmp_path / "gpu.yaml"
    file.write_text(yaml.safe_dump({**GPU_FILE, **change}))
    assert said in refused("--model", "DeepSeek-R1", "--hardware", file, "--workload", "1k/1k")
    file.write_text(yaml.safe_dump({name: value for name, value in GPU_FILE.items() if name != "link"}))
    assert "lacks the field link" in refused("--model", "DeepSeek-R1", "--hardware", file, "--workload", "1k/1k")


def test_plan_command_writes_svg_plot(tmp_path: Path) -> None:
    file = tmp_path / "plan.svg"
    found = run(*K2, "--nodes", 4, "--workload", "2000/100", "--tpot", "40", "--plot", file)
    assert found.exit_code == 0
    tree = ElementTree.parse(file)
    circles = tree.findall(".//{http://www.w3.org/2000/svg}circle")
    layouts = json.loads(run(*K2, "--nodes", 4, "--workload", "2000/100", "--tpot", "40", "-o", "json").stdout)["layouts"]
    assert sum(circle.find("{http://www.w3.org/2000/svg}title") is not None for circle in circles) == len(layouts)
    assert pareto_frontier([(1, 1), (2, 3), (2, 2), (3, 2), (4, 5)]) == [(1, 1), (2, 3), (4, 5)]


@pytest.mark.parametrize("engine", ["sglang", "vllm", "trtllm"])
@pytest.mark.parametrize("hardware", ["h200", "b200"])
def test_layout_for_a_single_request_has_no_idle_ranks(engine: str, hardware: str) -> None:
    asked = ("--model", "Kimi-K2-Instruct", "--hardware", hardware, "--nodes", 1, "--workload", "2k/500", "--concurrency", 1)
    first = json.loads(run(*asked, "--engine", engine, "-o", "json").stdout)["layouts"][0]
    assert first["decode"]["dp"] == 1 and first["decode"]["workers"] == 1


def test_own_calibration_rows_change_the_plan(tmp_path: Path) -> None:
    """A user's own rows of measurements change the plan. The cluster's decode is half as fast as the shipped
    fit predicts.
    """
    from ome_operator.sizing.calibration import row
    from ome_operator.sizing.constants import shipped_constants
    from ome_operator.sizing.learn import adapt_constants
    from ome_operator.sizing.predict import predict
    from tests.unit.sizing.test_calibration import GOOD, file

    said = {**GOOD, "out_tps_per_decode_gpu": "", "in_tps_per_prefill_gpu": ""}
    rows = [{**said, "id": f"own_{at}", "concurrency": str(at), "tpot_ms": str(20 + at / 3)} for at in (8, 16, 32, 64)]
    own = tmp_path / "own.csv"
    own.write_text(file(*rows))
    place = ("--model", "DeepSeek-V3", "--hardware", "b200", "--nodes", 2, "--workload", "8k/1k")
    assert run(*place, "--calibration", own).stdout != run(*place).stdout
    c = adapt_constants([row(each) for each in rows], shipped_constants())
    for each in map(row, rows):
        before, after = predict(each, shipped_constants()).tpot, predict(each, c).tpot
        assert before and after and each.tpot
        assert abs(after / each.tpot - 1) < 0.5 * abs(before / each.tpot - 1)
    rows[0]["isl"] = "many"
    own.write_text(file(*rows))
    assert "own_8: isl is 'many', which is not a number: write a number." in refused(*place, "--calibration", own)


def test_validate_command_reports_calibration(tmp_path: Path) -> None:
    text = run("validate", ROOT / "ome_operator/sizing/data/calibration.csv").stdout
    assert "1308 rows: 1307 answered, 1 refused." in text and "so their errors say nothing about the accuracy" in text
    said = json.loads(run("validate", ROOT / "ome_operator/sizing/data/calibration.csv", "-o", "json").stdout)
    assert said["answered"] == 1307 == len(said["predictions"]) and len(said["beyondFactorTwo"]) < 40


def test_control_characters_in_cells_are_not_printed(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text(rows_file({**GOOD, "engine": "\x1b]0;x\x07", "model": "\x1b[2J"}, {**GOOD, "engine": "\x1b[31m"}))
    for words in ((), ("-o", "json"), ("-o", "yaml")):
        found = run("validate", file, *words)
        assert found.exit_code == 0 and found.stdout.replace("\n", "").isprintable()
