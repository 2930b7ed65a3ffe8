"""What a type of the asynchronous face is in the synchronous one, and how a value gets across.

    Held                     Held           Held(self._portal, it)
    Held | None              Held | None    None if it is None else ...
    Holding[Term]            Block[Term]    Block(self._portal, it, lambda it: Term(self._portal, it))
    AsyncGenerator[X, None]  Stream[X]      Stream(self._portal, it, same)
    Callable[[X], Awaitable[Y]], given      Callable[[X], Y]: run in the thread of the caller

Whatever is not known to do anything on the loop passes as it is.
"""

from __future__ import annotations

import ast
import asyncio
import collections.abc
import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar, get_args, get_origin

from quoracy.sync.reading import Module, entered_of, is_live, is_only_a_block

__all__ = ["CannotTranslate", "Crossing", "Names", "given_type", "result_type"]

_ITERATORS = {
    collections.abc.AsyncGenerator,
    collections.abc.AsyncIterator,
    collections.abc.AsyncIterable,
}
_AWAITABLES = {collections.abc.Awaitable, collections.abc.Coroutine}
_SEQUENCES = {
    tuple: "tuple({})",
    list: "[{}]",
    collections.abc.Sequence: "[{}]",
}


class CannotTranslate(Exception):
    """A type that has no synchronous counterpart known here."""


@dataclass(frozen=True)
class Crossing:
    """A type on the other side, and the expression that takes a value (`it`) there; None: as it is.

    asks: it is a plain function with a result, which the loop cannot wait for.
    awaited: it has to be awaited before it crosses.
    """

    text: str
    take: str | None = None
    asks: bool = False
    awaited: bool = False

    def taking(self, expression: str) -> str:
        """The expression with another in the place of `it`."""
        if self.take is None:
            return expression
        return _Replace(expression).of(self.take)


class _Replace(ast.NodeTransformer):
    def __init__(self, expression: str) -> None:
        self._with = ast.parse(expression, mode="eval").body

    def of(self, text: str) -> str:
        return ast.unparse(self.visit(ast.parse(text, mode="eval")))

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        return node  # its `it` is its own

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._with if node.id == "it" else node


@dataclass
class Names:
    """The names that one generated module uses, and the classes whose faces it needs."""

    imports: set[tuple[str, str]] = field(default_factory=set)
    variables: dict[str, TypeVar] = field(default_factory=dict)
    faces: set[type] = field(default_factory=set)

    def use(self, module: str, name: str) -> str:
        self.imports.add((module, name))
        return name


@dataclass(frozen=True)
class _Scope:
    """Where an annotation stands: what its names mean."""

    module: Module
    names: Names
    given: dict[str, object]

    def value(self, node: ast.expr) -> object:
        """What a name stands for; None if it is no name."""
        match node:
            case ast.Name(id=name):
                return self.given.get(name) or self.module.value(name)
            case ast.Attribute(value=owner, attr=attr):
                return getattr(self.value(owner), attr, None)
        return None


def result_type(
    annotation: ast.expr | None, module: Module, names: Names, given: dict[str, object]
) -> Crossing:
    """What comes from the loop."""
    if annotation is None:
        raise CannotTranslate("there is no annotation")
    return _result(annotation, _Scope(module, names, given))


def given_type(
    annotation: ast.expr | None,
    module: Module,
    names: Names,
    given: dict[str, object],
    *,
    is_awaited: bool,
) -> Crossing:
    """What is given to the loop.  is_awaited: by a coroutine, which the caller waits for."""
    if annotation is None:
        raise CannotTranslate("there is no annotation")
    return _given(annotation, _Scope(module, names, given), is_awaited)


# -- from the loop ---------------------------------------------------------------------------


def _result(node: ast.expr, scope: _Scope) -> Crossing:
    match node:
        case ast.Constant(value=str(text)):
            return _result(ast.parse(text, mode="eval").body, scope)
        case ast.Constant():
            return Crossing(ast.unparse(node))
        case ast.BinOp(op=ast.BitOr()):
            return _union([_result(each, scope) for each in _alternatives(node)])
        case ast.Subscript(value=base, slice=arguments):
            return _generic(base, _elements(arguments), scope)
        case ast.List(elts=elements):
            return Crossing(f"[{', '.join(_result(each, scope).text for each in elements)}]")
        case ast.Name() | ast.Attribute():
            return _named(node, scope)
    raise CannotTranslate(ast.unparse(node))


def _named(node: ast.Name | ast.Attribute, scope: _Scope) -> Crossing:
    value = scope.value(node)
    if isinstance(node, ast.Name) and node.id in scope.given:
        return _runtime(value, {}, scope)
    if value is asyncio.Event:
        name = scope.names.use("quoracy.sync.blocks", "Event")
        return Crossing(name, f"{name}(self._portal, it)")
    if value is Self:
        return Crossing(scope.names.use("typing", "Self"), "self")
    if isinstance(value, type):
        if is_live(value):
            scope.names.faces.add(value)
            return Crossing(value.__name__, f"{value.__name__}(self._portal, it)")
        if value.__module__.startswith("asyncio."):
            raise CannotTranslate(ast.unparse(node))
    return Crossing(_spelled(node, value, scope))


