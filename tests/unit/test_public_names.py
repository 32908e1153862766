"""Tests of names on which users, stored objects and running pods depend: none may disappear, and new names are added to the
lists.
"""

import pytest

from tests.support.names import walk
from tests.support.names.lists import DATA, KINDS, current, listed_names

COMMAND = "python -m tests.support.names --write"


@pytest.mark.parametrize("kind", KINDS)
def test_no_public_name_disappears(kind: str) -> None:
    """Every listed name still exists. To remove a name on purpose, write the list again, and mention it in CHANGELOG.md."""
    gone = listed_names(kind) - current(kind)
    assert not gone, f"users, stored objects or running pods know these names, and they are gone: {sorted(gone)}"


@pytest.mark.parametrize("kind", KINDS)
def test_every_public_name_is_listed(kind: str) -> None:
    new = current(kind) - listed_names(kind)
    assert not new, f"new public names: {sorted(new)}. Add them to the list with `{COMMAND}`"


def test_every_list_has_names_and_is_compared() -> None:
    assert {file.stem for file in DATA.iterdir()} == set(KINDS)
    assert all(listed_names(kind) for kind in KINDS)


def test_renamed_field_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    from ome_operator.core.observed.objects import Pod

    before = current("recordings")
    monkeypatch.setattr(Pod, "_fields", tuple("rk" if name == "rank" else name for name in Pod._fields))
    monkeypatch.setitem(Pod.__annotations__, "rk", int)
    assert before - set(KINDS["recordings"]()) == {"services{}.passes[].saw.pods[].rank"}


def test_docstrings_are_not_listed_as_names() -> None:
    assert not any("Labels, annotations, ports" in text for text in walk.texts("ome_operator.keys"))
