"""What asynchronous classes look like: their members as they are written, and what names in them mean.

Read from the source, where everything is: overloads, defaults, annotations, docstrings.  Imported is
only what has to be known for certain: which class a name stands for, and its bases.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any, Generic, TypeVar

__all__ = [
    "Function",
    "Member",
    "Module",
    "Scope",
    "given_to",
    "members_of",
    "parameters_of",
    "read_module",
]

Function = ast.FunctionDef | ast.AsyncFunctionDef

# What a class may offer with operators and built-in functions.
OPERATORS = {
    "__getitem__", "__contains__", "__iter__", "__len__", "__call__",
    "__aenter__", "__aiter__", "__anext__",
}  # fmt: skip


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

    def value(self, node: ast.expr) -> Any:
        """The object that a name, dotted or not, stands for; None for any other expression."""
        match node:
            case ast.Name(id=name):
                module, there = self.origin(name) or ("builtins", name)
                imported = importlib.import_module(module)
                return getattr(imported, there) if there else imported
            case ast.Attribute(value=owner, attr=attr):
                return getattr(self.value(owner), attr, None)
        return None

    def definition(self, name: str) -> Any:
        """The class or function of this name."""
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef | Function) and node.name == name:
                return node
        raise LookupError(f"{self.name} has no {name}")


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


@dataclass(frozen=True)
class Scope:
    """Where an annotation stands: its module, and what the type variables of a base were given."""

    module: Module
    given: dict[str, tuple[Scope, ast.expr]] = field(default_factory=dict)


@dataclass
class Member:
    """Something public of a class: a function, or an attribute with its annotation."""

    name: str
    scope: Scope
    owner: type
    node: Function | None = None
    annotation: ast.expr | None = None
    overloads: list[Function] = field(default_factory=list)

    @property
    def decorators(self) -> set[str]:
        found = [] if self.node is None else self.node.decorator_list
        return {ast.unparse(each).rpartition(".")[2] for each in found}

    @property
    def is_property(self) -> bool:
        return bool(self.decorators & {"property", "cached_property"})

    @property
    def is_coroutine(self) -> bool:
        """Whether it is a coroutine function, and no asynchronous generator."""
        return inspect.iscoroutinefunction(inspect.getattr_static(self.owner, self.name))


def members_of(cls: type, flattened: list[type]) -> list[Member]:
    """The public members of a class and of those of its bases that get no proxy of their own."""
    found: dict[str, Member] = {}
    for each in (cls, *flattened):
        for member in _written_in(each, Scope(read_module(each.__module__), given_to(each, cls))):
            found.setdefault(member.name, member)
    return list(found.values())


def given_to(base: type, cls: type) -> dict[str, tuple[Scope, ast.expr]]:
    """What a class gives for the type variables of a base: `Held` for that of `Enterable[Held]`."""
    for each in cls.__mro__:
        if not each.__module__.startswith("quoracy."):
            continue
        module = read_module(each.__module__)
        for parent in module.definition(each.__name__).bases:
            if isinstance(parent, ast.Subscript) and module.value(parent.value) is base:
                values = parent.slice.elts if isinstance(parent.slice, ast.Tuple) else [parent.slice]
                names = [variable.__name__ for variable in parameters_of(base)]
                return {name: (Scope(module), value) for name, value in zip(names, values, strict=True)}
    return {}


def parameters_of(cls: type) -> tuple[TypeVar, ...]:
    """The type variables of a generic class."""
    variables: tuple[TypeVar, ...] = getattr(cls, "__parameters__", ())
    return variables if issubclass(cls, Generic) else ()


def _written_in(cls: type, scope: Scope) -> Iterator[Member]:
    found: dict[str, Member] = {}
    for item in scope.module.definition(cls.__name__).body:
        match item:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if _is_public(name):
                member = found.setdefault(name, Member(name, scope, cls))
                if "overload" in map(ast.unparse, item.decorator_list):
                    member.overloads.append(item)
                else:
                    member.node = item
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation) if _is_public(name):
                found[name] = Member(name, scope, cls, annotation=annotation)
            case ast.FunctionDef(name="__init__"):
                for name, told in _assigned(scope.module, item):
                    found.setdefault(name, Member(name, scope, cls, annotation=told))
    yield from found.values()


def _is_public(name: str) -> bool:
    return not name.startswith("_") or name in OPERATORS


# -- attributes ------------------------------------------------------------------------------


def _assigned(module: Module, init: ast.FunctionDef) -> Iterator[tuple[str, ast.expr | None]]:
    """The public attributes that a constructor sets, with their types where those are known."""
    known = {each.arg: each.annotation for each in (*init.args.args, *init.args.kwonlyargs)}
    for node in ast.walk(init):
        match node:
            case ast.AnnAssign(target=target, annotation=annotated):
                pairs: list[tuple[ast.expr, ast.expr | None]] = [(target, annotated)]
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                pairs = [(t, _type_of(module, v, known)) for t, v in zip(targets, values, strict=True)]
            case ast.Assign(targets=[target], value=value):
                pairs = [(target, _type_of(module, value, known))]
            case _:
                continue
        for assigned, found in pairs:
            match assigned:
                case ast.Attribute(value=ast.Name(id="self"), attr=name) if not name.startswith("_"):
                    yield name, found
                case ast.Name(id=name):
                    known[name] = found


def _type_of(module: Module, value: ast.expr, known: dict[str, ast.expr | None]) -> ast.expr | None:
    """The type of an expression, as an annotation; None if that takes more than a look."""
    match value:
        case ast.Name(id=name):
            return known.get(name)
        case ast.Call(func=ast.Attribute(attr="decode" | "removesuffix" | "removeprefix")):
            return ast.Name("str")
        case ast.Call(func=ast.Attribute(value=ast.Name(id="asyncio"), attr="Event") as called):
            return called
        case ast.Attribute(value=ast.Name(id=name), attr=attr):
            # An attribute of a parameter: `self.key = place.key`.
            owner = known.get(name)
            text = (
                None if owner is None else getattr(module.value(owner), "__annotations__", {}).get(attr)
            )
            return ast.parse(text, mode="eval").body if isinstance(text, str) else None
    return None
