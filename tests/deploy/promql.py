"""Enough of PromQL to evaluate the expressions in deploy/ where promtool is not installed.

It knows the operators and functions that those use, and refuses others. `rate` and `increase` do not extrapolate.
"""

from __future__ import annotations

import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Series = Mapping[tuple[str, Labels], list[tuple[float, float]]]
"""By name and labels: times in seconds, and values."""


def _divided(one: float, other: float) -> float:
    return one / other if other else float("nan")


_TOKEN = re.compile(r'\s*(==|<|>|[-+*/(){},\[\]]|=~|=|"[^"]*"|\d+[smh]\b|\d+(?:\.\d+)?|\w+)')
_UNITS = {"s": 1, "m": 60, "h": 3600}
_LOOK_BACK = 300.0
_LEVELS: list[dict[str, Callable[[float, float], Any]]] = [
    {"==": operator.eq, "<": operator.lt, ">": operator.gt},
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": _divided},
]
_AGGREGATES: dict[str, Callable[[Iterable[float]], float]] = {"sum": sum, "max": max, "min": min}


def evaluate(expression: str, series: Series, at: float) -> Vector | float:
    """The value of an expression at a time."""
    parser = _Parser(expression, series, at)
    found = parser.either()
    assert not parser.tokens, f"{expression}: cannot read {parser.tokens}"
    return found


def seconds(duration: str) -> float:
    return float(duration[:-1]) * _UNITS[duration[-1]]


class _Parser:
    def __init__(self, expression: str, series: Series, at: float) -> None:
        self.tokens = _TOKEN.findall(expression)
        assert "".join(self.tokens) == re.sub(r"\s", "", expression), expression
        self._series = series
        self._at = at

    def _next(self, *wanted: str) -> str:
        token = self.tokens.pop(0)
        assert not wanted or token in wanted, f"{token} is not {wanted}"
        return token

    def _peek(self) -> str:
        return self.tokens[0] if self.tokens else ""

    def either(self) -> Vector | float:
        left = self._level(0)
        while self._peek() in ("and", "or"):
            word, right = self._next(), self._level(0)
            assert isinstance(left, dict)
            assert isinstance(right, dict)
            left = {**right, **left} if word == "or" else {key: left[key] for key in left if key in right}
        return left

    def _level(self, level: int) -> Vector | float:
        if level == len(_LEVELS):
            return self._primary()
        left = self._level(level + 1)
        while self._peek() in _LEVELS[level]:
            apply = _LEVELS[level][self._next()]
            left = _applied(apply, left, self._level(level + 1), keeps=level == 0)
        return left

    def _primary(self) -> Vector | float:
        token = self._next()
        if token == "(":
            found = self.either()
            self._next(")")
            return found
        if token[0].isdigit():
            return float(token)
        if token in _AGGREGATES:
            return self._aggregate(_AGGREGATES[token])
        if token == "vector":
            return {frozenset(): float(self._in_brackets()[0])}
        if token in ("rate", "increase"):
            self._next("(")
            samples, span = self._selected(self._next())
            self._next(")")
            changes = {key: _increase(found) for key, found in samples.items() if len(found) > 1}
            return {key: change / span if token == "rate" else change for key, change in changes.items()}
        if token == "histogram_quantile":
            self._next("(")
            part = float(self._next())
            self._next(",")
            buckets = self.either()
            self._next(")")
            assert isinstance(buckets, dict)
            return _quantile(part, buckets)
        return {key: found[-1][1] for key, found in self._selected(token)[0].items()}

    def _aggregate(self, aggregate: Callable[[Iterable[float]], float]) -> Vector:
        by: list[str] = []
        if self._peek() == "by":
            self._next()
            by = self._in_brackets()
        self._next("(")
        found = self.either()
        self._next(")")
        assert isinstance(found, dict)
        groups: dict[Labels, list[float]] = defaultdict(list)
        for key, value in found.items():
            groups[frozenset((name, text) for name, text in key if name in by)].append(value)
        return {key: aggregate(values) for key, values in groups.items()}

    def _in_brackets(self) -> list[str]:
        self._next("(")
        found: list[str] = []
        while (token := self._next()) != ")":
            found += [token] if token != "," else []
        return found

    def _selected(self, name: str) -> tuple[dict[Labels, list[tuple[float, float]]], float]:
        """The samples of a selector, with its range and offset, and how long the range is."""
        assert name.startswith("stepwell_"), f"{name} is not known here"
        matchers: list[tuple[str, str]] = []
        if self._peek() == "{":
            while self._next("{", ",") and self._peek() != "}":
                label, kind, text = self._next(), self._next("=", "=~"), self._next()[1:-1]
                matchers.append((label, text if kind == "=~" else re.escape(text)))
                if self._peek() == "}":
                    break
            self._next("}")
        span, until = _LOOK_BACK, self._at
        if self._peek() == "[":
            self._next()
            span = seconds(self._next())
            self._next("]")
        if self._peek() == "offset":
            self._next()
            until -= seconds(self._next())
        found: dict[Labels, list[tuple[float, float]]] = {}
        for (named, labels), samples in self._series.items():
            texts = dict(labels)
            if named == name and all(re.fullmatch(text, texts.get(label, "")) for label, text in matchers):
                within = [(time, value) for time, value in samples if until - span <= time <= until]
                if within:
                    found[labels] = within
        return found, span


def _applied(
    apply: Callable[[float, float], Any], left: Vector | float, right: Vector | float, *, keeps: bool
) -> Vector | float:
    """Apply an operator to the pairs with the same labels. A comparison keeps the left values for which it holds."""
    if isinstance(left, dict):
        others = right if isinstance(right, dict) else dict.fromkeys(left, right)
        pairs = {key: (value, others[key]) for key, value in left.items() if key in others}
    elif isinstance(right, dict):
        pairs = {key: (left, value) for key, value in right.items()}
    else:
        return apply(left, right)
    if keeps:
        return {key: one for key, (one, other) in pairs.items() if apply(one, other)}
    return {key: apply(one, other) for key, (one, other) in pairs.items()}


def _increase(samples: list[tuple[float, float]]) -> float:
    values = [value for _, value in samples]
    return sum(new - old if new >= old else new for old, new in pairwise(values))


def _quantile(part: float, buckets: Vector) -> Vector:
    by: dict[Labels, list[tuple[float, float]]] = defaultdict(list)
    for key, value in buckets.items():
        by[frozenset(pair for pair in key if pair[0] != "le")].append((float(dict(key)["le"]), value))
    return {
        key: next(bound for bound, count in sorted(found) if count >= part * max(count for _, count in found))
        for key, found in by.items()
    }
