"""What a type of the asynchronous classes is in the blocking ones, and how a value gets across.

    Held                     Held           Held(self._portal, it)
    Held | None              Held | None    None if it is None else ...
    Holding[Term]            Block[Term]    Block(self._portal, it, lambda it: Term(self._portal, it))
    AsyncGenerator[X, None]  Stream[X]      Stream(self._portal, it, same)
    Callable[[X], Awaitable[Y]], given      Callable[[X], Y]: run in the thread of the caller

A class is proxied if it does something on the loop.  Any other value passes as it is.
"""

from __future__ import annotations

import ast
import collections.abc
import contextlib
import dataclasses
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Self, TypeVar

import msgspec

from quoracy.threads.generator.source import Scope, given_to, parameters_of

__all__ = ["CannotTranslate", "Crossing", "Names", "given", "is_block", "is_proxied", "result"]

PROXIES = "quoracy.threads.proxies"
_ITERATORS = {
    collections.abc.AsyncGenerator,
    collections.abc.AsyncIterator,
    collections.abc.AsyncIterable,
}
_AWAITABLES = {collections.abc.Awaitable, collections.abc.Coroutine}


class CannotTranslate(Exception):
    """A type that has no blocking counterpart known here."""


@dataclass(frozen=True)
class Crossing:
    """A type on the other side, and how a value gets there.

    take: the expression that takes a value, written as `{}`, across; None: it passes as it is.
    is_optional: None passes as it is, whatever `take` is.
    is_awaited: it has to be awaited before it crosses.
    is_asked: it is a plain function with a result, which the loop cannot wait for.
    """

    text: str
    take: str | None = None
    is_optional: bool = False
    is_awaited: bool = False
    is_asked: bool = False

    def taking(self, expression: str) -> str:
        """The expression that takes the value of another one across."""
        if self.take is None:
            return expression
        taken = self.take.format(expression)
        return f"None if {expression} is None else {taken}" if self.is_optional else taken

    @property
    def function(self) -> str:
        """A function that takes its argument across."""
        return "same" if self.take is None else f"lambda it: {self.taking('it')}"


@dataclass
class Names:
    """The names that one generated module uses."""

    imports: set[tuple[str, str]] = field(default_factory=set)
    variables: set[str] = field(default_factory=set)
    proxied: set[type] = field(default_factory=set)

    def use(self, module: str, name: str) -> str:
        """A name to be imported from a module."""
        self.imports.add((module, name))
        return name

    def spell(self, node: ast.expr, scope: Scope) -> str:
        """An expression as it is written, with all that its names need."""
        for each in ast.walk(node):
            if isinstance(each, ast.Name):
                value = scope.module.value(each)
                origin = scope.module.origin(each.id)
                if isinstance(value, TypeVar):
                    self.variables.add(each.id)
                elif is_proxied(value):
                    self.proxied.add(value)
                elif origin is not None:
                    self.use(*origin)
        return ast.unparse(node)


def is_proxied(cls: Any) -> bool:
    """Whether a class needs a proxy: it does something.  Plain values pass as they are."""
    homes = ("quoracy.blocks", "quoracy.client.", "quoracy.redlock.", "quoracy.store.api")
    if not isinstance(cls, type) or not cls.__module__.startswith(homes):
        return False
    if issubclass(cls, Enum | BaseException | dict):
        return False
    if dataclasses.is_dataclass(cls) or issubclass(cls, msgspec.Struct):
        return any(inspect.iscoroutinefunction(each) for each in vars(cls).values())
    return True


def is_block(cls: Any) -> bool:
    """Whether `async with` is all there is to a class: a `Block` stands for it."""
    if cls is contextlib.AbstractAsyncContextManager:
        return True
    if not is_proxied(cls):
        return False
    ours = [base for base in cls.__mro__ if base.__module__.startswith("quoracy.")]
    public = {name for base in ours for name in vars(base) if not name.startswith("_")}
    return not public and hasattr(cls, "__aenter__")


