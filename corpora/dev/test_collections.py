"""Unit tests for intervals, caches and digraph."""

import random
import unittest

from caches import CacheInfo, LRUCache, TTLCache, cached
from digraph import CycleError, Digraph, GraphError
from intervals import IntervalSet, format_ranges, parse_ranges


class IntervalSetTest(unittest.TestCase):

    def test_empty(self):
        s = IntervalSet()
        self.assertFalse(s)
        self.assertEqual(len(s), 0)
        self.assertEqual(list(s), [])
        self.assertNotIn(0, s)

    def test_add_keeps_order(self):
        s = IntervalSet([(10, 12), (1, 3), (5, 6)])
        self.assertEqual(list(s.intervals()), [(1, 3), (5, 6), (10, 12)])

    def test_add_merges(self):
        s = IntervalSet([(1, 3), (5, 7)])
        s.add(3, 5)
        self.assertEqual(s, IntervalSet([(1, 7)]))

    def test_add_swallows(self):
        s = IntervalSet([(1, 2), (4, 5), (7, 8), (20, 30)])
        s.add(0, 10)
        self.assertEqual(s, IntervalSet([(0, 10), (20, 30)]))

    def test_add_empty_interval(self):
        s = IntervalSet([(1, 3)])
        s.add(2, 2)
        s.add(9, 9)
        self.assertEqual(s, IntervalSet([(1, 3)]))

    def test_add_backwards(self):
        self.assertRaises(ValueError, IntervalSet().add, 3, 1)

    def test_discard_splits(self):
        s = IntervalSet([(0, 10)])
        s.discard(3, 5)
        self.assertEqual(s, IntervalSet([(0, 3), (5, 10)]))

    def test_gaps(self):
        s = IntervalSet([(2, 4), (6, 8)])
        self.assertEqual(list(s.gaps(0, 10)), [(0, 2), (4, 6), (8, 10)])
        self.assertEqual(list(s.gaps(3, 7)), [(4, 6)])
        self.assertEqual(list(s.gaps(2, 4)), [])

    def test_against_builtin_set(self):
        rng = random.Random(17)
        for _ in range(200):
            s, reference = IntervalSet(), set()
            for _ in range(rng.randrange(12)):
                start = rng.randrange(50)
                stop = start + rng.randrange(10)
                if rng.random() < 0.6:
                    s.add(start, stop)
                    reference.update(range(start, stop))
                else:
                    s.discard(start, stop)
                    reference.difference_update(range(start, stop))
            self.assertEqual(set(s), reference)
            self.assertEqual(len(s), len(reference))
            self.assertEqual(s, IntervalSet.from_values(reference))

    def test_operators(self):
        a = parse_ranges("1-10,20-30")
        b = parse_ranges("5-25")
        self.assertEqual(format_ranges(a | b), "1-30")
        self.assertEqual(format_ranges(a & b), "5-10,20-25")
        self.assertEqual(format_ranges(a - b), "1-4,26-30")

    def test_parse_errors(self):
        for text in ("x", "1-", "3-1", "1--2"):
            with self.subTest(text=text):
                self.assertRaises(ValueError, parse_ranges, text)


class FakeClock:

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class CacheTest(unittest.TestCase):

    def test_evicts_least_recently_used(self):
        evicted = []
        cache = LRUCache(2, on_evict=lambda k, v: evicted.append((k, v)))
        cache["a"] = 1
        cache["b"] = 2
        self.assertEqual(cache["a"], 1)
        cache["c"] = 3
        self.assertEqual(evicted, [("b", 2)])
        self.assertCountEqual(cache, ["a", "c"])

    def test_counters(self):
        cache = LRUCache(3)
        cache["x"] = 0
        cache["x"]
        with self.assertRaises(KeyError):
            cache["y"]
        self.assertEqual(cache.info(), CacheInfo(1, 1, 1, 3))

    def test_size_must_be_positive(self):
        self.assertRaises(ValueError, LRUCache, 0)

    def test_expiry(self):
        clock = FakeClock()
        cache = TTLCache(10, ttl=5, clock=clock)
        cache["a"] = 1
        clock.now = 3.0
        cache["b"] = 2
        clock.now = 5.0
        self.assertNotIn("a", cache)
        self.assertIn("b", cache)
        self.assertRaises(KeyError, cache.__getitem__, "a")
        clock.now = 8.0
        self.assertEqual(cache.expire(), 1)
        self.assertEqual(len(cache), 0)

    def test_decorator_calls_once(self):
        calls = []

        @cached(LRUCache(4))
        def double(x, y=0):
            calls.append(x)
            return 2 * x + y

        self.assertEqual(double(2), 4)
        self.assertEqual(double(2), 4)
        self.assertEqual(double(2, y=1), 5)
        self.assertEqual(calls, [2, 2])
        self.assertEqual(double.__name__, "double")


class DigraphTest(unittest.TestCase):

    def setUp(self):
        self.graph = Digraph([("a", "b", 4), ("a", "c", 1), ("c", "b", 2),
                              ("b", "d", 5)])

    def test_shortest_path(self):
        self.assertEqual(self.graph.shortest_path("a", "d"),
                         (8, ["a", "c", "b", "d"]))
        self.assertEqual(self.graph.shortest_path("a", "a"), (0, ["a"]))

    def test_no_path(self):
        with self.assertRaises(GraphError):
            self.graph.shortest_path("d", "a")
        with self.assertRaises(KeyError):
            self.graph.shortest_path("a", "z")

    def test_topological_order(self):
        order = self.graph.topological_order()
        for source, target, _ in self.graph.edges():
            self.assertLess(order.index(source), order.index(target))

    def test_cycle(self):
        self.graph.add_edge("d", "c")
        with self.assertRaises(CycleError) as cm:
            self.graph.topological_order()
        cycle = cm.exception.cycle
        self.assertEqual(cycle[0], cycle[-1])
        for source, target in zip(cycle, cycle[1:]):
            self.assertIn(target, self.graph.successors(source))

    def test_components(self):
        self.graph.add_edge("d", "c")
        self.graph.add_node("e")
        components = self.graph.components()
        self.assertCountEqual(components, [{"a"}, {"b", "c", "d"}, {"e"}])

    def test_long_chain(self):
        n = 5000
        graph = Digraph((i, i + 1) for i in range(n))
        self.assertEqual(len(graph.components()), n + 1)

    def test_remove_node(self):
        self.graph.remove_node("b")
        self.assertNotIn("b", self.graph)
        self.assertEqual(list(self.graph.edges()), [("a", "c", 1)])

    def test_reversed(self):
        back = self.graph.reversed()
        self.assertEqual(back.weight("d", "b"), 5)
        self.assertEqual(list(back.breadth_first("d")), ["d", "b", "a", "c"])


if __name__ == "__main__":
    unittest.main()
