"""Tests of the choice of a runtime for a service that names none, and of the messages about all other candidates."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ome_operator.api import InferenceService, Model, Runtime
from ome_operator.api.well_known import load_packaged
from ome_operator.core.observed.objects import Deps, Ref
from ome_operator.core.resolve.identity import CHOSEN
from ome_operator.core.resolve.inputs import resolve
from ome_operator.core.selection.match import violations
from ome_operator.core.selection.model_profile import parameter_count, profile_of
from ome_operator.core.selection.runtime import Selection, select
from tests.support import parts
from tests.support.parts import ensure_valid

FORMAT: dict[str, Any] = {
    "modelFormat": {"name": "safetensors", "version": "1.0.0"},
    "modelFramework": {"name": "transformers"},
    "modelArchitecture": "DeepseekV3ForCausalLM",
    "quantization": "fp8",
    "autoSelect": True,
}
MODEL: dict[str, Any] = {
    "modelFormat": {"name": "safetensors", "version": "1.0.0"},
    "modelFramework": {"name": "transformers", "version": "4.48.3"},
    "modelArchitecture": "DeepseekV3ForCausalLM",
    "quantization": "fp8",
    "modelParameterSize": "1.03T",
}


def candidate(name: str, *, low: str = "", high: str = "", here: str = "", **edit: Any) -> Runtime:
    """Return a runtime that fits MODEL, with these changes of its format. The value None removes a field."""
    format_ = {key: value for key, value in (FORMAT | edit).items() if value is not None}
    spec: dict[str, Any] = {"supportedModelFormats": [format_], "engineConfig": {"runner": parts.container()}}
    if low or high:
        spec["modelSizeRange"] = {"min": low, "max": high}
    found = parts.runtime(name, **spec)
    return replace(found, kind="ServingRuntime", namespace=here) if here else found


def unnamed(**spec: Any) -> InferenceService:
    """Return a service that names no runtime."""
    return parts.service({"model": {"name": "tiny"}, "engine": {}, **spec})


def choice(*runtimes: Runtime, model: Model | None = None, **spec: Any) -> Selection:
    """Return the selection of a runtime for `model`, by default for MODEL."""
    return select(unnamed(**spec), profile_of(model or parts.model(**MODEL)), parts.deps(*runtimes))


def best(*runtimes: Runtime, **spec: Any) -> str:
    """Return the name of the chosen runtime."""
    found = choice(*runtimes, **spec).selected_runtime
    return found.name if found else ""


def why(runtime: Runtime, **more: Any) -> tuple[str, ...]:
    """Return the reasons why the runtime is excluded."""
    found = choice(runtime, **more)
    assert found.selected_runtime is None
    return found.excluded[0].violations


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        ({"modelArchitecture": "LlamaForCausalLM"},
         "it is for architecture LlamaForCausalLM, but the model has DeepseekV3ForCausalLM"),
        ({"modelArchitecture": None}, "it names no architecture, but the model has DeepseekV3ForCausalLM"),
        ({"quantization": "int4"}, "it is for quantization int4, but the model has fp8"),
        ({"quantization": None}, "it names no quantization, but the model has fp8"),
        ({"modelFormat": {"name": "gguf"}}, "it is for format gguf, but the model has safetensors"),
        ({"modelFormat": {"name": "safetensors", "version": "2"}},
         "it is for format safetensors 2, but the model has 1.0.0"),
        ({"modelFramework": {"name": "transformers", "version": "4.48.0", "operator": "GreaterThan"}},
         "it is for framework transformers older than 4.48.0, but the model has 4.48.3"),
        ({"modelFramework": {"name": "transformers", "version": "4.50", "operator": "GreaterThanOrEqual"}},
         "it is for framework transformers up to 4.50, but the model has 4.48.3, which cannot be compared with this "
         "version"),
        ({"diffusionPipeline": {"className": "FluxPipeline"}},
         "it is for diffusion pipeline FluxPipeline, but the diffusion pipeline of the model is not known"),
        ({"low": "1B", "high": "700B"}, "it is for sizes from 1B to 700B, but the model has 1,030.0B parameters"),
        ({"autoSelect": None}, "none of its supportedModelFormats has autoSelect: true"),
    ],
)  # fmt: skip
def test_every_excluding_rule_gives_its_reason(edit: dict[str, Any], sentence: str) -> None:
    assert why(candidate("one", **edit)) == (sentence,)


@pytest.mark.parametrize(
    ("operator", "version", "fits"),
    [
        ("Equal", "4.48.3", True), ("Equal", "4.48", False), (None, "4.48.3", True), ("Nonsense", "4.48.3", True),
        ("GreaterThanOrEqual", "4.48.3", True), ("GreaterThanOrEqual", "4.57.1", True),
        ("GreaterThanOrEqual", "4.9.0", False), ("GreaterThan", "4.48.3", False), ("GreaterThan", "4.48.4", True),
        ("GreaterThan", "4.48.2", False),
    ],
)  # fmt: skip
def test_runtime_version_must_be_the_greater_one(operator: str | None, version: str, fits: bool) -> None:
    framework = {"name": "transformers", "version": version} | ({"operator": operator} if operator else {})
    assert bool(best(candidate("one", modelFramework=framework))) == fits


@pytest.mark.parametrize(
    ("learned", "said"), [(False, "the model states none and therefore counts as unquantized"), (True, "the model has none")]
)
def test_model_without_quantization_is_described_like_in_explain(learned: bool, said: str) -> None:
    profile = profile_of(parts.model(**MODEL | {"quantization": None}))._replace(learned=learned)
    (found,) = violations(candidate("one"), profile, chosen=True)
    assert (found.sentence, found.sure) == (f"it is for quantization fp8, but {said}", False)


def test_runtime_without_a_requested_component_is_excluded() -> None:
    assert why(candidate("one"), decoder={}, router={}) == ("it has no decoderConfig", "it has no routerConfig")
    assert best(candidate("one"), router={"runner": parts.container("router")}) == "one"


def test_disaggregated_runtime_is_excluded_for_an_engine_without_decoder() -> None:
    one = parts.runtime("pd", supportedModelFormats=[FORMAT], engineConfig={"runner": parts.container()}, decoderConfig={})
    assert why(one) == ("it separates prefill and decode, but the service has no decoder",)


def test_disabled_and_foreign_runtimes_are_excluded() -> None:
    off = parts.runtime("off", supportedModelFormats=[FORMAT], engineConfig={"runner": parts.container()}, disabled=True)
    assert why(off) == ("it is disabled",)
    assert choice(candidate("one", here="elsewhere")) == Selection((), ())


def test_candidates_are_ordered_by_score_namespace_size_range_and_name() -> None:
    plain = candidate("b")
    assert best(plain, candidate("a", priority=2)) == "a"
    assert best(plain, candidate("c", modelFormat={"name": "safetensors", "weight": 3})) == "c"
    assert best(plain, candidate("z", here="team")) == "z"
    assert best(plain, candidate("c", low="1T", high="2T"), candidate("d", low="1B", high="2T")) == "c"
    assert best(plain, candidate("a")) == "a"


def test_engine_annotation_excludes_other_engines() -> None:
    found = choice(candidate("one"), annotations={"ome.io/engine": "sglang"})
    assert found.excluded[0].violations == ("its engine is not sglang",)


def test_runtimes_with_nonexistent_accelerators_are_excluded() -> None:
    runtime = parts.runtime(
        "one", supportedModelFormats=[FORMAT], engineConfig={"runner": parts.container()},
        acceleratorRequirements={"acceleratorClasses": ["h200"]},
    )  # fmt: skip
    assert why(runtime) == ("it needs an accelerator h200, but no AcceleratorClass fits",)
    named = {"acceleratorSelector": {"acceleratorClass": "b200"}}
    assert why(runtime, **named) == ("it is for accelerators h200, but the service names b200",)
    fits = select(unnamed(), profile_of(parts.model(**MODEL)), parts.deps(runtime, parts.accelerator("h200")))
    assert fits.selected_runtime is not None


def test_facts_from_model_files_are_used_where_the_spec_is_silent() -> None:
    bare = parts.model()
    facts = {"architecture": "DeepseekV3ForCausalLM", "quantization": {"name": "fp8"}, "framework": {"name": "transformers"}}
    assert not choice(candidate("one"), model=bare).selected_runtime
    assert choice(candidate("one"), model=replace(bare, status={"facts": facts})).selected_runtime


def test_profile_of_a_well_known_model_is_filled_from_the_catalog() -> None:
    bare, facts = parts.model("hf://kimi-ai/Kimi-K2-Chat"), {"architecture": "Other", "framework": {"name": "transformers"}}
    seen = profile_of(bare, True, load_packaged())
    kind = (seen.architecture, seen.quantization, seen.parameters)
    assert kind == ("DeepseekV3ForCausalLM", "fp8", pytest.approx(1.03e12))
    assert (seen.well_known, seen.learned) == ("moonshotai/Kimi-K2-Instruct", False)
    assert profile_of(bare, False, load_packaged()).architecture == "", "a stored choice is based on the user's fields"
    read = profile_of(replace(bare, status={"facts": facts}), True, load_packaged())
    assert (read.architecture, read.quantization, read.well_known) == ("Other", "", ""), "the files take precedence"
    wrote = profile_of(parts.model("hf://kimi-ai/Kimi-K2-Chat", quantization="int4"), True, load_packaged())
    assert (wrote.quantization, wrote.architecture) == ("int4", "DeepseekV3ForCausalLM")
    written = parts.model("hf://kimi-ai/Kimi-K2-Chat", modelArchitecture="DeepseekV3ForCausalLM")
    plain = profile_of(written, True, load_packaged())
    assert (plain.quantization, plain.well_known) == ("", ""), "the user states that the weights are not quantized"


def test_runtime_of_a_well_known_model_is_kept_when_its_files_are_read() -> None:
    bare = parts.model("hf://moonshotai/Kimi-K2-Instruct")
    deps = replace(parts.deps(bare, candidate("one")), well_known=load_packaged())
    before = chosen(deps)
    assert before[CHOSEN]["name"] == "one"
    learned = replace(bare, status={"facts": {"architecture": "Other"}})
    assert (
        chosen(replace(parts.deps(learned, candidate("one"), candidate("two", modelArchitecture="Other"))), before) == before
    )


def test_no_fitting_runtime_message_is_bounded_and_starts_with_the_closest() -> None:
    runtimes = [candidate(f"r{number:02}", quantization="int4", modelArchitecture="Other") for number in range(20)]
    found = resolve(unnamed(), parts.deps(parts.model(**MODEL), *runtimes, candidate("close", quantization="int4")))
    problem = next(one for one in found.problems if one.reason == "NoRuntimeFits")
    assert problem.message.startswith("no runtime fits model tiny: ClusterServingRuntime close: it is for quantization int4")
    assert "more (ome explain runtime)" in problem.message
    assert len(problem.message) < 1024


def chosen(deps: Deps, stored: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return the inputs of the revision of a service that names no runtime."""
    found = resolve(unnamed(**spec), deps, stored and {"r1": stored})
    assert found.inputs is not None, found.problems
    return found.inputs