def alternatives(node: ast.expr) -> Iterator[ast.expr]:
    """The parts of a union."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from alternatives(node.left)
        yield from alternatives(node.right)
    else:
        yield node


# -- from the loop ---------------------------------------------------------------------------


def result(node: ast.expr | None, scope: Scope, names: Names) -> Crossing:
    """How what comes from the loop crosses."""
    match node:
        case None:
            raise CannotTranslate("there is no annotation")
        case ast.Constant(value=str(text)):
            return result(ast.parse(text, mode="eval").body, scope, names)
        case ast.Name(id=name) if name in scope.given:
            there, value = scope.given[name]
            return result(value, there, names)
        case ast.BinOp(op=ast.BitOr()):
            return _union([result(each, scope, names) for each in alternatives(node)])
        case ast.Subscript(value=base, slice=ast.Tuple(elts=arguments)):
            return _generic(node, base, arguments, scope, names)
        case ast.Subscript(value=base, slice=argument):
            return _generic(node, base, [argument], scope, names)
        case ast.Attribute() if ast.unparse(node) == "asyncio.Event":
            return Crossing(names.use(PROXIES, "Event"), "Event(self._portal, {})")
    value = scope.module.value(node)
    if value is Self:
        return Crossing(names.use("typing", "Self"), "self")
    return Crossing(names.spell(node, scope), _proxy_of(value))


def _proxy_of(value: Any) -> str | None:
    return f"{value.__name__}(self._portal, {{}})" if is_proxied(value) else None


def _union(parts: list[Crossing]) -> Crossing:
    text = " | ".join(dict.fromkeys(part.text for part in parts))
    takes = {part.take for part in parts if part.text != "None"}
    if len(takes) > 1:
        raise CannotTranslate(text)
    return Crossing(text, takes.pop(), is_optional=any(part.text == "None" for part in parts))


def _generic(
    node: ast.Subscript, base: ast.expr, arguments: list[ast.expr], scope: Scope, names: Names
) -> Crossing:
    kind = scope.module.value(base)
    if kind in _ITERATORS:
        return _wrapper("Stream", result(arguments[0], scope, names), names)
    if is_block(kind):
        return _wrapper("Block", _entered(kind, arguments[0], scope, names), names)
    if kind in _AWAITABLES:
        return dataclasses.replace(result(arguments[-1], scope, names), is_awaited=True)
    if kind is collections.abc.Callable:
        return _returned_function(node, arguments, scope, names)
    for each in arguments:
        if not isinstance(each, ast.Constant | ast.List):
            taken = result(each, scope, names)
            if taken.take is not None:
                raise CannotTranslate(ast.unparse(node))
    return Crossing(names.spell(node, scope), _proxy_of(kind))


def _wrapper(name: str, item: Crossing, names: Names) -> Crossing:
    names.use(PROXIES, name)
    if item.take is None:
        names.use(PROXIES, "same")
    return Crossing(f"{name}[{item.text}]", f"{name}(self._portal, {{}}, {item.function})")


def _entered(kind: type, argument: ast.expr, scope: Scope, names: Names) -> Crossing:
    """What a kind of block gives when it is entered."""
    base = next(each for each in kind.__mro__ if "__aenter__" in vars(each))
    if base is kind or not base.__module__.startswith("quoracy."):
        return result(argument, scope, names)
    ((there, value),) = given_to(base, kind).values()
    if [variable.__name__ for variable in parameters_of(kind)] != [ast.unparse(argument)]:
        raise CannotTranslate(f"{kind.__name__}[{ast.unparse(argument)}]")
    return result(value, there, names)


def _returned_function(
    node: ast.Subscript, arguments: list[ast.expr], scope: Scope, names: Names
) -> Crossing:
    """A function without parameters: to be called on the loop, or a coroutine function to be run."""
    parameters, returned = arguments
    crossing = result(returned, scope, names)
    is_plain = isinstance(parameters, ast.List) and not parameters.elts and crossing.take is None
    if not is_plain or not (crossing.is_awaited or crossing.text == "None"):
        raise CannotTranslate(ast.unparse(node))
    way = "running" if crossing.is_awaited else "ending"
    return Crossing(
        f"{names.spell(node.value, scope)}[[], {crossing.text}]", f"self._portal.{way}({{}})"
    )


# -- to the loop -----------------------------------------------------------------------------


def given(node: ast.expr | None, scope: Scope, names: Names, *, is_run: bool) -> Crossing:
    """How what is given to the loop crosses.  is_run: to a coroutine, which the caller waits for."""
    if node is None:
        raise CannotTranslate("there is no annotation")
    parts = list(alternatives(node))
    functions = [each for each in parts if _is_function(each, scope)]
    if functions:
        return _given_function(functions, parts, scope, names, is_run=is_run)
    crossed = [result(each, scope, names) for each in parts]
    text = " | ".join(each.text for each in crossed)
    proxied = [each for each in crossed if each.take is not None]
    if not proxied:
        return Crossing(text)
    (one,) = proxied
    name = one.text.partition("[")[0]
    if one.take != f"{name}(self._portal, {{}})":
        raise CannotTranslate(ast.unparse(node))
    return Crossing(text, "{0}._it if isinstance({0}, " + name + ") else {0}")


def _is_function(node: ast.expr, scope: Scope) -> bool:
    return (
        isinstance(node, ast.Subscript) and scope.module.value(node.value) is collections.abc.Callable
    )


def _given_function(
    functions: list[ast.expr], parts: list[ast.expr], scope: Scope, names: Names, *, is_run: bool
) -> Crossing:
    if len(functions) < len(parts):
        raise CannotTranslate(" | ".join(map(ast.unparse, parts)))
    texts: list[str] = []
    wraps: list[str] = []
    ways: set[str] = set()
    for function in functions:
        assert isinstance(function, ast.Subscript)
        assert isinstance(function.slice, ast.Tuple)
        parameters, returned = function.slice.elts
        if not isinstance(parameters, ast.List):
            raise CannotTranslate(ast.unparse(function))
        taken = [result(each, scope, names) for each in parameters.elts]
        answer = result(returned, scope, names)
        if any(each.take is not None for each in taken):
            wraps = [each.function for each in taken]
        listens = answer.text in {"None", "object"} and not answer.is_awaited
        ways.add("errand" if answer.is_awaited else "listener" if listens else "asked")
        shown = "object" if listens else answer.text
        texts.append(
            f"{names.spell(function.value, scope)}[[{', '.join(each.text for each in taken)}], {shown}]"
        )
    text, way = " | ".join(texts), ways.pop()
    if ways or "same" in wraps or (wraps and way != "errand") or (way == "asked" and not is_run):
        raise CannotTranslate(text)
    if way == "asked":
        return Crossing(text, is_asked=True)
    return Crossing(text, f"self._portal.{way}({', '.join(['{}', *wraps])})")
