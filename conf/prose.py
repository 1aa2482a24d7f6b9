"""Report prose that breaks the rules of CONTRIBUTING.md, as far as a program can see: `python conf/prose.py FILE …`.

A Markdown file is checked by paragraph, list item and table cell. A Python file that `--code` names is checked by
docstring, and by string with at least four words: errors, log lines, help and descriptions of options. A list of code
in backquotes counts as one word. The exit status is 1 if there are findings.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

WORDS_MAX = 30
_LEAST_WORDS = 4
"""Minimum number of words in a string that is checked; names and patterns have fewer."""

_OPENINGS = re.compile(r"(?:what(?:ever)?|who(?:ever|se|m)?|whether|of)\b", re.IGNORECASE)
_OPENING_ALLOWED = re.compile(r"of course\b", re.IGNORECASE)
PRIVATE_WORDS = {
    r"anew": "again",
    r"answer(?:s|ed|ing)?": "response, respond",
    r"beside": "next to, with, in addition to",
    r"doubl(?:es|ed|ing)(?! with each)": "duplicate, twice",
    r"for (?:who|whoever|what|whatever)": "the noun",
    r"gone on with": "resumed",
    r"in its stead": "instead of it",
    r"may not": "cannot, must not, is not authorized to",
    r"mend(?:s|ed|ing)?": "repair, fix",
    r"else (?:it|is|they|are|the)": "otherwise",
    r"so many": "the number",
    r"t(?:ell|ells|old|elling)": "report, say",
    r"(?:that|those) of": "the noun",
    r"(?:take|takes|taken|took|taking) away": "remove",
    r"what for": "why",
}
"""Words and phrases that readers did not understand, as regular expressions, and what to write instead."""
_PRIVATE = re.compile(rf"\b(?:{'|'.join(PRIVATE_WORDS)})\b", re.IGNORECASE)

_CODE = re.compile(r"(`+)(?:(?!\1).)+?\1", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_LINK = re.compile(r"!?\[((?:[^][]|\[[^]]*\])*)\](?:\([^()\s]*(?:\([^)]*\)[^()\s]*)*(?: \"[^\"]*\")?\)|\[[^]]*\])")
_FENCE = re.compile(r" *(?:```|~~~)")
_NEW_BLOCK = re.compile(r"\s*(?:[-*+]|\d+\.|>|#+)\s+|\s*\|")
_LEAD = re.compile(r"(?:\s*(?:[-*+]|\d+\.|>|#+)\s+)+(?:\[[ x]\] )?|[*_]+")
_RULE = re.compile(r"[\s|:=-]*")
_CELLS = re.compile(r"(?<!\\)\|")
_ENTRY = re.compile(r"\s+(?:\*{0,2}[A-Za-z_][\w., ]*|X):\s")
_SECTION = re.compile(r"(?:Args|Raises|Returns|Yields|Attributes):")
_END = re.compile(r"[.!?:]?[.!?][\"')*_]*\s+(?=[\"'(*_]*(?:[A-Z\d]|X\b))")
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|cf|vs|etc|no)\.$", re.IGNORECASE)
_CODE_LIST = re.compile(r"X(?:(?:,| and| or|, and|, or) X)+")
_WORD = re.compile(r"[\w'’][\w'’.,/:%+-]*")


@dataclass(frozen=True)
class Block:
    """Text that stands by itself, such as a paragraph, a list item or a table cell, and the line of its start."""

    line: int
    text: str


@dataclass(frozen=True)
class Finding:
    path: Path
    line: int
    rule: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.sentence}"


def findings(path: Path, blocks: Iterable[Block]) -> Iterator[Finding]:
    for block in blocks:
        for sentence in sentences(block.text):
            for rule in broken_rules(sentence):
                yield Finding(path, block.line, rule, sentence)


def broken_rules(sentence: str) -> Iterator[str]:
    """Yield a line for each rule that a sentence breaks. Code must be replaced by a word before."""
    opening = _OPENINGS.match(sentence.lstrip("\"'(*_"))
    if opening and not sentence.rstrip("\"')*_").endswith("?") and not _OPENING_ALLOWED.match(sentence):
        yield f"opens with {opening[0]!r}"
    words = len(_WORD.findall(_CODE_LIST.sub("X", sentence)))
    if words > WORDS_MAX:
        yield f"{words} words"
    for private in _PRIVATE.finditer(sentence):
        yield f"private word {private[0]!r}, {_instead(private[0])}"


def _instead(word: str) -> str:
    fits = (text for pattern, text in PRIVATE_WORDS.items() if re.fullmatch(pattern, word, re.IGNORECASE))
    return f"write {next(fits)}"


def sentences(text: str) -> Iterator[str]:
    start = 0
    for match in _END.finditer(text):
        if not _ABBREVIATION.search(text[: match.start() + 1]):
            yield text[start : match.end()].strip()
            start = match.end()
    if rest := text[start:].strip():
        yield rest


def markdown_blocks(text: str) -> Iterator[Block]:
    """Yield the blocks of a page."""
    kept = _COMMENT.sub(_blank, _without_fences(text))
    kept = _LINK.sub(lambda link: link[1] + "\n" * link[0].count("\n"), _CODE.sub(_code_word, kept))
    yield from _blocks(kept.splitlines(), 1)


def docstring_blocks(source: str) -> Iterator[Block]:
    """Yield the blocks of all docstrings, including the strings below attributes."""
    for node in ast.walk(ast.parse(source)):
        for line, text in _docstrings(node):
            lines = _CODE.sub(_code_word, text).splitlines()
            yield from _blocks(_without_examples(lines), line)


def string_blocks(source: str) -> Iterator[Block]:
    """Yield the strings of one line that are no docstrings, and have at least `_LEAST_WORDS` words, by clause.

    A value in an f-string counts as code.
    """
    tree = ast.parse(source)
    docstring_lines = {line for node in ast.walk(tree) for line, _ in _docstrings(node)}
    inner = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        match node:
            case ast.JoinedStr(values=values):
                text = "".join(str(value.value) if isinstance(value, ast.Constant) else "X" for value in values)
            case ast.Constant(value=str(text)) if node not in inner and node.lineno not in docstring_lines:
                pass
            case _:
                continue
        if "\n" not in text.strip() and len(text.split()) >= _LEAST_WORDS:
            yield from (Block(node.lineno, clause) for clause in _CODE.sub(_code_word, text).split(": "))


def _docstrings(node: ast.AST) -> Iterator[tuple[int, str]]:
    body = getattr(node, "body", None)
    if not isinstance(body, list):
        return
    has_own = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    for number, statement in enumerate(body):
        follows = number > 0 and isinstance(body[number - 1], ast.Assign | ast.AnnAssign)
        match statement:
            case ast.Expr(value=ast.Constant(value=str(text))) if follows or (has_own and not number):
                yield statement.lineno, text


def _without_examples(lines: list[str]) -> Iterator[str]:
    """Drop lines that are indented by four columns more than the text above them, as code is."""
    margin = min((len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()), default=0)
    in_section = False
    for line in lines:
        if line.strip() and len(line) - len(line.lstrip()) <= margin:
            in_section = bool(_SECTION.match(line.strip()))
        is_code = not in_section and line.startswith(" " * (margin + 4)) and not line.strip().startswith("-")
        yield "" if is_code else line


def _blocks(lines: Iterable[str], first: int) -> Iterator[Block]:
    begun, parts = first, list[str]()
    for number, line in enumerate(lines, first):
        starts_block = _NEW_BLOCK.match(line) or _ENTRY.match(line)
        if parts and (starts_block or not line.strip() or parts[-1].lstrip().startswith("#")):
            yield from _ended(begun, parts)
            parts = []
        if line.strip():
            begun = begun if parts else number
            parts.append(line)
    yield from _ended(begun, parts)


def _ended(line: int, parts: list[str]) -> Iterator[Block]:
    text = " ".join(part.strip() for part in parts)
    if text.startswith("|"):
        cells = _CELLS.split(text)
    else:
        text = text if _SECTION.match(text) else _entry_text(parts, text)
        cells = [text]
    for cell in cells:
        if not _RULE.fullmatch(cell):
            yield Block(line, _LEAD.sub("", cell, count=1).strip() if _LEAD.match(cell) else cell.strip())


def _entry_text(parts: list[str], text: str) -> str:
    """Drop the name before the text of an argument or an error in a docstring."""
    return text.partition(": ")[2] if parts and _ENTRY.match(parts[0]) else text


def _without_fences(text: str) -> str:
    lines, fenced = list[str](), False
    for line in text.splitlines():
        is_fence = bool(_FENCE.match(line))
        lines.append("" if fenced or is_fence else line)
        fenced ^= is_fence
    return "\n".join(lines)


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def _code_word(match: re.Match[str]) -> str:
    return "X" + "\n" * match[0].count("\n")


def files(paths: Iterable[Path], suffix: str) -> Iterator[Path]:
    for path in paths:
        yield from sorted(path.rglob(f"*{suffix}")) if path.is_dir() else [path] * (path.suffix == suffix)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Check prose.")
    parser.add_argument("texts", nargs="*", type=Path, help="Markdown files, or folders of them")
    parser.add_argument("--code", nargs="+", type=Path, default=[], help="Python files, or folders of them")
    given = parser.parse_args(arguments)
    found = list[Finding]()
    for path in files(given.texts, ".md"):
        found += findings(path, markdown_blocks(path.read_text("utf-8")))
    for path in files(given.code, ".py"):
        source = path.read_text("utf-8")
        found += findings(path, [*docstring_blocks(source), *string_blocks(source)])
    for each in found:
        sys.stdout.write(f"{each}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
