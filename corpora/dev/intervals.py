"""Sets of integers stored as sorted, disjoint, half-open intervals.

An IntervalSet behaves like a set of integers, but it needs memory only for
the borders of its runs.  It is useful for page numbers, line ranges, byte
ranges that are already downloaded and the like.

    >>> s = IntervalSet([(1, 4), (10, 12)])
    >>> 3 in s
    True
    >>> len(s)
    5
    >>> s.add(4, 10)
    >>> s
    IntervalSet([(1, 12)])

All the operations that change a set run in O(log n + k) comparisons, where
n is the number of intervals and k the number of intervals touched.
"""

from bisect import bisect_left, bisect_right

__all__ = ["IntervalSet", "parse_ranges", "format_ranges"]


class IntervalSet:
    """A mutable set of integers made of half-open intervals [start, stop)."""

    __slots__ = ("_starts", "_stops")

    def __init__(self, intervals=()):
        self._starts = []
        self._stops = []
        for start, stop in intervals:
            self.add(start, stop)

    @classmethod
    def from_values(cls, values):
        """Build a set from single integers, in any order."""
        result = cls()
        start = previous = None
        for value in sorted(set(values)):
            if start is None:
                start = value
            elif value != previous + 1:
                result.add(start, previous + 1)
                start = value
            previous = value
        if start is not None:
            result.add(start, previous + 1)
        return result

    def add(self, start, stop):
        """Add all integers from *start* up to, but not including, *stop*.

        Intervals that overlap or touch the new one are merged with it.
        """
        if start > stop:
            raise ValueError("start %r is greater than stop %r" % (start, stop))
        if start == stop:
            return
        # First interval that ends at or after start, and the first one
        # that begins after stop: everything between them is swallowed.
        lo = bisect_left(self._stops, start)
        hi = bisect_right(self._starts, stop)
        if lo < hi:
            start = min(start, self._starts[lo])
            stop = max(stop, self._stops[hi - 1])
        self._starts[lo:hi] = [start]
        self._stops[lo:hi] = [stop]

    def discard(self, start, stop):
        """Remove all integers from *start* up to, but not including, *stop*.

        It is not an error if some of them are not members.
        """
        if start >= stop:
            return
        lo = bisect_right(self._stops, start)
        hi = bisect_left(self._starts, stop)
        if lo >= hi:
            return
        starts, stops = [], []
        if self._starts[lo] < start:
            starts.append(self._starts[lo])
            stops.append(start)
        if self._stops[hi - 1] > stop:
            starts.append(stop)
            stops.append(self._stops[hi - 1])
        self._starts[lo:hi] = starts
        self._stops[lo:hi] = stops

    def intervals(self):
        """Return an iterator over the pairs (start, stop), in order."""
        return zip(self._starts, self._stops)

    def gaps(self, start, stop):
        """Yield the intervals inside [start, stop) that are not in the set."""
        position = start
        index = bisect_right(self._stops, start)
        while index < len(self._starts) and self._starts[index] < stop:
            if self._starts[index] > position:
                yield position, self._starts[index]
            position = self._stops[index]
            index += 1
        if position < stop:
            yield position, stop

    def copy(self):
        """Return a copy that can be changed without changing this set."""
        result = type(self)()
        result._starts = self._starts[:]
        result._stops = self._stops[:]
        return result

    def __contains__(self, value):
        index = bisect_right(self._starts, value) - 1
        return index >= 0 and value < self._stops[index]

    def __iter__(self):
        for start, stop in self.intervals():
            yield from range(start, stop)

    def __len__(self):
        return sum(self._stops) - sum(self._starts)

    def __bool__(self):
        return bool(self._starts)

    def __eq__(self, other):
        if not isinstance(other, IntervalSet):
            return NotImplemented
        return self._starts == other._starts and self._stops == other._stops

    __hash__ = None

    def __or__(self, other):
        if not isinstance(other, IntervalSet):
            return NotImplemented
        result = self.copy()
        for start, stop in other.intervals():
            result.add(start, stop)
        return result

    def __sub__(self, other):
        if not isinstance(other, IntervalSet):
            return NotImplemented
        result = self.copy()
        for start, stop in other.intervals():
            result.discard(start, stop)
        return result

    def __and__(self, other):
        if not isinstance(other, IntervalSet):
            return NotImplemented
        result = type(self)()
        i = j = 0
        while i < len(self._starts) and j < len(other._starts):
            start = max(self._starts[i], other._starts[j])
            stop = min(self._stops[i], other._stops[j])
            if start < stop:
                result._starts.append(start)
                result._stops.append(stop)
            # Go on with the set whose current interval ends first.
            if self._stops[i] < other._stops[j]:
                i += 1
            else:
                j += 1
        return result

    def __repr__(self):
        return "%s(%r)" % (type(self).__name__, list(self.intervals()))


def parse_ranges(text):
    """Parse a string such as '1-3,7,10-12' into an IntervalSet.

    The numbers are inclusive on both ends, as people write them.
    """
    result = IntervalSet()
    for part in text.split(","):
        part = part.strip()
        if not part:
            continue
        first, dash, last = part.partition("-")
        try:
            start = int(first)
            stop = int(last) if dash else start
        except ValueError:
            raise ValueError("invalid range: %r" % part) from None
        if stop < start:
            raise ValueError("range runs backwards: %r" % part)
        result.add(start, stop + 1)
    return result


def format_ranges(numbers):
    """Return the string that parse_ranges() would turn into *numbers*."""
    parts = []
    for start, stop in numbers.intervals():
        if stop - start == 1:
            parts.append(str(start))
        else:
            parts.append("%d-%d" % (start, stop - 1))
    return ",".join(parts)


if __name__ == "__main__":
    import doctest
    doctest.testmod()