def _spelled(node: ast.expr, value: object, scope: _Scope) -> str:
    """A plain type, with what it takes to name it."""
    if isinstance(value, TypeVar):
        scope.names.variables[value.__name__] = value
        return value.__name__
    if isinstance(node, ast.Attribute):
        root = ast.unparse(node).partition(".")[0]
        origin = scope.module.origin(root)
        assert origin is not None
        scope.names.use(*origin)
        return ast.unparse(node)
    assert isinstance(node, ast.Name)
    origin = scope.module.origin(node.id)
    if origin is not None:
        scope.names.use(*origin)
    return node.id


def _union(parts: list[Crossing]) -> Crossing:
    texts = list(dict.fromkeys(part.text for part in parts))
    takes = {part.take for part in parts if part.text != "None"}
    if takes == {None}:
        return Crossing(" | ".join(texts))
    if len(takes) > 1:
        raise CannotTranslate(" | ".join(texts))
    (take,) = takes
    if "None" in texts:
        return Crossing(" | ".join(texts), f"None if it is None else {take}")
    return Crossing(" | ".join(texts), take)


def _generic(base: ast.expr, arguments: list[ast.expr], scope: _Scope) -> Crossing:
    kind = scope.value(base)
    if kind in _ITERATORS:
        item = _result(arguments[0], scope)
        name = scope.names.use("quoracy.sync.blocks", "Stream")
        return Crossing(f"{name}[{item.text}]", f"{name}(self._portal, it, {_function(item, scope)})")
    is_block = isinstance(kind, type) and is_live(kind) and is_only_a_block(kind)
    if is_block or kind is contextlib.AbstractAsyncContextManager:
        held = _entered(kind, arguments, scope) if is_block else _result(arguments[0], scope)
        name = scope.names.use("quoracy.sync.blocks", "Block")
        return Crossing(f"{name}[{held.text}]", f"{name}(self._portal, it, {_function(held, scope)})")
    if kind in _AWAITABLES:
        result = _result(arguments[-1], scope)
        return Crossing(result.text, result.take, awaited=True)
    if kind is collections.abc.Callable:
        return _returned_function(base, arguments, scope)
    if str(kind) in {"typing.Literal", "typing.Unpack"}:
        for each in arguments:
            if isinstance(each, ast.Name):
                _named(each, scope)
        return Crossing(f"{_named_text(base, scope)}[{', '.join(map(ast.unparse, arguments))}]")
    inner = [_result(each, scope) for each in arguments]
    text = f"{_named_text(base, scope)}[{', '.join(each.text for each in inner)}]"
    if isinstance(kind, type) and is_live(kind):
        if any(each.take is not None for each in inner):
            raise CannotTranslate(text)
        return Crossing(text, f"{kind.__name__}(self._portal, it)")
    take = inner[0].take if inner else None
    if take is None and any(each.take for each in inner):
        raise CannotTranslate(text)
    if take is None:
        return Crossing(text)
    if not isinstance(kind, type) or kind not in _SEQUENCES:
        raise CannotTranslate(text)
    return Crossing(text, _SEQUENCES[kind].format(f"{inner[0].taking('each')} for each in it"))


def _entered(kind: object, arguments: list[ast.expr], scope: _Scope) -> Crossing:
    """What a block of a kind gives: what its base was given, with its own arguments put in."""
    assert isinstance(kind, type)
    gives, variables = entered_of(kind)
    crossed = [_result(each, scope) for each in arguments]
    if any(each.take is not None for each in crossed):
        if gives not in variables:
            raise CannotTranslate(kind.__name__)
        return crossed[variables.index(gives)]
    texts = {each.__name__: given.text for each, given in zip(variables, crossed, strict=True)}
    return _runtime(gives, texts, scope)


def _runtime(value: object, texts: dict[str, str], scope: _Scope) -> Crossing:
    """A type as an object, not as it is written."""
    if isinstance(value, TypeVar):
        if value.__name__ in texts:
            return Crossing(texts[value.__name__])
        scope.names.variables[value.__name__] = value
        return Crossing(value.__name__)
    kind = get_origin(value) or value
    if not isinstance(kind, type):
        raise CannotTranslate(str(value))
    inner = [_runtime(each, texts, scope) for each in get_args(value)]
    text = kind.__name__ + (f"[{', '.join(each.text for each in inner)}]" if inner else "")
    if is_live(kind):
        scope.names.faces.add(kind)
        return Crossing(text, f"{kind.__name__}(self._portal, it)")
    if kind.__module__ != "builtins":
        scope.names.use(kind.__module__, kind.__name__)
    return Crossing(text)