def test_chosen_runtime_is_kept_when_a_better_candidate_appears() -> None:
    model = parts.model(**MODEL)
    before = chosen(parts.deps(model, candidate("one")))
    assert before[CHOSEN] == {"kind": "ClusterServingRuntime", "namespace": "", "name": "one"}
    assert chosen(parts.deps(model, candidate("one"), candidate("two", priority=9)), before) == before


def test_runtime_is_chosen_again_when_the_chosen_one_no_longer_fits() -> None:
    model, other = parts.model(**MODEL), candidate("two")
    before = chosen(parts.deps(model, candidate("one")))
    edited = parts.deps(model, candidate("one", quantization="int4"), other)
    assert chosen(edited, before)[CHOSEN]["name"] == "two"


def test_runtime_is_chosen_again_for_another_model() -> None:
    before = chosen(parts.deps(parts.model(**MODEL), candidate("one")))
    moved = before | {"model": before["model"] | {"name": "before"}}
    assert chosen(parts.deps(parts.model(**MODEL), candidate("one"), candidate("a")), moved)[CHOSEN]["name"] == "a"


def test_later_facts_do_not_change_the_chosen_runtime() -> None:
    bare = parts.model(**{name: value for name, value in MODEL.items() if name != "modelParameterSize"})
    one = candidate("one", low="1T", high="2T")
    before = chosen(parts.deps(bare, one))
    small = replace(bare, status={"facts": {"parameters": 7_000_000_000}})
    assert chosen(parts.deps(small, one, candidate("two")), before) == before


