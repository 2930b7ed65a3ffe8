"""What the asynchronous classes look like: their members, as they are written, and what names mean.

Read from the source, because that is where everything is: overloads, defaults, annotations, docstrings.
Imported is only what has to be known for certain: which class a name stands for, and its bases.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from types import ModuleType
from typing import Any, ForwardRef, Generic, TypeVar

import msgspec

__all__ = [
    "Function",
    "Member",
    "Module",
    "entered_of",
    "is_live",
    "is_only_a_block",
    "members_of",
    "parameters_of",
    "read_module",
]

Function = ast.FunctionDef | ast.AsyncFunctionDef

# What a class may offer with operators and built-in functions.
OPERATORS = frozenset({"__getitem__", "__contains__", "__iter__", "__len__", "__call__"})
ASYNC_OPERATORS = frozenset({"__aenter__", "__aiter__", "__anext__"})


@dataclass(frozen=True)
class Module:
    """A module: its text, and where the names in it come from."""

    name: str
    tree: ast.Module
    imported: ModuleType

    def origin(self, name: str) -> tuple[str, str] | None:
        """The module a name is defined in, and its name there; None for a built-in one."""
        found = _imports(self.name).get(name)
        if found is not None:
            return found
        if name in vars(self.imported):
            return self.name, name
        if hasattr(builtins, name):
            return None
        raise LookupError(f"{self.name} uses {name}, which is neither imported nor defined there")

    def value(self, name: str) -> object:
        """What a name stands for."""
        origin = self.origin(name)
        if origin is None:
            return getattr(builtins, name)
        module, there = origin
        if not there:
            return importlib.import_module(module)
        return getattr(importlib.import_module(module), there)

    def class_node(self, name: str) -> ast.ClassDef:
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                return node
        raise LookupError(f"{self.name} has no class {name}")


@cache
def read_module(name: str) -> Module:
    imported = importlib.import_module(name)
    return Module(name, ast.parse(inspect.getsource(imported)), imported)


@cache
def _imports(module: str) -> dict[str, tuple[str, str]]:
    """Every import of a module, also those for type checkers only and those inside functions."""
    found: dict[str, tuple[str, str]] = {}
    for node in ast.walk(read_module(module).tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                found.setdefault(alias.asname or alias.name, (node.module, alias.name))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                found.setdefault(alias.asname or alias.name, (alias.name, ""))
    return found


@dataclass
class Member:
    """Something public of a class.

    given: what the type variables of the class it is written in stand for in the class it is read for.
    """

    name: str
    module: Module
    node: Function | None
    annotation: ast.expr | None = None
    overloads: list[Function] = field(default_factory=list)
    given: dict[str, object] = field(default_factory=dict)

    @property
    def decorators(self) -> set[str]:
        if self.node is None:
            return set()
        return {ast.unparse(each).rpartition(".")[2] for each in self.node.decorator_list}

    @property
    def is_property(self) -> bool:
        return bool(self.decorators & {"property", "cached_property"})

    @property
    def is_async(self) -> bool:
        return isinstance(self.node, ast.AsyncFunctionDef)

    @property
    def is_async_generator(self) -> bool:
        return self.node is not None and self.is_async and any(_own_yields(self.node))


def _own_yields(function: Function) -> Iterator[ast.AST]:
    """The yields of a function, not those of functions inside it."""
    waiting: list[ast.AST] = [*function.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def is_live(cls: type) -> bool:
    """Whether a class needs a face: it does something.  Plain values pass as they are."""
    if not cls.__module__.startswith(("quoracy.blocks", "quoracy.client.", "quoracy.store.api")):
        return False
    if issubclass(cls, Enum | BaseException | dict):
        return False
    if dataclasses.is_dataclass(cls) or issubclass(cls, msgspec.Struct):
        return any(inspect.iscoroutinefunction(each) for each in vars(cls).values())
    return True


def is_only_a_block(cls: type) -> bool:
    """Whether all there is to a class is `async with`."""
    ours = [base for base in cls.__mro__ if base.__module__.startswith("quoracy.")]
    public = {name for base in ours for name in vars(base) if not name.startswith("_")}
    return not public and hasattr(cls, "__aenter__")


def entered_of(cls: type) -> tuple[object, tuple[TypeVar, ...]]:
    """What a class that is only a block gives when it is entered, and its type variables."""
    for base in cls.__mro__:
        if "__aenter__" in vars(base):
            variables = parameters_of(base)
            given = _given(cls, base)
            return given.get(variables[0].__name__, variables[0]), parameters_of(cls)
    raise LookupError(cls.__name__)


def members_of(cls: type, flattened: list[type]) -> list[Member]:
    """The public members of a class and of those of its bases that get no face of their own."""
    found: dict[str, Member] = {}
    for each in (cls, *flattened):
        given = _given(cls, each)
        for member in _written_in(each):
            member.given = given
            found.setdefault(member.name, member)
    return list(found.values())


def _given(cls: type, base: type) -> dict[str, object]:
    """What the type variables of a base stand for in a class."""
    if base is cls:
        return {}
    for each in cls.__mro__:
        for parent in getattr(each, "__orig_bases__", ()):
            if getattr(parent, "__origin__", None) is base:
                names = [variable.__name__ for variable in getattr(base, "__parameters__", ())]
                values = (_meant(value, each) for value in parent.__args__)
                return dict(zip(names, values, strict=True))
    return {}


def _meant(value: object, cls: type) -> object:
    """A base is written before classes below it exist, so they are named by a string."""
    if isinstance(value, ForwardRef):
        return read_module(cls.__module__).value(value.__forward_arg__)
    return value


def _written_in(cls: type) -> Iterator[Member]:
    module = read_module(cls.__module__)
    node = module.class_node(cls.__name__)
    found: dict[str, Member] = {}
    for item in node.body:
        match item:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if _is_public(name):
                member = found.setdefault(name, Member(name, module, None))
                if any(ast.unparse(each).endswith("overload") for each in item.decorator_list):
                    member.overloads.append(item)
                elif not any(ast.unparse(each).endswith(".setter") for each in item.decorator_list):
                    member.node = item
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation) if _is_public(name):
                found[name] = Member(name, module, None, annotation)
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            for name, told in _assigned(module, item):
                found.setdefault(name, Member(name, module, None, told))
    yield from found.values()


def _is_public(name: str) -> bool:
    return not name.startswith("_") or name in OPERATORS or name in ASYNC_OPERATORS


# -- attributes ------------------------------------------------------------------------------


def _assigned(module: Module, init: ast.FunctionDef) -> Iterator[tuple[str, ast.expr | None]]:
    """The public attributes that a constructor sets, with their types where those can be told."""
    arguments = (*init.args.posonlyargs, *init.args.args, *init.args.kwonlyargs)
    known: dict[str, ast.expr | None] = {each.arg: each.annotation for each in arguments}
    for node in ast.walk(init):
        if isinstance(node, ast.AnnAssign):
            yield from _attribute(node.target, node.annotation)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    known[target.id] = _type_of(module, node.value, known)
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    for each, value in zip(target.elts, node.value.elts, strict=True):
                        yield from _attribute(each, _type_of(module, value, known))
                else:
                    yield from _attribute(target, _type_of(module, node.value, known))


def _attribute(target: ast.expr, annotation: ast.expr | None) -> Iterator[tuple[str, ast.expr | None]]:
    match target:
        case ast.Attribute(value=ast.Name(id="self"), attr=name) if not name.startswith("_"):
            yield name, annotation


def _type_of(module: Module, value: ast.expr, known: dict[str, ast.expr | None]) -> ast.expr | None:
    """The type of an expression, as an annotation; None if that takes more than a look."""
    match value:
        case ast.Name(id=name) if name in known:
            return known[name]
        case ast.Constant(value=constant) if constant is not None:
            return ast.Name(type(constant).__name__)
        case ast.Call(func=ast.Attribute(attr="decode" | "removesuffix" | "removeprefix" | "strip")):
            return ast.Name("str")
        case ast.Call(func=ast.Attribute(attr="encode")):
            return ast.Name("bytes")
        case ast.Call(func=ast.Attribute(value=ast.Name(id="asyncio"), attr="Event") as called):
            return called
        case ast.Call(func=ast.Name(id=name) as called):
            cls = _value_or_none(module, name)
            if isinstance(cls, type) and not hasattr(cls, "__class_getitem__"):
                return called
        case ast.Attribute(value=owner, attr=name):
            owned = _type_of(module, owner, known)
            if isinstance(owned, ast.Name):
                cls = _value_or_none(module, owned.id)
                text = getattr(cls, "__annotations__", {}).get(name)
                if isinstance(text, str):
                    return ast.parse(text, mode="eval").body
    return None


def _value_or_none(module: Module, name: str) -> object:
    try:
        return module.value(name)
    except (LookupError, AttributeError):
        return None


def parameters_of(cls: type) -> tuple[TypeVar, ...]:
    """The type variables of a generic class."""
    variables: tuple[Any, ...] = getattr(cls, "__parameters__", ())
    return variables if issubclass(cls, Generic) else ()
