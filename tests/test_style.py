"""The rules of the house style that no linter checks, read from the syntax tree."""

import ast
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LIBRARY = sorted((ROOT / "dressage").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
SCRIPTS = sorted(
    path
    for folder in ("benchmarks", "docs", "examples")
    for path in (ROOT / folder).rglob("*.py")
    if ".peers" not in path.parts
)

MAX_FILE_LINES = 500
MAX_STATEMENTS = 40
MAX_NESTED_LINES = 10
VAGUE_NAMES = {"common", "data", "helpers", "manager", "misc", "util", "utils"}
OPEN_ENDS = ("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")
# The signatures that may take any keyword; each is a promise of the design, or refuses what it takes by name.
OPEN_KEYWORDS = {
    ("dressage/envs/__init__.py", "make"),
    ("dressage/envs/tasks.py", "make"),
    ("dressage/policy/rsl_rl_policy/rsl_rl_policy.py", "construct_network"),
    ("dressage/ppo/records.py", "__new__"),
    ("dressage/rl/algorithm.py", "__new__"),
}
LAZY_NAMES = {"dressage/__init__.py"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def functions_of(tree: ast.AST) -> list[Function]:
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def statements_of(function: Function) -> int:
    """Count the statements of a function's body, the docstring and nested bodies included."""
    return sum(isinstance(node, ast.stmt) for node in ast.walk(function)) - 1


def nested_functions_of(tree: ast.AST) -> Iterator[Function]:
    for function in functions_of(tree):
        inner = [node for node in functions_of(function) if node is not function]
        classes = [node for node in ast.walk(function) if isinstance(node, ast.ClassDef)]
        methods = {id(method) for owner in classes for method in functions_of(owner)}
        yield from (node for node in inner if id(node) not in methods)


def is_silent(handler: ast.ExceptHandler) -> bool:
    """Whether an except clause does nothing at all."""
    return all(
        isinstance(statement, ast.Pass | ast.Continue)
        or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for statement in handler.body
    )


def claims_something(test: Function) -> bool:
    """Whether a test holds an assertion, an expected error, or a call of a checking helper."""
    if any(isinstance(node, ast.Assert) for node in ast.walk(test)):
        return True
    called = [node.func for node in ast.walk(test) if isinstance(node, ast.Call)]
    names = [func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in called]
    return any(name.startswith(("assert", "check", "expect", "raises", "warns")) for name in names)


@pytest.mark.parametrize("path", [*LIBRARY, *TESTS, *SCRIPTS], ids=name_of)
def test_a_file_has_at_most_500_lines(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_FILE_LINES


@pytest.mark.parametrize("path", [*LIBRARY, *SCRIPTS], ids=name_of)
def test_a_function_has_at_most_40_statements(path):
    long = [node.name for node in functions_of(tree_of(path)) if statements_of(node) > MAX_STATEMENTS]
    assert long == []


@pytest.mark.parametrize("path", LIBRARY, ids=name_of)
def test_a_nested_function_has_at_most_10_lines(path):
    nested = nested_functions_of(tree_of(path))
    long = [node.name for node in nested if node.end_lineno - node.lineno + 1 > MAX_NESTED_LINES]
    assert long == []


@pytest.mark.parametrize("path", LIBRARY, ids=name_of)
def test_no_function_takes_any_keyword(path):
    takers = [node.name for node in functions_of(tree_of(path)) if node.args.kwarg is not None]
    assert [name for name in takers if (name_of(path), name) not in OPEN_KEYWORDS] == []


@pytest.mark.parametrize("path", LIBRARY, ids=name_of)
def test_no_attribute_is_made_up_when_it_is_read(path):
    hooks = [f.name for f in functions_of(tree_of(path)) if f.name in ("__getattr__", "__getattribute__")]
    assert hooks == [] or name_of(path) in LAZY_NAMES


@pytest.mark.parametrize("path", [*LIBRARY, *TESTS, *SCRIPTS], ids=name_of)
def test_no_except_clause_is_silent(path):
    handlers = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.ExceptHandler)]
    assert [handler.lineno for handler in handlers if is_silent(handler)] == []


@pytest.mark.parametrize("path", [*LIBRARY, *TESTS, *SCRIPTS], ids=name_of)
def test_no_comment_puts_work_off(path):
    with path.open("rb") as source:
        comments = [token for token in tokenize.tokenize(source.readline) if token.type == tokenize.COMMENT]
    assert [token.string for token in comments if any(word in token.string for word in OPEN_ENDS)] == []


@pytest.mark.parametrize("path", LIBRARY, ids=name_of)
def test_a_module_has_a_name_that_says_what_it_owns(path):
    assert not VAGUE_NAMES & set(path.relative_to(ROOT).with_suffix("").parts)


@pytest.mark.parametrize("path", TESTS, ids=name_of)
def test_every_test_claims_something(path):
    tests = [node for node in functions_of(tree_of(path)) if node.name.startswith("test_")]
    assert [test.name for test in tests if not claims_something(test)] == []


def test_test_files_have_names_of_their_own():
    names = [path.name for path in TESTS if path.name.startswith("test_")]
    assert sorted(names) == sorted(set(names))


def test_every_folder_of_the_library_is_a_package():
    folders = {path.parent for path in LIBRARY}
    assert [name_of(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_the_rules_see_what_they_forbid():
    bad = ast.parse(
        "def outer(**options):\n"
        "    def inner():\n" + "        x = 1\n" * 10 + "    try:\n        inner()\n"
        "    except ValueError:\n        pass\n" + "    y = 2\n" * 30
    )
    outer = functions_of(bad)[0]
    assert statements_of(outer) == 44  # def, 10 in it, try, call, pass, 30
    assert [node.end_lineno - node.lineno + 1 for node in nested_functions_of(bad)] == [11]
    assert outer.args.kwarg.arg == "options"
    assert [is_silent(node) for node in ast.walk(bad) if isinstance(node, ast.ExceptHandler)] == [True]
    assert not claims_something(outer)