def test_deleted_chosen_runtime_is_reported_as_a_problem() -> None:
    model = parts.model(**MODEL)
    before = chosen(parts.deps(model, candidate("one")))
    found = resolve(unnamed(), parts.deps(model, candidate("two")), {"r1": before})
    assert [(one.reason, one.message) for one in found.problems] == [
        (
            "RuntimeNotFound",
            "ClusterServingRuntime one, which was selected for this service, does not exist: apply it, or name another in "
            "spec.runtime.name",
        )
    ]
    assert found.inputs is None


def test_naming_the_chosen_runtime_keeps_the_revision() -> None:
    from ome_operator.core.resolve.identity import equivalent
    from ome_operator.core.rollout.revisions import name_of

    deps = parts.deps(parts.model(**MODEL), candidate("one"))
    left = chosen(deps)
    right = resolve(unnamed(runtime={"name": "one"}), deps).inputs
    assert right is not None
    assert equivalent(left, right | {CHOSEN: {}}) and name_of(left, []) == name_of(right | {CHOSEN: {}}, [])


def test_named_runtime_that_does_not_match_is_used_with_advice() -> None:
    deps = parts.deps(parts.model(**MODEL), candidate("one", quantization="int4"))
    found = resolve(unnamed(runtime={"name": "one"}), deps)
    assert found.inputs is not None and not found.problems
    assert found.advice == ("runtime one may not fit model tiny: it is for quantization int4, but the model has fp8",)


