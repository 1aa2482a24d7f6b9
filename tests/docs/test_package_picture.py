from __future__ import annotations

from tests.docs.package_picture import PICTURE, graph, picture, reduced


def test_the_picture_is_that_of_the_imports() -> None:
    drawn = PICTURE.read_text("utf-8")
    assert drawn == picture(), "draw it again with `python -m tests.docs.package_picture`"


def test_every_import_leads_down() -> None:
    assert all(upper[0] > lower[0] for upper, lowers in graph().items() for lower in lowers if upper[1] != lower[1])


def test_a_line_that_follows_from_others_is_left_out() -> None:
    top, middle, low = (2, "top"), (1, "middle"), (0, "low")
    assert reduced({top: {middle, low}, middle: {low}}) == {top: {middle}, middle: {low}}
