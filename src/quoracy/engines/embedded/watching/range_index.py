"""An index of ranges: which watchers watch a key, however many watch others.

Single keys and prefixes, which is what people watch, are found in dicts: a key is looked up once, and
once for every length of prefix there is.  Any other range, and a prefix when there are many lengths
already, goes into an interval tree: a treap, that is a binary search tree on (start, end) whose shape
is kept by random priorities; each node knows the furthest end below it, so whole branches that end too
early are passed over, and asking costs the logarithm of their number plus the answer.
"""

from __future__ import annotations

import random
from typing import Generic, TypeVar

from quoracy.store.model import KeyRange

__all__ = ["RangeIndex"]

T = TypeVar("T")

# An end that sorts after every other one when there is none: (0, end) or (1, b"").
_End = tuple[int, bytes]

# More lengths of prefixes than this would make the dicts slower than the tree.
_LENGTHS_MAX = 8


class _Node(Generic[T]):
    __slots__ = ("end", "furthest", "left", "priority", "right", "start", "values")

    def __init__(self, start: bytes, end: _End, priority: float) -> None:
        self.start = start
        self.end = end
        self.priority = priority
        self.furthest = end
        self.left: _Node[T] | None = None
        self.right: _Node[T] | None = None
        # A dict, not a set: values come out in the order they came in, so runs can be repeated.
        self.values: dict[T, None] = {}


class RangeIndex(Generic[T]):
    """Values (watchers) by the range of keys they care about."""

    __slots__ = ("_lengths", "_prefixes", "_rng", "_root", "_singles")

    def __init__(self) -> None:
        self._singles: dict[bytes, dict[T, None]] = {}
        self._prefixes: dict[bytes, dict[T, None]] = {}
        self._lengths: dict[int, int] = {}  # of the prefixes there are, with how many have it
        self._root: _Node[T] | None = None
        self._rng = random.Random(0)  # priorities only: any seed does, a fixed one repeats

    def add(self, keys: KeyRange, value: T) -> None:
        if keys.is_single:
            self._singles.setdefault(keys.start, {})[value] = None
        elif keys.start in self._prefixes and _is_prefix(keys):
            self._prefixes[keys.start][value] = None
        elif self._has_room(len(keys.start)) and _is_prefix(keys):
            self._prefixes[keys.start] = {value: None}
            self._lengths[len(keys.start)] = self._lengths.get(len(keys.start), 0) + 1
        elif keys.end is None or keys.start < keys.end:
            self._root = self._insert(self._root, keys.start, _end(keys), value)

    def remove(self, keys: KeyRange, value: T) -> None:
        start = keys.start
        if keys.is_single:
            del self._singles[start][value]
            if not self._singles[start]:
                del self._singles[start]
        elif value in self._prefixes.get(start, ()) and _is_prefix(keys):
            del self._prefixes[start][value]
            if not self._prefixes[start]:
                del self._prefixes[start]
                self._lengths[len(start)] -= 1
                if not self._lengths[len(start)]:
                    del self._lengths[len(start)]
        elif keys.end is None or start < keys.end:
            self._root = self._discard(self._root, start, _end(keys), value)

    def find(self, key: bytes) -> list[T]:
        """Every value whose range contains the key."""
        found = list(self._singles.get(key, ()))
        for length in self._lengths:
            if length <= len(key):
                found += self._prefixes.get(key[:length], ())
        if self._root is not None:
            self._find_in_tree(key, found)
        return found

    def _has_room(self, length: int) -> bool:
        return length in self._lengths or len(self._lengths) < _LENGTHS_MAX

    def _find_in_tree(self, key: bytes, found: list[T]) -> None:
        at = (0, key)
        branches = [self._root]
        while branches:
            node = branches.pop()
            if node is None or node.furthest <= at:
                continue
            branches.append(node.left)
            if node.start <= key:
                branches.append(node.right)
                if at < node.end:
                    found += node.values

    # -- treap ---------------------------------------------------------------------------

    def _insert(self, node: _Node[T] | None, start: bytes, end: _End, value: T) -> _Node[T]:
        if node is None:
            node = _Node(start, end, self._rng.random())
            node.values[value] = None
            return node
        if (start, end) == (node.start, node.end):
            node.values[value] = None
            return node
        if (start, end) < (node.start, node.end):
            node.left = self._insert(node.left, start, end, value)
            return _rotate_right(node) if node.left.priority < node.priority else _measure(node)
        node.right = self._insert(node.right, start, end, value)
        return _rotate_left(node) if node.right.priority < node.priority else _measure(node)

    def _discard(self, node: _Node[T] | None, start: bytes, end: _End, value: T) -> _Node[T] | None:
        assert node is not None, "removed a range that was never added"
        if (start, end) == (node.start, node.end):
            del node.values[value]
            return node if node.values else _merge(node.left, node.right)
        if (start, end) < (node.start, node.end):
            node.left = self._discard(node.left, start, end, value)
        else:
            node.right = self._discard(node.right, start, end, value)
        return _measure(node)


def _is_prefix(keys: KeyRange) -> bool:
    return keys == KeyRange.prefix(keys.start)


def _end(keys: KeyRange) -> _End:
    return (1, b"") if keys.end is None else (0, keys.end)


def _measure(node: _Node[T]) -> _Node[T]:
    furthest = node.end
    for child in (node.left, node.right):
        if child is not None and child.furthest > furthest:
            furthest = child.furthest
    node.furthest = furthest
    return node


def _rotate_right(node: _Node[T]) -> _Node[T]:
    top = node.left
    assert top is not None
    node.left = top.right
    top.right = _measure(node)
    return _measure(top)


def _rotate_left(node: _Node[T]) -> _Node[T]:
    top = node.right
    assert top is not None
    node.right = top.left
    top.left = _measure(node)
    return _measure(top)


def _merge(left: _Node[T] | None, right: _Node[T] | None) -> _Node[T] | None:
    if left is None or right is None:
        return left or right
    if left.priority < right.priority:
        left.right = _merge(left.right, right)
        return _measure(left)
    right.left = _merge(left, right.left)
    return _measure(right)
