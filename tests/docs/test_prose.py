"""The check of prose finds what it should find, and leaves good sentences alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from conf.prose import Block, broken_rules, docstring_blocks, findings, main, markdown_blocks, sentences, string_blocks


def rules(text: str) -> list[str]:
    return [each.rule for each in findings(Path("page.md"), markdown_blocks(text))]


@pytest.mark.parametrize(
    ("sentence", "rule"),
    [
        ("What the session lacks ends the job.", "opens with 'What'"),
        ("Of a table Spark loses the options.", "opens with 'Of'"),
        ("Who commits is a setting.", "opens with 'Who'"),
        ("Whoever commits first wins.", "opens with 'Whoever'"),
        ("Whether it holds is logged.", "opens with 'Whether'"),
        ("The query starts anew.", "private word 'anew', write again"),
        ("Rows beside Kafka's columns.", "private word 'beside', write next to, with, in addition to"),
        ("The user may not read it.", "private word 'may not', write cannot, must not, is not authorized to"),
        ("The log tells the reason.", "private word 'tells', write report, say"),
        ("Columns are those of Spark.", "private word 'those of', write the noun"),
        ("Word" + " word" * 30 + ".", "31 words"),
    ],
)
def test_a_sentence_that_breaks_a_rule_is_found(sentence: str, rule: str) -> None:
    assert rules(f"Good. {sentence} Good.") == [rule]


@pytest.mark.parametrize(
    "sentence",
    [
        "What is a segment?",
        "Of course it works.",
        "Offsets are committed, e.g. by Spark.",
        "The wait is doubled with each failure.",
        "Whichever comes first ends the batch.",
        "Word" + " word" * 29 + ".",
        "Codecs are " + ", ".join(f"`codec{number}`" for number in range(40)) + " and `none`.",
        "`told` is code, and so is ``answer``.",
    ],
)
def test_a_good_sentence_is_no_finding(sentence: str) -> None:
    assert rules(sentence) == []


def test_cells_items_and_headings_are_sentences_of_their_own() -> None:
    items = "# Who reads\n\ntext\n- of lists\n- good\n  of the same item\n\n"
    text = items + "| good | what |\n|---|---|\n| a `|` b | of cells |\n"
    assert rules(text) == ["opens with 'Who'", "opens with 'of'", "opens with 'what'", "opens with 'of'"]


def test_fenced_code_comments_and_addresses_of_links_are_left_out() -> None:
    text = '```\nWhat is code.\n```\n<!-- Of comments -->\n[Good](anew.md "told") ![Good](told.png)\n'
    assert list(markdown_blocks(text)) == [Block(5, "Good Good")]


def test_the_line_of_a_finding_is_that_of_its_paragraph() -> None:
    found = list(findings(Path("page.md"), markdown_blocks("good\n\n```\na\nb\n```\n\nGood.\nWhat is it.\n")))
    assert [str(each) for each in found] == ["page.md:8: opens with 'What': What is it."]


def test_a_sentence_ends_before_a_capital_letter_and_not_within_an_abbreviation() -> None:
    assert list(sentences("One ends. Two, e.g. The third! 4 is one (Good.) Last")) == [
        "One ends.", "Two, e.g. The third!", "4 is one (Good.)", "Last",
    ]  # fmt: skip


def test_docstrings_of_modules_classes_functions_and_attributes_are_read() -> None:
    source = '''
"""What it is."""
SIZE = 1
"""Of bytes."""
class Reader:
    """Who reads.

    Example:

        what is code, of course

    Args:
        size: whether it is long,
            and more.
        other: good
    """
    size: int
    """told"""
    def read(self):
        """Good. What it gives."""
        text = "what is no docstring"
        return f"of {text}"
'''
    found = [
        rule for block in docstring_blocks(source) for text in sentences(block.text) for rule in broken_rules(text)
    ]
    assert sorted(found) == [
        "opens with 'Of'", "opens with 'What'", "opens with 'What'", "opens with 'Who'", "opens with 'whether'",
        "private word 'told', write report, say",
    ]  # fmt: skip


def test_strings_of_four_words_are_read_by_clause_with_their_values_as_code() -> None:
    source = '''"""A docstring with four words."""
raise ValueError(f"option {name}: what it `told` me is {value!r}")
help = ("One text "
        "in two parts")
short = "of three words"
layout = "several words\\nin two lines"
'''
    assert sorted(string_blocks(source), key=lambda block: block.line) == [
        Block(2, "option X"), Block(2, "what it X me is X"), Block(3, "One text in two parts"),
    ]  # fmt: skip


def test_the_exit_status_says_whether_there_are_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad, source = tmp_path / "good.md", tmp_path / "bad.md", tmp_path / "source.py"
    good.write_text("Good.\n")
    bad.write_text("What is bad.\n")
    source.write_text('"""Told."""\n')
    assert main([str(good)]) == 0
    assert main([str(tmp_path)]) == 1
    assert main([str(good), "--code", str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{bad}:1: opens with 'What': What is bad.",
        f"{source}:1: private word 'Told', write report, say: Told.",
    ]
