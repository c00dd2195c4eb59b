"""Pages and docstrings keep the countable rules for plain English: subjects, the length of sentences, replaced words.

Ruff's rule D401 checks that the docstrings of functions begin with an imperative verb.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.docs.pages import DOCS, ROOT, name

TOPICS = """
architecture asyncio backups changelog coming-from commands comparison concepts dashboard django faq index large-bodies
metrics operations pipelines scaling schedules spark storage-port tasks testing topics tracing tutorial
"""
REWRITTEN = [
    ROOT / "README.md",
    *(DOCS / f"{topic}.md" for topic in TOPICS.split()),
    *sorted((DOCS / "guide").glob("*.md")),
]
"""Pages that were written by the rules. Add a page here when it is rewritten."""

PACKAGE = ROOT / "shardq"
MOST_WORDS = 25  # of a page; a docstring or an error has values and names, so it may have more
MOST_WORDS_IN_CODE = 35
FEW_WORDS = 4
PARSER = MarkdownIt().enable("table")
END = re.compile(r"(?<=[.!?])[)\"']*\s+(?=[A-Z0-9`(\"]|shardq\b)")
CLAUSE = re.compile(r"(What|Who|Whoever|Whatever|Nobody|Somebody|Everybody)\b")
MARKED = re.compile(r":[\w:]+:`[^`]*`|``.*?``|`[^`]*`", re.DOTALL)
ITEM = re.compile(r"^\s*(?:[-*]|\d+\.)\s+|^``\w+``\n", re.MULTILINE)
REPLACED = re.compile(
    r"\b("
    r"what (waits|is due|is held)"
    r"|(?<!there )is no (?!longer\b|older\b)"  # "is not a ..."
    r"|(is|are) over(?! (the|its|all)\b)"  # "is over the limit" is fine
    r"|(is|are|was|were) told|tells? of|told of|telling"
    r"|a look|looks? at"
    r"|(stands?|stood) (in|under)"
    r"|so many|of before|of now|of its own"
    r"|let go|(gives?|gave|given|giving) back"
    r"|mend(s|ed|ing)?|goes by|go(es|ing)? on|comes? to|(is|are) away|by itself|by themselves|a story"
    r")\b",
    re.IGNORECASE,
)


def sentences(text: str) -> Iterator[str]:
    """Every sentence of a page, of its headings, lists and tables too. Code counts as one word."""
    for token in PARSER.parse(text):
        if token.type == "inline":
            parts = [
                "`code`"
                if child.type == "code_inline"
                else " "
                if child.type.endswith("break")
                else child.content
                for child in token.children or []
                if child.type != "image"
            ]
            yield from END.split("".join(parts).strip())


def docstrings(module: Path) -> Iterator[str]:
    """Every docstring of a module, also those of attributes."""
    for node in ast.walk(ast.parse(module.read_text())):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield inspect.cleandoc(text)


def messages(module: Path) -> Iterator[str]:
    """Every other text of some words in a module: errors, log lines and help. A value counts as one word."""
    tree = ast.parse(module.read_text())
    parts = {
        part
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr | ast.JoinedStr)
        for part in ast.iter_child_nodes(node)
    }
    for node in {*ast.walk(tree)} - parts:
        values = node.values if isinstance(node, ast.JoinedStr) else [node]
        texts = [str(each.value) if isinstance(each, ast.Constant) else "`code`" for each in values]
        if isinstance(node, ast.JoinedStr | ast.Constant) and len("".join(texts).split()) >= FEW_WORDS:
            yield "".join(texts)


def sentences_of_docstring(text: str) -> Iterator[str]:
    """Every sentence of a docstring but for examples. A definition or an item of a list ends a sentence."""
    for block in re.split(r"\n\s*\n", text):
        if not block.lstrip(" ").startswith(">>>") and not block.startswith("    "):
            for item in ITEM.split(block):
                yield from END.split(" ".join(MARKED.sub("`code`", item).split()))


def broken_rules(sentence: str, most: int = MOST_WORDS_IN_CODE) -> list[str]:
    """The rules that a sentence breaks, in words."""
    found = []
    if CLAUSE.match(sentence) and not sentence.endswith("?"):
        found.append("its subject is a clause or a pronoun: begin with a noun")
    if len(sentence.split()) > most:
        found.append(f"it has {len(sentence.split())} words: split it")
    found += [f"{match[0]!r} has a plainer word" for match in REPLACED.finditer(sentence)]
    return found


@pytest.mark.parametrize("page", REWRITTEN, ids=name)
def test_a_page_is_in_plain_english(page: Path) -> None:
    found = [
        f"{sentence}\n  {rule}"
        for sentence in sentences(page.read_text())
        for rule in broken_rules(sentence, MOST_WORDS)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "part", sorted({*PACKAGE.glob("*.py"), *PACKAGE.glob("*/")}), ids=lambda part: part.stem
)
def test_docstrings_are_in_plain_english(part: Path) -> None:
    found = [
        f"{module.relative_to(ROOT)}: {sentence}\n  {rule}"
        for module in sorted(part.rglob("*.py") if part.is_dir() else [part])
        for text in docstrings(module)
        for sentence in sentences_of_docstring(text)
        for rule in broken_rules(sentence)
    ]
    assert not found, "\n".join(found)


def test_errors_and_help_are_in_plain_english() -> None:
    found = [
        f"{module.relative_to(ROOT)}: {sentence}\n  {rule}"
        for module in sorted(PACKAGE.rglob("*.py"))
        for text in messages(module)
        for sentence in sentences_of_docstring(text)
        for rule in broken_rules(sentence)
        if "words" not in rule  # an error is one sentence of a cause and a remedy
    ]
    assert not found, "\n".join(found)


TEMPLATES = PACKAGE / "service" / "templates"
TEMPLATE_CODE = re.compile(r"{%.*?%}|{#.*?#}|<pre>.*?</pre>", re.DOTALL)
VALUE = re.compile(r"{{.*?}}|<code>.*?</code>", re.DOTALL)


@pytest.mark.parametrize("template", sorted(TEMPLATES.glob("*.html")), ids=lambda file: file.stem)
def test_pages_of_the_dashboard_are_in_plain_english(template: Path) -> None:
    text = VALUE.sub("`code`", TEMPLATE_CODE.sub("\n", template.read_text()))
    found = [
        f"{sentence}\n  {rule}"
        for part in re.split(r"<[^>]*>|\n", text)
        for sentence in END.split(part.strip())
        for rule in broken_rules(sentence)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "sentence",
    [
        "What is not given stays.",
        "Who finds it taken asks again.",
        "Nobody waits for it.",
        "The lease is over.",
        "Each thread is told of its own.",
        "The queue goes on.",
        "The value is no number.",
        "A store that is away stops nothing.",
        "word " * (MOST_WORDS_IN_CODE + 1),
    ],
)
def test_a_sentence_in_another_idiom_is_found(sentence: str) -> None:
    assert broken_rules(sentence)


def test_questions_code_and_short_sentences_are_fine() -> None:
    text = "# What is a lease?\n\nCall `look_at(what_waits)`. It returns a list.\n\n| Who? | `who` |\n|---|---|\n"
    assert len(found := list(sentences(text))) == 5
    assert not any(map(broken_rules, found))


def test_examples_and_code_in_docstrings_are_no_sentences() -> None:
    text = "See ``look at(it)``.\n\n``first``\n    the first\n``last``\n    it\n\n    >>> a look\n"
    assert list(filter(None, sentences_of_docstring(text))) == ["See `code`.", "the first", "it"]