@pytest.mark.parametrize(("text", "number"), [("7B", 7e9), ("1.04T", 1.04e12), ("500m", 5e8), ("x", None), (None, None)])
def test_parameter_count_is_parsed(text: str | None, number: float | None) -> None:
    assert parameter_count(text) == (None if number is None else pytest.approx(number))


EDITS = st.fixed_dictionaries(
    {},
    optional={
        "quantization": st.sampled_from(["fp8", "int4", None]),
        "modelArchitecture": st.sampled_from(["DeepseekV3ForCausalLM", "Other", None]),
        "priority": st.integers(0, 3),
        "autoSelect": st.booleans(),
        "low": st.sampled_from(["1B", "1T"]),
        "high": st.sampled_from(["900B", "2T"]),
        "here": st.sampled_from(["team", "elsewhere"]),
    },
)
RUNTIMES = st.lists(st.tuples(st.sampled_from("abcdef"), EDITS), max_size=6).map(
    lambda found: [candidate(name, **edit) for name, edit in found]
)


@given(RUNTIMES, st.randoms(use_true_random=False))
def test_candidate_order_is_total_and_excluded_candidates_have_reasons(runtimes: list[Runtime], chance: Any) -> None:
    refs = {Ref(one.kind, one.namespace, one.name): one for one in runtimes}
    mixed = list(refs.values())
    chance.shuffle(mixed)
    found = choice(*refs.values())
    assert found == choice(*mixed)
    assert all(one.violations for one in found.excluded)
    assert len(found.candidates) + len(found.excluded) == sum(ref.namespace in ("", "team") for ref in refs)
    lengths = [len(one.violations) for one in found.excluded]
    assert lengths == sorted(lengths)


@given(RUNTIMES, RUNTIMES)
def test_new_candidates_never_change_a_choice(first: list[Runtime], more: list[Runtime]) -> None:
    model = parts.model(**MODEL)
    inputs = resolve(unnamed(), parts.deps(model, *first)).inputs
    names = {one.name for one in first}
    later = parts.deps(model, *first, *(one for one in more if one.name not in names))
    if inputs is not None:
        assert chosen(later, inputs) == inputs


def test_accelerator_class_annotation_excludes_runtimes_like_the_spec() -> None:
    runtime = candidate("a")
    requires = parts.runtime("a", **{**runtime.spec.dump(), "acceleratorRequirements": {"acceleratorClasses": ["h200"]}})
    noted = {"annotations": {"ome.io/accelerator-class": "b200"}}
    assert why(requires, **noted) == ("it is for accelerators h200, but the service names b200",)


STORED = {"storageUri": "local:///models/acme", "path": "/models/acme"}


def test_model_without_facts_gets_one_message_with_all_missing_fields() -> None:
    """One message names all missing fields of a model. Reported: each message named one more, so a user needed three."""
    bare = ensure_valid(Model.parse({"kind": "ClusterBaseModel", "metadata": {"name": "tiny"}, "spec": {"storage": STORED}}))
    asks = {"modelArchitecture": "OlmoeForCausalLM", "quantization": None, "modelFramework": None}
    tp8 = candidate("acme-tp8", modelFormat={"name": "safetensors"}, **asks)
    (problem,) = [one for one in resolve(unnamed(), parts.deps(bare, tp8)).problems if one.reason == "NoRuntimeFits"]
    for field in ("modelFormat: {name: safetensors}", "modelArchitecture: OlmoeForCausalLM"):
        assert problem.message.count(field) == 1, problem.message
    assert "asks for" in problem.message and "agent.enabled=true" in problem.message
    written = {"modelFormat": {"name": "safetensors"}, "modelArchitecture": "OlmoeForCausalLM"}
    stated = ensure_valid(
        Model.parse({"kind": "ClusterBaseModel", "metadata": {"name": "tiny"}, "spec": {"storage": STORED, **written}})
    )
    assert chosen(parts.deps(stated, tp8))[CHOSEN]["name"] == "acme-tp8", "following the message is enough"


@pytest.mark.parametrize("ours", [None, "none", "None"])
@pytest.mark.parametrize("theirs", [None, "none", "NONE"])
def test_missing_quantization_equals_none(ours: str | None, theirs: str | None) -> None:
    """No quantization is equal to `none`, in runtimes and in models. Reported: a runtime and a model without quantization
    did not fit.
    """
    spec = {name: value for name, value in MODEL.items() if name != "quantization"}
    model = parts.model(**spec, **({"quantization": ours} if ours else {}))
    assert chosen(parts.deps(model, candidate("one", quantization=theirs)))[CHOSEN]["name"] == "one"
