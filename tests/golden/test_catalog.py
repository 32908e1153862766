"""The page that lists the catalog matches the files in config/."""

from tests.support import catalog, parts

PAGE = parts.ROOT / "docs/catalog.md"


def test_catalog_page_is_generated_from_the_files(update: bool) -> None:
    text = catalog.page()
    if update:
        PAGE.write_text(text)
    assert PAGE.read_text() == text, "see `pytest tests/golden --update-golden`"


def test_every_model_and_runtime_has_a_sample() -> None:
    named = [parts.shipped_service(one)[0].spec for one in catalog.samples()]
    config = parts.ROOT / "config"
    models = {
        body["metadata"]["name"] for path in (config / "models").rglob("*.yaml") for body in parts.read_documents(path)
    }
    runtimes = {
        body["metadata"]["name"] for path in (config / "runtimes").rglob("*.yaml") for body in parts.read_documents(path)
    }
    assert models - {one.model.name for one in named if one.model} == {"kimi-k2-tiny"}
    alike = {
        "kimi-k2-pd-seed-rt",
        "kimi-k2-tiny-pd-cpu-rt",
    }  # kimi-k2-pd.yaml also runs on the class that is listed first; the other class is for CPUs.
    assert runtimes - {one.runtime.name for one in named if one.runtime} == alike
