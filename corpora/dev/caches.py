"""Caches with a bounded size: least recently used, and with a time to live.

Both classes are mappings.  They are not thread-safe by themselves; wrap the
calls in a lock if several threads share a cache, or use the decorator
cached(), which does so.
"""

import functools
import threading
import time
from collections import OrderedDict, namedtuple
from collections.abc import MutableMapping

CacheInfo = namedtuple("CacheInfo", ["hits", "misses", "size", "max_size"])

_missing = object()


class LRUCache(MutableMapping):
    """A dictionary that forgets the least recently used items.

    >>> cache = LRUCache(2)
    >>> cache["a"] = 1
    >>> cache["b"] = 2
    >>> cache["a"]
    1
    >>> cache["c"] = 3
    >>> list(cache)
    ['a', 'c']
    """

    def __init__(self, max_size, on_evict=None):
        if max_size < 1:
            raise ValueError("max_size must be at least 1")
        self.max_size = max_size
        self.on_evict = on_evict
        self.hits = 0
        self.misses = 0
        self._items = OrderedDict()

    def __getitem__(self, key):
        try:
            value = self._items[key]
        except KeyError:
            self.misses += 1
            raise
        self.hits += 1
        self._items.move_to_end(key)
        return value

    def __setitem__(self, key, value):
        self._items[key] = value
        self._items.move_to_end(key)
        while len(self._items) > self.max_size:
            old_key, old_value = self._items.popitem(last=False)
            if self.on_evict is not None:
                self.on_evict(old_key, old_value)

    def __delitem__(self, key):
        del self._items[key]

    def __contains__(self, key):
        # A mere test does not count as use.
        return key in self._items

    def __iter__(self):
        return iter(self._items)

    def __len__(self):
        return len(self._items)

    def __repr__(self):
        return "<%s: %d of %d items>" % (type(self).__name__, len(self),
                                         self.max_size)

    def info(self):
        """Return a named tuple with the counters of the cache."""
        return CacheInfo(self.hits, self.misses, len(self), self.max_size)


class TTLCache(LRUCache):
    """An LRUCache whose items expire *ttl* seconds after they were set.

    The argument *clock* is a function that returns the time in seconds; the
    tests replace it so that they do not have to wait.
    """

    def __init__(self, max_size, ttl, clock=time.monotonic, on_evict=None):
        super().__init__(max_size, on_evict)
        if ttl <= 0:
            raise ValueError("ttl must be positive")
        self.ttl = ttl
        self.clock = clock
        self._deadlines = {}

    def __getitem__(self, key):
        deadline = self._deadlines.get(key)
        if deadline is not None and deadline <= self.clock():
            del self[key]
        return super().__getitem__(key)

    def __setitem__(self, key, value):
        self._deadlines[key] = self.clock() + self.ttl
        super().__setitem__(key, value)
        # The base class may have dropped an item to make room.
        if len(self._deadlines) > len(self._items):
            for old_key in self._deadlines.keys() - self._items.keys():
                del self._deadlines[old_key]

    def __delitem__(self, key):
        super().__delitem__(key)
        self._deadlines.pop(key, None)

    def __contains__(self, key):
        return super().__contains__(key) \
            and self._deadlines[key] > self.clock()

    def expire(self):
        """Remove all the items whose time is over; return their number."""
        now = self.clock()
        old_keys = [k for k, t in self._deadlines.items() if t <= now]
        for key in old_keys:
            del self[key]
        return len(old_keys)


def cached(cache, key=None):
    """Decorator that stores the results of a function in *cache*.

    The function *key* computes the key from the arguments of the call; by
    default it is a tuple of all the arguments.  The lock is not held while
    the function runs, so two threads may compute the same value at the same
    time; the value that is ready first wins.
    """
    lock = threading.Lock()

    def make_key(*args, **kwargs):
        if kwargs:
            return args, tuple(sorted(kwargs.items()))
        return args

    key_function = key or make_key

    def decorator(function):

        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            k = key_function(*args, **kwargs)
            with lock:
                value = cache.get(k, _missing)
            if value is not _missing:
                return value
            value = function(*args, **kwargs)
            with lock:
                return cache.setdefault(k, value)

        wrapper.cache = cache
        wrapper.cache_lock = lock
        return wrapper

    return decorator
