"""The API reference page matches the API models."""

from tests.support import api_page, parts

PAGE = parts.ROOT / "docs/api.md"


def test_api_page_is_generated_from_the_models(update: bool) -> None:
    text = api_page.page()
    if update:
        PAGE.write_text(text)
    assert PAGE.read_text() == text, "see `pytest tests/golden --update-golden`"
