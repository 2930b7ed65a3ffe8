"""The text of a blocking class: its members, one by one, and the way in."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from quoracy.threads.generator.source import (
    Function,
    Member,
    Scope,
    members_of,
    parameters_of,
    read_module,
)
from quoracy.threads.generator.translation import (
    PROXIES,
    CannotTranslate,
    Crossing,
    Names,
    given,
    is_block,
    is_proxied,
    result,
)

__all__ = ["Api", "Written", "write_class", "write_connect"]

# A parameter that is not offered: a thread cannot be cancelled.
_LEFT_OUT = "cancel_on_loss"
_OPERATORS = {
    "__getitem__": "self._portal.call(lambda: self._it[{}])",
    "__contains__": "self._portal.call(lambda: {} in self._it)",
    "__len__": "self._portal.call(lambda: len(self._it))",
    "__iter__": "self._portal.call(lambda: iter(list(self._it)))",
    "__call__": "self._portal.call(lambda: self._it({}))",
}


@dataclass(frozen=True)
class Api:
    """What a package offers to coroutines, and how it is offered to threads.

    root: the class that leads to all others.
    doc: the first line of the generated modules; home_of: the module that a class goes to.
    connect: the module whose `connect` gives the root; without one, the root is constructed.
    close_s: how long the root may take to close, if it is constructed.
    inherited: what the bases of the root, which are for recipes, have for users.
    hidden: what is public in its package only: names of members, `Class.member`, or bases.
    done_by_close: methods that do nothing once the connection is closed, since closing did it.
    reads_clock: properties that are read in any thread, also when all is closed.
    """

    root: type
    doc: str
    home_of: Callable[[type], str]
    connect: str = ""
    close_s: str = ""
    inherited: frozenset[str] = frozenset()
    hidden: frozenset[str] = frozenset()
    done_by_close: frozenset[str] = frozenset()
    reads_clock: frozenset[str] = frozenset()


@dataclass
class Written:
    """A class or a function, and the members that could not be translated."""

    name: str
    text: str
    depth: int
    left_out: list[str] = field(default_factory=list)


def write_class(cls: type, api: Api, names: Names) -> Written:
    """The proxy of one class."""
    base, flattened = _bases(cls, api)
    members = [each for each in members_of(cls, flattened) if _is_wanted(each, cls, api)]
    own = names.use(cls.__module__, f"{cls.__name__} as Async{cls.__name__}").rpartition(" ")[2]
    variables = [each.__name__ for each in parameters_of(cls)]
    names.variables |= set(variables)
    of = f"[{', '.join(variables)}]" if variables else ""
    lines = _documented(inspect.cleandoc(cls.__doc__ or ""), 4)
    left_out: list[str] = []
    if base is not None:
        names.proxied.add(base)
        first = base.__name__ + (of if parameters_of(base) else "")
        lines += [f"    _it: {own}{of}", ""]
    else:
        is_entered = any(each.name == "__aenter__" for each in members)
        kind = "ConnectionProxy" if cls is api.root else "BlockProxy" if is_entered else "Proxy"
        first = f"{names.use(PROXIES, kind)}[{own}{of}]"
    if of and not (base is not None and parameters_of(base)):
        first += f", {names.use('typing', 'Generic')}{of}"
    if cls is api.root and not api.connect:
        lines += _constructor(cls, api, names)
    for member in members:
        try:
            lines += _member(member, api, names)
        except (CannotTranslate, LookupError) as error:
            left_out.append(f"{cls.__module__}.{cls.__name__}.{member.name}: {error}")
    return Written(
        cls.__name__, "\n".join([f"class {cls.__name__}({first}):", *lines]), len(cls.__mro__), left_out
    )


def _bases(cls: type, api: Api) -> tuple[type | None, list[type]]:
    """The base that has a proxy of its own, if any, and those whose members are written out here."""
    flattened: list[type] = []
    for base in cls.__mro__[1:]:
        if not base.__module__.startswith("quoracy."):
            continue
        is_public = not base.__name__.startswith("_") and base.__name__ not in api.hidden
        if is_public and cls is not api.root and is_proxied(base) and not is_block(base):
            return base, flattened
        flattened.append(base)
    return None, flattened


def _is_wanted(member: Member, cls: type, api: Api) -> bool:
    if cls is not api.root:
        return not {member.name, f"{cls.__name__}.{member.name}"} & api.hidden
    return member.name not in {"__aenter__", "close"} and (
        member.owner is cls or member.name in api.inherited
    )


def _documented(doc: str | None, indent: int) -> list[str]:
    """A docstring, copied as it is."""
    if not doc:
        return []
    quoted = f'"""{doc}\n"""' if "\n" in doc else f'"""{doc}"""'
    return [textwrap.indent(quoted, " " * indent), *([""] if indent == 4 else [])]


# -- members ---------------------------------------------------------------------------------


def _member(member: Member, api: Api, names: Names) -> Iterator[str]:
    node = member.node
    if node is None or member.is_property:
        annotation = member.annotation if node is None else node.returns
        crossing = result(annotation, member.scope, names)
        if node is None and crossing.take is None:
            yield f"    {member.name} = {names.use(PROXIES, 'Attribute')}[{crossing.text}]()"
            return
        is_direct = node is None or member.name in api.reads_clock
        yield "    @property"
        yield f"    def {member.name}(self) -> {crossing.text}:"
        yield from _documented(ast.get_docstring(node) if node else None, 8)
        it = f"self._it.{member.name}"
        yield from _returning(crossing, it if is_direct else f"self._portal.call(lambda: {it})")
    elif member.name.startswith("__"):
        yield from _operator(member, node, names)
    elif member.decorators & {"staticmethod", "classmethod", "asynccontextmanager"}:
        raise CannotTranslate(f"it is a {', '.join(member.decorators)}")
    else:
        yield from _method(member, node, api, names)


def _method(member: Member, node: Function, api: Api, names: Names) -> Iterator[str]:
    crossing = result(node.returns, member.scope, names)
    is_run = crossing.is_awaited or member.is_coroutine
    it = "self._it"
    for overload in member.overloads:
        signature = _Signature(member, overload, names)
        returned = result(overload.returns, member.scope, names).text
        yield f"    @{names.use('typing', 'overload')}"
        yield f"    def {member.name}({signature.shown}) -> {returned}: ..."
        # Which overload it is only the caller knows.
        it = f"{names.use('typing', 'cast')}({names.use('typing', 'Any')}, self._it)"
    signature = _Signature(member, node, names, is_run=is_run)
    yield f"    def {member.name}({signature.shown}) -> {crossing.text}:"
    yield from _documented(ast.get_docstring(node), 8)
    if member.name in api.done_by_close:
        yield "        if self._portal.is_closing:"
        yield "            return"
    if signature.asked is None:
        called = f"{it}.{member.name}"
        begin = f"lambda: {called}({signature.passed})" if signature.passed else called
        value = f"self._portal.{'run' if is_run else 'call'}({begin})"
    else:
        has_timeout = "timeout=timeout" in signature.passed
        left, timeout = ("left", "timeout") if has_timeout else ("_", "None")
        passed = signature.passed.replace("timeout=timeout", "timeout=left")
        begin = f"lambda {signature.asked}, {left}: {it}.{member.name}({passed})"
        value = f"self._portal.asking({begin}, {signature.asked}, {timeout})"
    kinds = _kinds_of(member, names)
    if len(kinds) > 1:
        yield f"        it: Any = {value}"
        for kind in kinds[:-1]:
            names.use(kind.__module__, f"{kind.__name__} as Async{kind.__name__}")
            yield f"        if isinstance(it, Async{kind.__name__}):"
            yield f"            return {kind.__name__}(self._portal, it)"
        value = "it"
    yield from _returning(crossing, value, is_untyped=bool(member.overloads))


def _kinds_of(member: Member, names: Names) -> list[type]:
    """The classes that overloads return, those with bases among them first."""
    seen = Names()
    for overload in member.overloads:
        returned = overload.returns
        assert returned is not None
        seen.spell(returned.value if isinstance(returned, ast.Subscript) else returned, member.scope)
    names.proxied |= seen.proxied
    return sorted(seen.proxied, key=lambda cls: (-len(cls.__mro__), cls.__name__))


def _returning(crossing: Crossing, value: str, *, is_untyped: bool = False) -> Iterator[str]:
    if crossing.take == "self":
        yield f"        {value}"
        yield "        return self"
    elif crossing.text in {"None", "Never"}:
        yield f"        {value}"
    elif crossing.is_optional and crossing.take is not None:
        yield f"        it = {value}"
        yield f"        return {crossing.taking('it')}"
    elif crossing.take is None and is_untyped:
        yield f"        it: {crossing.text} = {value}"
        yield "        return it"
    else:
        yield f"        return {crossing.taking(value)}"
    yield ""


def _operator(member: Member, node: Function, names: Names) -> Iterator[str]:
    crossing = result(node.returns, member.scope, names)
    doc = _documented(ast.get_docstring(node), 8)
    match member.name:
        case "__aenter__":
            yield f"    def __enter__(self) -> {crossing.text}:"
            yield from doc
            yield from _returning(crossing, "self._enter(self._it)")
        case "__aiter__":
            if not hasattr(member.owner, "__anext__"):
                raise CannotTranslate("it is no iterator itself")
            yield f"    def __iter__(self) -> {names.use('typing', 'Self')}:"
            yield from doc
            yield from ("        return self", "")
        case "__anext__":
            yield f"    def __next__(self) -> {crossing.text}:"
            yield from doc
            yield from _returning(crossing, "self._next(self._it)")
        case name:
            signature = _Signature(member, node, names)
            yield f"    def {name}({signature.shown}) -> {crossing.text}:"
            yield from doc
            yield from _returning(crossing, _OPERATORS[name].format(signature.passed))


# -- signatures ------------------------------------------------------------------------------


class _Signature:
    """The parameters of a function.

    shown: as they are written; passed: as the arguments of a call of the asynchronous function.
    asked: the parameter, if there is one, that is a function whose result is wanted at once.
    """

    def __init__(self, member: Member, node: Function, names: Names, *, is_run: bool = False) -> None:
        self._member, self._names, self._is_run = member, names, is_run
        self._shown: list[str] = []
        self._passed: list[str] = []
        self.asked: str | None = None
        arguments = node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
        for argument, default in zip(positional, defaults, strict=True):
            self._add(argument, default, "{0}")
        if arguments.vararg is not None:
            self._add(arguments.vararg, None, "*{0}")
        elif any(each.arg != _LEFT_OUT for each in arguments.kwonlyargs):
            self._shown.append("*")
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            self._add(argument, default, "{1}={0}")
        if arguments.kwarg is not None:
            self._add(arguments.kwarg, None, "**{0}")
        self.shown, self.passed = ", ".join(self._shown), ", ".join(self._passed)

    def _add(self, argument: ast.arg, default: ast.expr | None, form: str) -> None:
        name, scope = argument.arg, self._member.scope
        if name == _LEFT_OUT:
            return
        if name == "self":
            self._shown.append(name)
            return
        crossing = given(argument.annotation, scope, self._names, is_run=self._is_run)
        if crossing.is_asked:
            if self.asked is not None:
                raise CannotTranslate("it takes two functions")
            self.asked = name
        text = crossing.text
        if self._member.overloads and isinstance(default, ast.Name | ast.Subscript):
            text = "Any"  # a default of the type; the overloads say what it is
        shown = f"{form.partition('{')[0]}{name}: {text}"
        if default is not None:
            shown += f" = {self._names.spell(default, scope)}"
        self._shown.append(shown)
        self._passed.append(form.format(crossing.taking(name), name))


# -- the way in ------------------------------------------------------------------------------


def write_connect(api: Api, names: Names) -> Written:
    """The function `connect`, which gives the root."""
    root = api.root
    scope = Scope(read_module(api.connect))
    node = scope.module.definition("connect")
    signature = _Signature(Member("connect", scope, root, node), node, names)
    names.use(api.connect, "connect as async_connect")
    names.use(PROXIES, "refuse_others")
    names.use("quoracy.threads.portal", "Portal")
    lines = [
        f"def connect({signature.shown}) -> {root.__name__}:",
        *_documented(ast.get_docstring(node), 4),
        "    refuse_others(where)",
        "    portal = Portal()",
        f"    it = portal.open(lambda: async_connect({signature.passed}), close_timeout)",
        f"    return {root.__name__}(portal, it)",
    ]
    return Written("connect", "\n".join(lines), depth=99)


def _constructor(cls: type, api: Api, names: Names) -> Iterator[str]:
    scope = Scope(read_module(cls.__module__))
    body = scope.module.definition(cls.__name__).body
    node = next(each for each in body if isinstance(each, ast.FunctionDef) and each.name == "__init__")
    signature = _Signature(Member("__init__", scope, cls, node), node, names)
    names.imports |= {("quoracy.threads.portal", name) for name in ("CLOSE_S", "Portal")}
    yield f"    def __init__({signature.shown}) -> None:"
    yield f"        it = Async{cls.__name__}({signature.passed})"
    yield "        super().__init__(Portal(), it)"
    yield f"        self._portal.open(lambda: it, {api.close_s})"
    yield ""
    yield "    def close(self) -> None:"
    yield from _documented(inspect.getdoc(vars(cls)["close"]), 8)
    yield "        self._portal.check_process()"
    yield "        super().close()"
    yield ""
