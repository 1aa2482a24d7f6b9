"""Made-up texts of SQL as people and typing errors write them: with all operators, and with few parentheses."""

from __future__ import annotations

from random import Random

_PLAIN = [
    "a", "b", "c", "d", "nested.x", "nested.z.b", "`x y`", "`a``b`", "`nested`.`x`", "1", "2.5", "'x'", "TRUE", "NULL",
    "-1", "upper(a)", "(a)", "5L",
]  # fmt: skip
_ODD = [
    "all", "as", "`all`", "`as`", "date", "timestamp", "user", "key", "offset", "partition", "DATE '2024-02-29'", "''",
    "date'2024-02-29'", "TIMESTAMP '2024-02-29 23:59:59.5Z'", "timestamp '2024-02-29 00:00:00+01:00'", "'it''s'",
    "''''", "'a' 'b'", '"q"', "r'a'", "X'1F'", "2.5D", "1d", "1.0BD", "5bd", "1e3BD", "1e3", "1E-3", "1e3L", "3S",
    "7y", ".5",
    "1.", "1.e3", "1F", "0x1F", "1a", "007", "9223372036854775808", "-9223372036854775808", "- 1", "-0.0", "-.5", "--1",
    "- -1", "-(1)", "+1", "-a", "- a", "-1::bigint", "-a::int", "a::string", "a :: long", "CAST(a AS INT)",
    "CAST(a = b AS string)", "TRY_CAST(a AS dec(5,2))", "TRY_CAST(a AS DECIMAL)", "cast(- a as real)", "if(a, b, c)",
    "coalesce(a, b = c, NULL)", "substring(a, 2, 3)", "substring(a FROM 2 FOR 3)", "trim(BOTH 'x' FROM a)", "trim(a)",
    "abs(all -a)", "lower(DISTINCT a)", "lower(all)", "lower(all a)", "CASE a WHEN b THEN c ELSE d END",
    "CASE WHEN a = b THEN c WHEN b THEN - d END", "case a = b when not c then d end", "current_date", "current_user",
    "(a, b)", "(a = b)", "(NOT a)", "EXISTS (SELECT 1)", "(SELECT 1)", "x -> x", "f(a => 1)", "count(*)", "a[0]",
    "a:b", ":p", "?", "INTERVAL 1 DAY", "INTERVAL '1' DAY", "interval", "timestamp_ntz '2024-02-29'", "nested.x(1)",
    "a.1",
    "(a).x", "upper(a).x", "a.date", "a.all", "'${spark.app.name}'", "a${spark.none}", "größe", "`größe`",
    "a COLLATE u", "position('a' IN b)", "extract(year FROM a)", "replace(a, 'b', 'c')", "year(a)", "day(date)",
    "left(a, 1)", "a!",
    "current_date()", "array(1)", "a ESCAPE '/'", "char_length (a)", "`upper`(a)", "a\u00a0", "_a", "a$b", "a@b",
]  # fmt: skip
_COMPARISONS = ["=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"]
_ARITHMETIC = ["+", "-", "*", "/", "%", "||"]
_ODD_OPERATORS = ["!>", "!<", "|", "&", "^", "<<", ">>", ">>>", "div", "=>", "->", "< =", "::", ".", ",", "", "AS"]
_ODD_PREDICATES = [
    "RLIKE 'x'", "ILIKE 'x'", "LIKE 'x' ESCAPE '/'", "LIKE ANY ('x', 'y')", "NOT RLIKE b", "IS UNKNOWN", "!IN (a)",
    "IS NOT UNKNOWN", "IN (SELECT 1)", "IN ()", "IS", "NOT", "NOT NULL", "IS DISTINCT", "BETWEEN SYMMETRIC 1 AND 2",
    "IS !NULL", "ISNULL", "NOTNULL", "REGEXP 'x'", "IS NOT", "BETWEEN 1", "COLLATE UTF8_BINARY", "IS NULL NULL",
]  # fmt: skip
_BLANKS = [" "] * 14 + ["", "", "\n", "\t ", "  ", " /* c */ ", "\u00a0", " -- c\n"]


class Texts:
    """Random texts."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def text(self, odd: float) -> str:
        """Return a text; `odd` is the share of parts that are rare, or not SQL of the list at all."""
        self._odd = odd
        parts = self._condition(2)
        if self._random.random() < odd:
            at = self._random.randrange(len(parts))
            match self._random.randrange(3):
                case 0:
                    del parts[at]
                case 1:
                    parts.insert(at, self._random.choice(parts))
                case 2:
                    other = self._random.randrange(len(parts))
                    parts[at], parts[other] = parts[other], parts[at]
        blanks = _BLANKS if odd else [" "]
        return "".join(part + self._random.choice(blanks) for part in parts).strip(" ")

    def _is(self, probability: float) -> bool:
        return self._random.random() < probability

    def _one(self, usual: list[str], odd: list[str]) -> str:
        return self._random.choice(odd if self._is(self._odd) else usual)

    def _condition(self, depth: int) -> list[str]:
        parts = self._predicated(depth)
        while self._is(0.35):
            parts += [self._random.choice(["AND", "OR", "and", "Or"]), *self._predicated(depth)]
        return parts

    def _predicated(self, depth: int) -> list[str]:
        parts = [self._one(["NOT"], ["!", "not", "NOT NOT"])] if self._is(0.25) else []
        parts += self._value(depth)
        return parts + self._predicate(depth) if self._is(0.5) else parts

    def _predicate(self, depth: int) -> list[str]:
        if self._is(self._odd):
            return self._random.choice(_ODD_PREDICATES).split(" ")
        negated = ["NOT"] if self._is(0.4) else []
        match self._random.randrange(6):
            case 0:
                return [*negated, "BETWEEN", *self._value(depth), "AND", *self._value(depth)]
            case 1:
                return [*negated, "IN", "(", *self._condition(depth - 1), ",", *self._value(depth), ")"]
            case 2:
                return [*negated, "LIKE", *self._value(depth - 1)]
            case 3:
                return ["IS", *negated, "DISTINCT", "FROM", *self._value(depth)]
        return ["IS", *negated, self._random.choice(["NULL", "TRUE", "FALSE"])]

    def _value(self, depth: int) -> list[str]:
        parts = self._operand(depth)
        while self._is(0.45):
            usual = _COMPARISONS if self._is(0.5) else _ARITHMETIC
            parts += [self._one(usual, _ODD_OPERATORS), *self._operand(depth)]
        return parts

    def _operand(self, depth: int) -> list[str]:
        if depth > 0 and self._is(0.2):
            inner = self._condition(depth - 1)
            match self._random.randrange(5):
                case 0:
                    return ["-", "(", *inner, ")"]
                case 1:
                    return ["CASE", "WHEN", *inner, "THEN", *self._value(depth - 1), "END"]
                case 2:
                    return ["coalesce", "(", *inner, ",", *self._value(depth - 1), ")"]
                case 3:
                    return ["CAST", "(", *inner, "AS", "STRING", ")"]
            return ["(", *inner, ")"]
        sign = [self._one(["-"], ["+", "~", "- -", "!"])] if self._is(0.12) else []
        return [*sign, self._one(_PLAIN, _ODD)]
