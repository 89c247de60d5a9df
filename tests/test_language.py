"""Plain technical English in names, docstrings, comments, messages and help: the ban list of CONTRIBUTING.md.

`python -m tests.test_language [FOLDER ...]` lists all violations in some folders.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("nsys_pp", "recipes", "fixtures")

# Identifiers that several functions share need a noun of the glossary.
BANNED_NAMES = frozenset(
    [
        "told",
        "given",
        "found",
        "known",
        "one",
        "ones",
        "place",
        "places",
        "made",
        "said",
        "says",
        "some",
        "every",
        "which",
        "whose",
        "here",
        "there",
        "who",
        "what",
        "how",
        "much",
        "many",
        "beside",
        "besides",
        "lonely",
        "doubt",
        "doubts",
        "oddity",
        "oddities",
        "likes",
    ]
)
# Verbs that mean nothing in particular: return, report, format, move, assign, read, skip, drop, keep do.
BANNED_VERBS = (
    "say",
    "says",
    "tell",
    "tells",
    "give",
    "gives",
    "let",
    "lets",
    "put",
    "puts",
    "take",
    "takes",
)
BANNED_FIRST_WORDS = ("what", "which", "whose", "how", "when", "where", "who", "whoever", "whatever")
# Clauses in place of a noun; a relative clause after a comma or a preposition describes one.
BANNED_CLAUSES = re.compile(
    r"\b(what|whom|whoever|whatever|whichever|that of|those of|those that|all that|so many|so much)\b"
    r"|(?<!,)(?<!\b(?:in|at|by|on))(?<!\b(?:for|via))(?<!\b(?:from|with))(?<!\balong)(?<!\bunder) which\b",
    re.IGNORECASE,
)
# Words of a story, in docstrings and comments.
BANNED_WORDS = re.compile(
    r"\b(tells?|told|says?|said|besides?|whoever|whatever|nobody|by heart|anew|likes|stands?(?! for\b| in for\b))\b",
    re.IGNORECASE,
)
# A refusal names the invalid value and the expected one.
BANNED_REFUSAL = re.compile(r"(?<!there )\b(is|are) no (?!\w+er\b|more\b|such\b)", re.IGNORECASE)
VERBS = re.compile(rf"^({'|'.join(BANNED_VERBS)})\b", re.IGNORECASE)
FIRST_WORDS = re.compile(rf"^({'|'.join(BANNED_FIRST_WORDS)})\b", re.IGNORECASE)


def modules(*folders: str) -> list[Path]:
    """List the Python modules below some folders of the repository."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def without_code(text: str) -> str:
    """Remove code in backticks: it may hold any word."""
    return re.sub(r"`[^`]*`", "`x`", text)


def violations_of_name(name: str) -> Iterator[str]:
    """List the rules that an identifier shared between functions breaks."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_").split("_")
    if "_".join(words) in BANNED_NAMES:
        yield f"name `{name}`"
    if words[0] in BANNED_VERBS and len(words) > 1:
        yield f"verb of `{name}`"


def violations_of_line(line: str) -> Iterator[str]:
    """List the rules that the first line of a docstring or a help text breaks."""
    text = without_code(line)
    if FIRST_WORDS.search(text) or VERBS.search(text):
        yield f"first word: {line}"
    elif clause := BANNED_CLAUSES.search(text):
        yield f"`{clause[0]}`: {line}"


def violations_of_text(text: str) -> Iterator[str]:
    """List the banned words of a docstring or a comment, quotations and code left out."""
    for word in BANNED_WORDS.finditer(without_code(re.sub(r'"[^"]*"', '""', text))):
        yield f"word `{word[0]}`: {text[max(0, word.start() - 40) : word.end() + 30]!r}"


def comments(text: str) -> Iterator[tuple[int, str]]:
    """List the comments of a module, each with its line."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """List the texts of a module but docstrings, each with its line; values in f-strings are "x"."""
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            parts = (part.value if isinstance(part, ast.Constant) else "x" for part in node.values)
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.lineno, node.value


def shared_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """List the names in a module that several functions share: of modules, classes, functions, parameters, attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        if isinstance(node, ast.ClassDef):
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    yield statement.lineno, statement.target.id
        if isinstance(node, ast.arg):
            yield node.lineno, node.arg
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        yield from ((statement.lineno, target.id) for target in targets if isinstance(target, ast.Name))


def violations(path: Path) -> Iterator[str]:
    """List all violations in a module, each with its line."""
    text = path.read_text()
    tree = ast.parse(text)
    for rule in violations_of_name(path.stem):
        yield f"{path.relative_to(ROOT)}: {rule}"
    for line, name in shared_names(tree):
        for rule in violations_of_name(name):
            yield f"{path.relative_to(ROOT)}:{line}: {rule}"
    for line, comment in comments(text):
        yield from (f"{path.relative_to(ROOT)}:{line}: {rule}" for rule in violations_of_text(comment))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (doc := ast.get_docstring(node)):
            for rule in (*violations_of_line(doc.splitlines()[0]), *violations_of_text(doc)):
                yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}: {rule}"
    for line, message in messages(tree):
        if refusal := BANNED_REFUSAL.search(without_code(message)):
            yield f"{path.relative_to(ROOT)}:{line}: `{refusal[0].strip()}`: {message[:100]!r}"


def commands(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """List a command and all below it by the words that call it."""
    yield " ".join(words), command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from commands(inner, (*words, name))


PACKAGES = sorted({str(path.parent.relative_to(ROOT)) for path in modules(*FOLDERS)})


@pytest.mark.parametrize("package", PACKAGES)
def test_code_is_plain_technical_english(package: str) -> None:
    assert not [rule for path in sorted((ROOT / package).glob("*.py")) for rule in violations(path)]


def test_help_is_plain_technical_english() -> None:
    from nsys_pp.cli import main

    texts = [
        (f"{name} {parameter.opts[0]}", parameter.help or "")
        for name, command in commands(main)
        for parameter in command.params
        if isinstance(parameter, click.Option)
    ]
    texts += [(name, (command.help or "").splitlines()[0]) for name, command in commands(main)]
    assert len(texts) > 50
    assert not [(name, rule) for name, text in texts for rule in violations_of_line(text.split(". ")[0])]


def test_the_ban_list_finds_the_dialect() -> None:
    assert list(violations_of_name("tell_sums")) == ["verb of `tell_sums`"]
    assert list(violations_of_name("told")) == ["name `told`"]
    assert not list(violations_of_name("letters"))
    assert list(violations_of_line("Which call launched each operation."))
    assert list(violations_of_line("Return the rows of those that wait."))
    assert list(violations_of_line("Return the row and which of them it has."))
    assert not list(violations_of_line("Return the mask of rows with `which` as kind."))
    assert not list(violations_of_line("Return the rows whose step, in which they start, is known."))
    assert list(violations_of_text("# stands beside the table")) == [
        "word `stands`: '# stands beside the table'",
        "word `beside`: '# stands beside the table'",
    ]
    assert not list(violations_of_text('# `told` stands for "said" in a standard'))
    assert BANNED_REFUSAL.search("`x` is no gate")
    assert not BANNED_REFUSAL.search("there is no machine `x`")


if __name__ == "__main__":
    for module in modules(*(sys.argv[1:] or FOLDERS)):
        print(*violations(module), sep="\n", end="\n" * bool(list(violations(module))))
