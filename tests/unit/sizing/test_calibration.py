"""Tests of calibration files: what is accepted, and that every invalid file is rejected with a message instead of a
traceback.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ome_operator.capacity.memory import BOTH, DECODE, PREFILL
from ome_operator.sizing.calibration import COLUMNS, ENGINES, row, shipped, shipped_of
from ome_operator.sizing.constants import shipped_constants
from ome_operator.sizing.errors import PlanRefused
from ome_operator.sizing.learn import adapt_constants
from ome_operator.sizing.memory import compute_fit
from ome_operator.sizing.predict import predict
from ome_operator.sizing.queueing import NO_DRAFTS, expected_drafts
from ome_operator.sizing.report_text import report_data
from ome_operator.sizing.validate import validate
from ome_operator.sizing.workers import Worker, workers

GOOD = dict(
    zip(
        COLUMNS,
        ("x", "s", "DeepSeek-V3", "sglang", "0.5.8", "b200_sxm", "fp8", "8192", "1024", "", "1x(tp1 dp8 etp1 ep8) b1", "8",
         "1x(tp8 dp1 etp8 ep1) b4", "8", "4", "500", "10", "1", "46", "370", "tps derived by Little law, lengths x0.9", "",
         ""),
        strict=True,
    )
)  # fmt: skip


def file(*rows: dict[str, str]) -> str:
    lines = [",".join(COLUMNS), *(",".join(f'"{each.get(name, "")}"' for name in COLUMNS) for each in rows)]
    return "\n".join(lines) + "\n"


def test_all_shipped_calibration_rows_are_valid() -> None:
    assert len(shipped()) == 1308
    assert len({found.group for found in shipped() if not found.together}) == 75
    assert {found.place.engine for found in shipped()} == set(ENGINES)


def test_rows_of_an_engine_and_gpu_family_are_selected() -> None:
    kinds = {(found.place.engine, found.place.gpu.family) for found in shipped()}
    assert len(kinds) == 6
    for kind in kinds:
        assert shipped_of(*kind) == tuple(
            found for found in shipped() if (found.place.engine, found.place.gpu.family) == kind
        )
    assert shipped_of("sglang", "no such family") == ()


def test_calibration_row_is_parsed() -> None:
    found = row(GOOD)
    assert found.load.prompt == pytest.approx(0.9 * 8192) and found.ttft == 0.5
    assert found.prefill is not None and found.prefill.worker == Worker(1, 8, 8)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "DeepSeek-V9"}, "No data for the model DeepSeek-V9: the closest known name is DeepSeek-V3."),
        ({"gpu": "h101_sxm"}, "No data for the GPU h101_sxm: the closest known name is h100."),
        ({"precision": "fp7"}, "The precision fp7 is not supported: the closest known name is fp8."),
        ({"isl": "many"}, "isl is 'many', which is not a number: write a number."),
        ({"isl": "0"}, "isl is 0, and must be above 0 and below a billion."),
        ({"osl": "1e30"}, "osl is 1e30, and must be above 0 and below a billion."),
        ({"concurrency": "nan"}, "concurrency is nan, and must be above 0 and below a billion."),
        (
            {"concurrency": ""},
            "The row has no concurrency, from which the model computes a steady state: fill in the concurrency.",
        ),
        (
            {"decode": "all of them"},
            "The layout 'all of them' cannot be parsed: write it as 4x(tp8 dp1 etp1 ep8) b16 or 1xDEP32.",
        ),
        (
            {"decode": "1x(tp8 dp1 etp1 ep4)"},
            "The layout '1x(tp8 dp1 etp1 ep4)' distributes experts over 4 GPUs but attention over 8: use the same number "
            "for both.",
        ),
        ({"d_gpus": "9"}, "decode 1x(tp8 dp1 etp8 ep1) b4 has 8 GPUs, but d_gpus is 9: correct one of the two."),
        ({"prefill": "", "decode": ""}, "The row has no layout: fill in the layout of prefill or of decode."),
        ({"engine": ""}, "The row has no engine."),
        ({"engine": "slgang"}, "No data for the engine slgang: the closest known name is sglang."),
        ({"isl": ""}, "isl is empty."),
    ],
)
def test_invalid_row_is_refused_with_a_reason(change: dict[str, str], said: str) -> None:
    found = validate(file({**GOOD, **change}), "f.csv", shipped_constants())
    assert dict(found.refused) == {"x": said}


def test_rows_of_other_engines_and_gpus_are_evaluated() -> None:
    found = validate(
        file(
            {**GOOD, "engine": "vllm", "gpu": "b300"},
            {**GOOD, "id": "y", "gpu": "h200_sxm", "model": "gpt-oss-120b", "precision": "fp4", "mtp": "yes"},
        ),
        "f.csv",
        shipped_constants(),
    )
    assert not found.refused
    assert set(found.classes) == {"vllm b300 fp8 narrow", "sglang h200 mxfp4 narrow mtp"}


def test_file_without_the_columns_is_refused() -> None:
    with pytest.raises(PlanRefused, match="lacks the columns id, model"):
        validate("a,b\n1,2\n", "f.csv", shipped_constants())
    with pytest.raises(PlanRefused, match="lacks the columns id"):
        validate("", "f.csv", shipped_constants())


def test_refused_rows_with_the_same_name_are_all_reported() -> None:
    found = validate(file({**GOOD, "isl": "x"}, {**GOOD, "isl": "y"}), "f.csv", shipped_constants())
    assert len(found.refused) == 2


@given(st.dictionaries(st.sampled_from(COLUMNS), st.text(max_size=30)))
def test_no_cell_value_raises_an_exception(change: dict[str, str]) -> None:
    text = file({**GOOD, **{name: value.replace('"', "") for name, value in change.items()}})
    assert validate(text, "f.csv", shipped_constants()).rows >= 1


@given(st.text())
def test_no_file_content_raises_an_exception(text: str) -> None:
    try:
        validate(text, "f.csv", shipped_constants())
        validate(",".join(COLUMNS) + "\n" + text, "f.csv", shipped_constants())
    except PlanRefused:
        pass


@pytest.mark.parametrize("text", ["1xDEP32", "2x(tp1 dp32 etp32 ep1) b64"])
def test_spellings_of_wide_expert_parallelism_are_parsed(text: str) -> None:
    assert workers(text)[1] == Worker(1, 32, 32)


def test_attention_ranks_inside_tensor_parallelism_are_parsed() -> None:
    assert workers("2x(tp8 dp4 etp1 ep8) b4") == (2, Worker(2, 4, 8))


def test_every_measured_layout_is_accepted_by_the_memory_check() -> None:
    seen = {
        (found.place.shape.name, found.place.shape.precision, found.place.gpu.name, role, stage): found
        for found in shipped()
        for stage, role in ((PREFILL, found.prefill), (DECODE, found.decode))
        if role is not None
    }
    for (*_, role, stage), found in seen.items():
        part = BOTH if found.together else stage
        assert compute_fit(found.place.shape, found.place.gpu, role.worker, part, spare=0).missing <= 0, found.id


def test_amd_is_refused_without_rows_of_ones_own() -> None:
    found = validate(file({**GOOD, "gpu": "mi300x"}), "f.csv", shipped_constants())
    assert found.refused["x"].startswith(
        "Too few published runs on MI300X are known to predict its speed: pass --calibration"
    )
    own = row({**GOOD, "gpu": "mi300x"})
    assert predict(own, adapt_constants([own], shipped_constants())).tpot


def test_speculative_tokens_of_row_are_parsed() -> None:
    assert row({**GOOD, "mtp": "yes"}).drafts == expected_drafts(1)
    assert row({**GOOD, "mtp": "3"}).drafts.tokens == 3
    assert row({**GOOD, "mtp": "?"}).drafts == NO_DRAFTS


HOSTILE = {
    "digits": {"decode": "9" * 5_000 + "xTP8"},
    "digits in a layout": {"decode": f"1x(tp{'9' * 5_000} dp1 etp1 ep1)"},
    "tiny latencies": {"ttft_ms": "1e-300", "tpot_ms": "1e-320"},
    "a tiny load": {"concurrency": "1e-300"},
    "not a number": {"isl": "nan"},
    "infinite": {"hit": "1e400"},
    "a long model": {"model": "k" * 100_000},
    "a long GPU": {"gpu": "h" * 100_000},
    "a long engine": {"engine": "e" * 100_000},
    "many workers": {"decode": "10000x(tp1 dp10000 etp1 ep10000)", "d_gpus": "", "concurrency": "999999999"},
    "long requests": {"isl": "999999999", "osl": "999999999"},
    "a long id": {"id": "i" * 100_000, "isl": "0"},
}


@pytest.mark.parametrize("cells", HOSTILE.values(), ids=HOSTILE)
def test_any_calibration_file_gives_a_short_report(cells: dict[str, str]) -> None:
    found = validate(file({**GOOD, **cells}), "x.csv", shipped_constants())
    json.dumps(report_data(found), allow_nan=False)
    assert found.rows == 1 and all(len(text) < 1_000 for reason in found.refused.items() for text in reason)
