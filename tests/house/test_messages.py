"""Every message that patchlight raises is matched by a test, and every skip has its line in tests/skips.md."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable
from functools import cache

import pytest

from patchlight.core import errors
from sources import SRC, TESTS, called, docstrings, python_files, texts, tree, where, words

KINDS = {n for n, v in vars(errors).items() if isinstance(v, type) and issubclass(v, errors.PatchlightError)}
RUN, LONG = 3, 12  # words in a row, characters in a quotation


def runs(chunks: Iterable[str]) -> set[str]:
    """All runs of three words; a chunk of two words is one run."""
    found = set()
    for chunk in map(words, chunks):
        found |= {" ".join(chunk[i : i + RUN]) for i in range(max(1, len(chunk) - RUN + 1)) if len(chunk) >= 2}
    return found


@cache
def messages() -> dict[str, list[str]]:
    """Where each error is made, and how it begins -> the constant parts of its text."""
    found = {}
    for path in python_files(SRC):
        for node in ast.walk(tree(path)):
            text = texts(node) if called(node).rpartition(".")[2] in KINDS else []
            if runs(text):  # else its text is made elsewhere
                found[f"{where(path, node)} {' ... '.join(text)}"] = text
    return found


@cache
def shared_runs() -> set[str]:
    seen = Counter(run for text in messages().values() for run in runs(text))
    return {run for run, times in seen.items() if times > 1}


@cache
def quotations() -> tuple[str, ...]:
    """The string literals of the tests, no docstrings, cut where a regular expression leaves something out or a value is."""
    found: set[str] = set()
    for path in python_files(TESTS):
        module = tree(path)
        documents = docstrings(module)
        for node in ast.walk(module):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
                found |= set(re.split(r"\.[*+]|\||\d+|'", node.value))
    return tuple(found)


@cache
def quoted_runs() -> set[str]:
    return runs(quotations())


def is_tested(text: list[str]) -> bool:
    """A test quotes three words in a row that no other message has, or a longer piece that no other message has."""
    if (runs(text) - shared_runs()) & quoted_runs():
        return True
    mine = joined(text)
    return any(sum(p in one for one in every_text()) == 1 for p in pieces() if p in mine)


def joined(text: list[str]) -> str:
    return " | ".join(" ".join(words(part)) for part in text)


@cache
def every_text() -> list[str]:
    return [joined(text) for text in messages().values()]


@cache
def pieces() -> set[str]:
    return {p for q in quotations() if len(p := " ".join(words(q))) >= LONG and " " in p}


def test_there_are_messages():
    assert len(messages()) > 40


@pytest.mark.parametrize("message", messages(), ids=lambda m: m.partition(" ")[0])
def test_every_message_is_matched_by_a_test(message):
    assert is_tested(messages()[message])


# -- skips ------------------------------------------------------------------------------------------------------------

SKIPS = ("pytest.skip", "pytest.mark.skip", "pytest.mark.skipif", "pytest.importorskip", "pytest.mark.xfail", "pytest.xfail")


@pytest.mark.parametrize("path", [p for p in python_files(TESTS) if p.parent.name != "house"], ids=where)
def test_every_skip_has_a_line_with_its_reason(path):
    listed = " ".join(words((TESTS / "skips.md").read_text(encoding="utf-8")))
    for node in ast.walk(tree(path)):
        if called(node) in SKIPS:
            reasons = [k.value for k in node.keywords if k.arg == "reason"] or node.args[:1]
            chunks = [" ".join(words(t)) for r in reasons for t in texts(r)]
            assert chunks, f"{where(path, node)}: no reason"
            assert max(chunks, key=len) in listed, f"{where(path, node)}: {chunks}"
