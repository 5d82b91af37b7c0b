"""Checks expressions of PromQL against the metrics that exist, and says which labels they have."""

from __future__ import annotations

import promql_parser
from promql_parser import (
    AggModifierType,
    AggregateExpr,
    BinaryExpr,
    Call,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    StringLiteral,
    UnaryExpr,
    VectorMatchCardinality,
    VectorSelector,
)

from spark_kafka_sink.report.metrics import METRICS, QUERY_LABELS

BY_NAME = {metric.name: metric for metric in METRICS}
OF_COUNTERS = {"rate", "irate", "increase"}
# Prometheus adds these to whatever it scrapes.
OF_TARGET = {"job", "instance"}


def labels_of(expression: str) -> set[str]:
    """The labels of the result; fails if a metric or a label does not exist."""
    return _labels(promql_parser.parse(expression))


def metrics_in(expression: str) -> set[str]:
    names = set()

    def visit(node):
        if isinstance(node, VectorSelector):
            names.add(node.name)

    promql_parser.walk(promql_parser.parse(expression), visit)
    return names


def needed_metrics(expression: str) -> set[str]:
    """The metrics without which the expression has no value: all but those after ``unless``."""
    return _needed(promql_parser.parse(expression))


def _needed(node):
    if isinstance(node, ParenExpr | UnaryExpr | AggregateExpr):
        return _needed(node.expr)
    if isinstance(node, BinaryExpr):
        is_unless = str(node.op).lower().endswith("unless")
        return _needed(node.lhs) | (set() if is_unless else _needed(node.rhs))
    if isinstance(node, Call):
        return set().union(*(_needed(arg) for arg in node.args))
    if isinstance(node, MatrixSelector):
        return {node.vector_selector.name}
    return {node.name} if isinstance(node, VectorSelector) else set()


def _labels(node):
    if isinstance(node, ParenExpr | UnaryExpr):
        return _labels(node.expr)
    if isinstance(node, NumberLiteral | StringLiteral):
        return set()
    if isinstance(node, MatrixSelector):
        return _labels(node.vector_selector)
    return _CHECKS[type(node)](node)


def _selector_labels(node):
    assert node.name in BY_NAME, f"there is no metric {node.name}"
    labels = {*QUERY_LABELS, *BY_NAME[node.name].labels}
    for matcher in node.matchers.matchers:
        assert matcher.name in labels | OF_TARGET, f"{node.name} has no label {matcher.name}"
    return labels | OF_TARGET


def _call_labels(node):
    arguments = [_labels(arg) for arg in node.args]
    if node.func.name in OF_COUNTERS:
        metric = BY_NAME[node.args[0].vector_selector.name]
        assert metric.kind == "counter", f"{node.func.name} of {metric.name}, a {metric.kind}"
    return set().union(*arguments)


def _aggregate_labels(node):
    inner = _labels(node.expr)
    if node.modifier is None:
        return set()
    assert node.modifier.type == AggModifierType.By, "write by (...)"
    by = set(node.modifier.labels)
    assert by <= inner, f"{node.expr.prettify()} has no label {by - inner}"
    return by


def _binary_labels(node):
    left, right = _labels(node.lhs), _labels(node.rhs)
    if not left or not right:
        return left | right
    matching = node.modifier.matching if node.modifier else None
    if matching is not None:
        assert set(matching.labels) <= left & right
        assert node.modifier.card in (
            VectorMatchCardinality.ManyToOne,
            VectorMatchCardinality.OneToOne,
        )
    else:
        assert left == right, f"never equal: {node.prettify()}"
    return left


_CHECKS = {
    VectorSelector: _selector_labels,
    Call: _call_labels,
    AggregateExpr: _aggregate_labels,
    BinaryExpr: _binary_labels,
}
