"""A pipeline as a picture: a tree of text, or a graph for Mermaid or Graphviz."""

from __future__ import annotations

from collections.abc import Iterator

from shardq.pipelines.pipeline import Pipeline

__all__ = ["as_dot", "as_mermaid", "as_text"]


def as_text(pipeline: Pipeline) -> str:
    """A tree for each source. A queue that was drawn already is named, and not followed again."""
    seen: set[str] = set()
    lines = [pipeline.name]
    for source in pipeline.sources:
        lines += _branch(pipeline, source, "", seen)
    return "\n".join(lines)


def _branch(pipeline: Pipeline, queue: str, indent: str, seen: set[str]) -> Iterator[str]:
    link = next((each for each in pipeline.links if each.source == queue), None)
    if link is None:
        yield f"{indent}{queue}  (output)"
        return
    if queue in seen:
        yield f"{indent}{queue}  (above)"
        return
    seen.add(queue)
    yield f"{indent}{queue}  {link.label}{'' if link.targets else '  (sink)'}"
    for target in link.targets:
        first, *others = _branch(pipeline, target, "", seen)
        yield f"{indent}  -> {first}"
        yield from (f"{indent}     {line}" for line in others)


def as_mermaid(pipeline: Pipeline) -> str:
    """A flowchart for Mermaid."""
    numbers = {name: f"q{number}" for number, name in enumerate(pipeline.queues)}
    lines = ["flowchart LR", *(f'  {numbers[name]}["{_escaped(name)}"]' for name in pipeline.queues)]
    for link in pipeline.links:
        label = _escaped(link.label)
        lines += [f'  {numbers[link.source]} -->|"{label}"| {numbers[target]}' for target in link.targets]
        if not link.targets:
            end = f"end{numbers[link.source]}"
            lines += [f'  {end}(("{label}"))', f"  {numbers[link.source]} --> {end}"]
    return "\n".join(lines)


def as_dot(pipeline: Pipeline) -> str:
    """A graph for Graphviz."""
    lines = ["digraph {", "  rankdir=LR; node [shape=box];"]
    for link in pipeline.links:
        label = _quoted(link.label)
        lines += [
            f"  {_quoted(link.source)} -> {_quoted(target)} [label={label}];" for target in link.targets
        ]
        if not link.targets:
            end = _quoted(f"sink of {link.source}")
            lines += [f"  {end} [label={label}, shape=circle];", f"  {_quoted(link.source)} -> {end};"]
    return "\n".join([*lines, "}"])


def _escaped(text: str) -> str:
    return text.replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
