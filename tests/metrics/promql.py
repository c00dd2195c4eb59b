"""Evaluates the queries that shardq ships, on scrapes: what of PromQL they use, and no more."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import promql_parser as promql
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

__all__ = ["Scrape", "evaluate", "parsed", "scrape", "selectors"]

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Scrape = Mapping[str, Vector]
"""What a page showed: by name, and by labels."""

INTERVAL = "$__rate_interval"

_NUMBERS: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": lambda one, other: one / other if other else math.nan,
}  # fmt: skip
_TESTS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_AGGREGATES: Mapping[str, Callable[[Iterable[float]], float]] = {"sum": sum, "max": max, "min": min}


def scrape(*registries: CollectorRegistry) -> Scrape:
    """Return the samples of the pages, as Prometheus reads them, with the labels that it adds."""
    found: dict[str, Vector] = {}
    for registry in registries:
        for family in text_string_to_metric_families(generate_latest(registry).decode()):
            for sample in family.samples:
                labels = frozenset({**sample.labels, "job": "shardq"}.items())
                found.setdefault(sample.name, {})[labels] = sample.value
    return found


def parsed(query: str) -> Any:
    """Return the query as a tree. Raises ValueError where it is none. Grafana's variables have the values of "All"."""
    return promql.parse(query.replace(INTERVAL, "5m").replace("$queue", ".*"))


def selectors(tree: Any) -> list[Any]:
    """Return all selectors of a query."""
    match tree:
        case promql.VectorSelector():
            return [tree]
        case promql.MatrixSelector():
            return [tree.vector_selector]
        case promql.Call():
            return [each for argument in tree.args for each in selectors(argument)]
        case promql.AggregateExpr() | promql.ParenExpr():
            return selectors(tree.expr)
        case promql.BinaryExpr():
            return selectors(tree.lhs) + selectors(tree.rhs)
    return []


def evaluate(query: str, *scrapes: Scrape) -> Vector:
    """Return the answer to a query, by labels. Rates are those from the first scrape to the last, a second later."""
    answer = _value(parsed(query), scrapes)
    return {frozenset(): answer} if isinstance(answer, float) else answer


def _value(tree: Any, scrapes: Sequence[Scrape]) -> Vector | float:
    match tree:
        case promql.NumberLiteral():
            return float(tree.val)
        case promql.ParenExpr():
            return _value(tree.expr, scrapes)
        case promql.VectorSelector():
            return _selected(tree, scrapes[-1])
        case promql.Call():
            return _called(tree, scrapes)
        case promql.AggregateExpr():
            return _aggregated(tree, scrapes)
        case promql.BinaryExpr():
            return _joined(tree, scrapes)
    raise NotImplementedError(str(tree))


def _selected(selector: Any, page: Scrape) -> Vector:
    return {
        labels: value
        for labels, value in page.get(selector.name, {}).items()
        if all(_matches(each, dict(labels).get(each.name, "")) for each in selector.matchers.matchers)
    }


def _matches(matcher: Any, value: str) -> bool:
    is_same = (
        re.fullmatch(matcher.value, value) is not None
        if matcher.op in (promql.MatchOp.Re, promql.MatchOp.NotRe)
        else matcher.value == value
    )
    return is_same is (matcher.op in (promql.MatchOp.Re, promql.MatchOp.Equal))


def _called(tree: Any, scrapes: Sequence[Scrape]) -> Vector:
    name, arguments = tree.func.name, tree.args
    if name in ("rate", "increase"):
        selector = arguments[0].vector_selector
        before, now = _selected(selector, scrapes[0]), _selected(selector, scrapes[-1])
        return {labels: value - before[labels] for labels, value in now.items() if labels in before}
    if name == "absent":
        return {} if _value(arguments[0], scrapes) else {frozenset(): 1.0}
    if name == "histogram_quantile":
        return _quantiles(_number(arguments[0]), _vector(arguments[1], scrapes))
    raise NotImplementedError(name)


def _quantiles(share: float, buckets: Vector) -> Vector:
    groups: dict[Labels, dict[float, float]] = {}
    for labels, count in buckets.items():
        bound = float(dict(labels)["le"])
        groups.setdefault(frozenset(each for each in labels if each[0] != "le"), {})[bound] = count
    found: Vector = {}
    for labels, counts in groups.items():
        bounds = sorted(counts)
        if counts[bounds[-1]] > 0:
            found[labels] = next(bound for bound in bounds if counts[bound] >= share * counts[bounds[-1]])
    return found


def _aggregated(tree: Any, scrapes: Sequence[Scrape]) -> Vector:
    wanted = set(tree.modifier.labels) if tree.modifier is not None else set()
    groups: dict[Labels, list[float]] = {}
    for labels, value in _vector(tree.expr, scrapes).items():
        groups.setdefault(frozenset(each for each in labels if each[0] in wanted), []).append(value)
    return {labels: _AGGREGATES[str(tree.op)](values) for labels, values in groups.items()}


def _joined(tree: Any, scrapes: Sequence[Scrape]) -> Vector:
    name, left, right = str(tree.op), _vector(tree.lhs, scrapes), _value(tree.rhs, scrapes)
    if isinstance(right, float):
        if name in _TESTS:
            return {labels: value for labels, value in left.items() if _TESTS[name](value, right)}
        return {labels: _NUMBERS[name](value, right) for labels, value in left.items()}
    if name in ("and", "unless"):
        on = set(tree.modifier.matching.labels)
        there = {_on(labels, on) for labels in right}
        return {
            labels: value for labels, value in left.items() if (_on(labels, on) in there) is (name == "and")
        }
    return {labels: _NUMBERS[name](value, right[labels]) for labels, value in left.items() if labels in right}


def _on(labels: Labels, names: set[str]) -> Labels:
    return frozenset(each for each in labels if each[0] in names)


def _vector(tree: Any, scrapes: Sequence[Scrape]) -> Vector:
    found = _value(tree, scrapes)
    assert not isinstance(found, float)
    return found


def _number(tree: Any) -> float:
    found = _value(tree, [{}])
    assert isinstance(found, float)
    return found
