"""Tests that values.yaml is read with its comments, and edited without losing them."""

import pytest
import yaml

from ome_operator.errors import UserError
from release.values import Value, replace_values, values

TEXT = """\
# About the file.

image:
  # -- Name of the image,
  # in two lines.
  repository: mine # this one stays
  # Not a description.
  tag: ""
# -- A block that is a row itself.
resources:
  requests: {cpu: 1}
list: [1]
"""


def test_value_rows_are_in_the_order_of_the_file() -> None:
    assert values(TEXT) == [
        Value(("image", "repository"), "string", '"mine"', "Name of the image, in two lines."),
        Value(("image", "tag"), "string", '""', ""),
        Value(("resources",), "object", '{"requests": {"cpu": 1}}', "A block that is a row itself."),
        Value(("list",), "list", "[1]", ""),
    ]
    assert values("# nothing\n") == []


def test_value_is_replaced_and_comments_are_kept() -> None:
    """A new value replaces the old one in the text of values.yaml, and all comments stay."""
    wanted = {("image", "repository"): "host:1/a", ("image", "tag"): "2"}
    made = replace_values(TEXT, wanted)
    assert yaml.safe_load(made)["image"] == {"repository": "host:1/a", "tag": "2"}
    assert made.replace('"host:1/a"', "mine").replace('"2"', '""') == TEXT


def test_missing_value_path_gives_a_one_line_error() -> None:
    with pytest.raises(UserError, match=r"has no image\.digest"):
        replace_values(TEXT, {("image", "digest"): "x"})