def _named_text(base: ast.expr, scope: _Scope) -> str:
    if not isinstance(base, ast.Name | ast.Attribute):
        raise CannotTranslate(ast.unparse(base))
    return _named(base, scope).text


def _function(crossing: Crossing, scope: _Scope) -> str:
    if crossing.take is None:
        return scope.names.use("quoracy.sync.blocks", "same")
    return f"lambda it: {crossing.take}"


def _returned_function(base: ast.expr, arguments: list[ast.expr], scope: _Scope) -> Crossing:
    """A function that takes nothing: to be called on the loop, or a coroutine function to be run."""
    parameters, returned = arguments
    if not isinstance(parameters, ast.List) or parameters.elts:
        raise CannotTranslate(ast.unparse(base))
    result = _result(returned, scope)
    if result.take is not None:
        raise CannotTranslate(ast.unparse(returned))
    callable_ = _named_text(base, scope)
    way = "running" if result.awaited else "ending"
    if way == "ending" and result.text != "None":
        raise CannotTranslate(ast.unparse(returned))
    return Crossing(f"{callable_}[[], {result.text}]", f"self._portal.{way}(it)")


def _alternatives(node: ast.expr) -> Iterable[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from _alternatives(node.left)
        yield from _alternatives(node.right)
    else:
        yield node


def _elements(node: ast.expr) -> list[ast.expr]:
    return list(node.elts) if isinstance(node, ast.Tuple) else [node]


# -- to the loop -----------------------------------------------------------------------------


def _given(node: ast.expr, scope: _Scope, is_awaited: bool) -> Crossing:
    alternatives = list(_alternatives(node))
    functions = [each for each in alternatives if _is_callable(each, scope)]
    if functions:
        return _function_given(alternatives, functions, scope, is_awaited)
    crossed = [_result(each, scope) for each in alternatives]
    live = [each for each in crossed if each.take is not None]
    text = " | ".join(each.text for each in crossed)
    if not live:
        return Crossing(text)
    if len(live) > 1 or live[0].take != f"{live[0].text.partition('[')[0]}(self._portal, it)":
        raise CannotTranslate(ast.unparse(node))
    if len(crossed) == 1:
        return Crossing(text, "it._it")
    return Crossing(text, f"it._it if isinstance(it, {live[0].text.partition('[')[0]}) else it")


def _is_callable(node: ast.expr, scope: _Scope) -> bool:
    return isinstance(node, ast.Subscript) and scope.value(node.value) is collections.abc.Callable


def _function_given(
    alternatives: list[ast.expr], functions: list[ast.expr], scope: _Scope, is_awaited: bool
) -> Crossing:
    read = [_function_type(each, scope) for each in functions]
    texts = [each.text for each in read]
    rest = [each for each in alternatives if each not in functions]
    texts += [_result(each, scope).text for each in rest]
    wraps = max((each.wraps for each in read), key=len)
    needs_lambdas = any(each is not None for each in wraps)
    arguments = "".join(f", {each or 'same'}" for each in wraps) if needs_lambdas else ""
    if needs_lambdas and None in wraps:
        scope.names.use("quoracy.sync.blocks", "same")
    if any(each.is_awaitable for each in read):
        take, asks = f"self._portal.errand(it{arguments})", False
    elif all(each.returns in {"None", "object"} for each in read):
        take, asks = f"self._portal.listener(it{arguments})", False
    elif is_awaited and not needs_lambdas:
        take, asks = "it", True
    else:
        raise CannotTranslate(" | ".join(texts))
    if rest:
        if [ast.unparse(each) for each in rest] != ["None"] or asks:
            raise CannotTranslate(" | ".join(texts))
        take = f"None if it is None else {take}"
    return Crossing(" | ".join(texts), take, asks)


@dataclass(frozen=True)
class _FunctionType:
    text: str
    returns: str
    is_awaitable: bool
    wraps: tuple[str | None, ...]


def _function_type(node: ast.expr, scope: _Scope) -> _FunctionType:
    assert isinstance(node, ast.Subscript)
    parameters, returned = _elements(node.slice)
    if not isinstance(parameters, ast.List):
        raise CannotTranslate(ast.unparse(node))
    taken = [_result(each, scope) for each in parameters.elts]
    results = [_result(each, scope) for each in _alternatives(returned)]
    returns = " | ".join(dict.fromkeys(each.text for each in results))
    is_awaitable = any(each.awaited for each in results)
    if any(each.take is not None for each in results):
        raise CannotTranslate(ast.unparse(node))
    shown = "object" if returns == "None" and not is_awaitable else returns
    text = f"{_named_text(node.value, scope)}[[{', '.join(each.text for each in taken)}], {shown}]"
    wraps = tuple(None if each.take is None else f"lambda it: {each.take}" for each in taken)
    return _FunctionType(text, returns, is_awaitable, wraps)


def variables_in(values: Iterable[Any], names: Names) -> list[str]:
    """The names of type variables, which the module then declares."""
    found = []
    for value in values:
        names.variables[value.__name__] = value
        found.append(value.__name__)
    return found
