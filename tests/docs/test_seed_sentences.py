"""Tests that every sentence of the first documents has a row in docs/seeds.md, or a reason why it needs none."""

from collections.abc import Iterator
from typing import Any

import yaml

from tests.support import parts
from tests.support.seeds.rows import Section, sections

DATA = list(yaml.load_all((parts.ROOT / "tests/data/seed_sentences.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader))
REASONS, DOCUMENTS = DATA[0]["reasons"], DATA[1:]
SECTIONS = list(sections())


def numbered() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each sentence with its document and number, such as `A shorter text about it 12`."""
    for document in DOCUMENTS:
        for number, sentence in enumerate(document["sentences"], 1):
            yield f"{document['document']} {number}", sentence


def of(document: str) -> list[Section]:
    return [section for section in SECTIONS if section.document == document]


def test_every_sentence_has_rows_or_a_reason() -> None:
    wrong = [
        name
        for name, sentence in numbered()
        if bool(sentence.get("rows")) == (sentence.get("why") in REASONS and bool(REASONS))
    ]
    assert wrong == []
    assert {key for _, sentence in numbered() for key in sentence} <= {"about", "rows", "why"}


def test_rows_referenced_by_sentences_exist_and_every_row_is_used() -> None:
    assert [document["document"] for document in DOCUMENTS] == list(dict.fromkeys(section.document for section in SECTIONS))
    for document in DOCUMENTS:
        found = of(document["document"])
        named = {row for sentence in document["sentences"] for row in sentence.get("rows", ())}
        says = {row.says for section in found for row in section.rows}
        titles = {f"section: {section.title}" for section in found}
        assert sorted(named - says - titles) == [], document["document"]
        whole = {row.says for section in found if f"section: {section.title}" in named for row in section.rows}
        assert sorted(says - named - whole) == [], document["document"]


def test_every_reason_is_used() -> None:
    assert {sentence["why"] for _, sentence in numbered() if "why" in sentence} == REASONS.keys()
