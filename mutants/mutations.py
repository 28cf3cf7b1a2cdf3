"""The mistakes that are made, and where none is made.

A comparison, a condition, a sum, a constant, a returned value, an `except` is another one, or a statement is
left out. Left alone are what types and people read: annotations, decorators, base classes, docstrings, log
lines, messages of errors.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
}
SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any"}
TYPES = ("TypeVar", "ParamSpec", "cast", "NewType")
SHOWN = 70  # characters of the code in the name of a mutant


@dataclass(frozen=True)
class Mutant:
    """One mistake.

    :param name: what it is, the same as long as the code around it is: function, before, after
    :param lines: of the statement that it is in
    :param number: which one of its module
    """

    module: str
    name: str
    lines: range
    number: int

    @property
    def line(self) -> int:
        """Where it is."""
        return self.lines.start


class _Mutations(ast.NodeTransformer):
    """Goes through a module; makes the wanted mistake, or none, and lists all on its way."""

    def __init__(self, wanted: int = -1) -> None:
        self.found: list[tuple[str, range]] = []
        self._statement = range(0)
        self._wanted = wanted
        self._where: list[str] = []
        self._is_message = False

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            self._statement = _lines(node)
        for new in self._replacements(node):
            self.found.append((f"{'.'.join(self._where)}: {_show(node)} -> {_show(new)}", self._statement))
            if len(self.found) - 1 == self._wanted:
                return ast.copy_location(new, node)
        return super().visit(node)

    # -- what is left alone

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        self._where.append(node.name)
        node.args.defaults = [self.visit(each) for each in node.args.defaults]
        node.args.kw_defaults = [each and self.visit(each) for each in node.args.kw_defaults]
        node.body = self._body(node.body)
        self._where.pop()
        return node

    visit_AsyncFunctionDef: Any = visit_FunctionDef  # noqa: N815 - so says ast

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        self._where.append(node.name)
        node.body = self._body(node.body)
        self._where.pop()
        return node

    def visit_Module(self, node: ast.Module) -> Any:
        node.body = self._body(node.body)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        node.value = node.value and self.visit(node.value)
        return node

    def visit_If(self, node: ast.If) -> Any:
        return node if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> Any:
        return node

    def visit_Assign(self, node: ast.Assign) -> Any:
        return node if ast.unparse(node.targets[0]) == "__all__" else self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> Any:
        return self._message(node)

    def visit_Call(self, node: ast.Call) -> Any:
        called = ast.unparse(node.func)
        if _is_log(node) or called in TYPES or called == "logging.getLogger":
            return node
        return self._message(node) if called.endswith("Error") else self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:
        return node

    def _message(self, node: ast.AST) -> Any:
        before, self._is_message = self._is_message, True
        try:
            return self.generic_visit(node)
        finally:
            self._is_message = before

    def _body(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return [each if _is_docstring(each) else self.visit(each) for each in body]

    # -- what is done

    def _replacements(self, node: ast.AST) -> Iterator[ast.AST]:
        match node:
            case ast.Compare(ops=operators):
                for at, comparison in enumerate(operators):
                    compared = copy.deepcopy(node)
                    compared.ops[at] = COMPARISONS[type(comparison)]()
                    yield compared
            case ast.BoolOp(op=boolean):
                other = ast.Or() if isinstance(boolean, ast.And) else ast.And()
                yield ast.BoolOp(other, node.values)
            case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
                yield operand
            case ast.If() | ast.While() | ast.IfExp() if not isinstance(node.test, ast.Compare | ast.UnaryOp):
                if ast.unparse(node.test) not in ("TYPE_CHECKING", "True"):
                    negated = copy.copy(node)
                    negated.test = ast.UnaryOp(ast.Not(), node.test)
                    yield negated
            case ast.BinOp(op=operator) if type(operator) in OPERATORS and not self._is_message:
                yield ast.BinOp(node.left, OPERATORS[type(operator)](), node.right)
            case ast.AugAssign(op=operator) if type(operator) in OPERATORS:
                yield ast.AugAssign(node.target, OPERATORS[type(operator)](), node.value)
            case ast.Constant() | ast.JoinedStr():
                yield from self._other_constants(node)
            case ast.Call(func=ast.Name(id=name)) if name in SWAPPED:
                yield ast.Call(ast.Name(SWAPPED[name], ast.Load()), node.args, node.keywords)
            case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
                yield ast.Return(ast.Constant(None))
            case ast.ExceptHandler(type=kind) if kind is not None:
                yield ast.ExceptHandler(ast.Tuple([], ast.Load()), node.name, node.body)
            case ast.Break():
                yield ast.Continue()
            case ast.Continue():
                yield ast.Break()
            case ast.Raise() | ast.Delete():
                yield ast.Pass()
            case ast.Expr(value=ast.Call() | ast.Await() as call) if not _is_log(call):
                yield ast.Pass()
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield ast.Pass()

    def _other_constants(self, node: ast.Constant | ast.JoinedStr) -> Iterator[ast.Constant]:
        value: Any = node.value if isinstance(node, ast.Constant) else "…"
        if isinstance(value, bool):
            yield ast.Constant(not value)
        elif isinstance(value, int | float):
            yield ast.Constant(value + 1)
        elif isinstance(value, str) and value and not self._is_message:
            yield ast.Constant(value + value[:1] + value[-1:])
        elif isinstance(value, bytes):
            yield ast.Constant(value + b"?")


def mutants_of(module: str, source: str) -> list[Mutant]:
    """Return all mutants of a module."""
    mutations = _Mutations()
    mutations.visit(ast.parse(source))
    seen: Counter[str] = Counter()
    mutants = []
    for number, (name, lines) in enumerate(mutations.found):
        seen[name] += 1
        again = f" #{seen[name]}" if seen[name] > 1 else ""
        mutants.append(Mutant(module, name + again, lines, number))
    return mutants


def mutated(source: str, mutant: Mutant) -> ast.Module:
    """Return the module with one mistake in it."""
    tree: ast.Module = _Mutations(mutant.number).visit(ast.parse(source))
    return ast.fix_missing_locations(tree)


def _lines(node: ast.stmt | ast.ExceptHandler | ast.match_case) -> range:
    """Return the lines of a statement, without those of the block that it may have."""
    if isinstance(node, ast.match_case):
        return range(node.pattern.lineno, node.body[0].lineno)
    end = node.end_lineno or node.lineno
    if body := getattr(node, "body", None):
        end = max(node.lineno, body[0].lineno - 1)
    return range(node.lineno, end + 1)


def _show(node: ast.AST) -> str:
    if isinstance(node, ast.If | ast.While):
        node = node.test
    text = f"except {ast.unparse(node.type)}" if isinstance(node, ast.ExceptHandler) else ast.unparse(node)  # type: ignore[arg-type] # one without a type is not replaced
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def _is_log(node: ast.AST) -> bool:
    node = node.value if isinstance(node, ast.Await) else node
    return isinstance(node, ast.Call) and ast.unparse(node.func).startswith(
        ("log.", "self.log.", "self._log.")
    )


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
