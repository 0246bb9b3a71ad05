"""An index of words that finds entries by their prefix.

The words are kept in a trie whose chains of single children are stored as
one edge, so that the memory needed grows with the number of words and not
with the number of their letters.

    >>> index = WordIndex()
    >>> index["romane"] = 1
    >>> index["romulus"] = 2
    >>> index["rubens"] = 3
    >>> list(index.with_prefix("rom"))
    [('romane', 1), ('romulus', 2)]
    >>> index.longest_prefix("romulus and remus")
    ('romulus', 2)
"""

from collections.abc import MutableMapping

__all__ = ["WordIndex"]

_no_value = object()


class _Node:
    """A node of the trie; *label* is the text of the edge that leads here."""

    __slots__ = ("label", "value", "children")

    def __init__(self, label, value=_no_value):
        self.label = label
        self.value = value
        self.children = {}

    def add_child(self, node):
        self.children[node.label[0]] = node

    def split(self, length):
        """Cut the label after *length* characters.

        This node keeps the first part, and a new child takes over the rest
        together with the value and the children.
        """
        child = _Node(self.label[length:], self.value)
        child.children = self.children
        self.label = self.label[:length]
        self.value = _no_value
        self.children = {}
        self.add_child(child)

    def join(self):
        """Undo split(), if this node has one child and no value."""
        if self.value is not _no_value or len(self.children) != 1:
            return
        (child,) = self.children.values()
        self.label += child.label
        self.value = child.value
        self.children = child.children


def _common_length(a, b):
    """Return the number of characters that *a* and *b* begin with."""
    n = 0
    for x, y in zip(a, b):
        if x != y:
            break
        n += 1
    return n


class WordIndex(MutableMapping):
    """A mapping from strings to values that is sorted by its keys."""

    def __init__(self, items=()):
        self._root = _Node("")
        self._size = 0
        self.update(items)

    def _find(self, key):
        """Return the node for *key*, or None."""
        node = self._root
        position = 0
        while position < len(key):
            node = node.children.get(key[position])
            if node is None or not key.startswith(node.label, position):
                return None
            position += len(node.label)
        return node

    def __getitem__(self, key):
        node = self._find(key)
        if node is None or node.value is _no_value:
            raise KeyError(key)
        return node.value

    def __setitem__(self, key, value):
        node = self._root
        position = 0
        while position < len(key):
            child = node.children.get(key[position])
            if child is None:
                node.add_child(_Node(key[position:], value))
                self._size += 1
                return
            shared = _common_length(child.label, key[position:])
            if shared < len(child.label):
                child.split(shared)
            node = child
            position += shared
        if node.value is _no_value:
            self._size += 1
        node.value = value

    def __delitem__(self, key):
        # Remember the way down: the node above may have to be changed.
        path = [self._root]
        position = 0
        while position < len(key):
            node = path[-1].children.get(key[position])
            if node is None or not key.startswith(node.label, position):
                raise KeyError(key)
            path.append(node)
            position += len(node.label)
        node = path.pop()
        if node.value is _no_value:
            raise KeyError(key)
        node.value = _no_value
        self._size -= 1
        if node is self._root:
            return
        if node.children:
            node.join()
            return
        parent = path.pop()
        del parent.children[node.label[0]]
        if parent is not self._root:
            parent.join()

    def __contains__(self, key):
        if not isinstance(key, str):
            return False
        node = self._find(key)
        return node is not None and node.value is not _no_value

    def __len__(self):
        return self._size

    def __iter__(self):
        for key, _ in self._walk(self._root, ""):
            yield key

    def _walk(self, node, prefix):
        """Yield the pairs at and below *node*, in the order of the keys."""
        stack = [(node, prefix)]
        while stack:
            node, prefix = stack.pop()
            if node.value is not _no_value:
                yield prefix, node.value
            for first in sorted(node.children, reverse=True):
                child = node.children[first]
                stack.append((child, prefix + child.label))

    def with_prefix(self, prefix):
        """Yield (key, value) for each key that starts with *prefix*."""
        node = self._root
        position = 0
        while position < len(prefix):
            child = node.children.get(prefix[position])
            if child is None:
                return
            rest = prefix[position:]
            if not child.label.startswith(rest[:len(child.label)]):
                return
            node = child
            position += len(child.label)
        if position > len(prefix):
            # The prefix ends in the middle of the last edge.
            prefix += node.label[len(node.label) - position + len(prefix):]
        yield from self._walk(node, prefix)

    def longest_prefix(self, text):
        """Return (key, value) for the longest key that *text* starts with.

        Raise KeyError if there is none.
        """
        node = self._root
        position = 0
        best = None
        while True:
            if node.value is not _no_value:
                best = position, node.value
            if position == len(text):
                break
            node = node.children.get(text[position])
            if node is None or not text.startswith(node.label, position):
                break
            position += len(node.label)
        if best is None:
            raise KeyError(text)
        length, value = best
        return text[:length], value
