"""Directed graphs with weights: search, ordering and components.

Nodes can be any hashable objects.  The graph is stored as a dictionary of
dictionaries, so that looking up one edge takes constant time.
"""

import heapq
from collections import deque


class GraphError(Exception):
    """Base class of the errors raised by this module."""


class CycleError(GraphError):
    """Raised if a graph that must not have a cycle has one.

    The attribute *cycle* is a list of nodes; the first one is also the last.
    """

    def __init__(self, cycle):
        super().__init__("cycle: " + " -> ".join(map(str, cycle)))
        self.cycle = cycle


class Digraph:
    """A directed graph whose edges have a weight, 1 by default."""

    def __init__(self, edges=()):
        self._successors = {}
        for edge in edges:
            self.add_edge(*edge)

    def add_node(self, node):
        """Add *node* without edges; do nothing if it exists."""
        self._successors.setdefault(node, {})

    def add_edge(self, source, target, weight=1):
        """Add an edge, or set the weight of an existing one."""
        self.add_node(source)
        self.add_node(target)
        self._successors[source][target] = weight

    def remove_edge(self, source, target):
        """Remove an edge; raise KeyError if there is none."""
        del self._successors[source][target]

    def remove_node(self, node):
        """Remove *node* and all edges that begin or end there."""
        del self._successors[node]
        for targets in self._successors.values():
            targets.pop(node, None)

    def nodes(self):
        return self._successors.keys()

    def edges(self):
        """Yield (source, target, weight) for each edge."""
        for source, targets in self._successors.items():
            for target, weight in targets.items():
                yield source, target, weight

    def successors(self, node):
        return self._successors[node].keys()

    def weight(self, source, target):
        return self._successors[source][target]

    def __contains__(self, node):
        return node in self._successors

    def __len__(self):
        return len(self._successors)

    def reversed(self):
        """Return a new graph with all edges turned around."""
        result = type(self)()
        for node in self._successors:
            result.add_node(node)
        for source, target, weight in self.edges():
            result.add_edge(target, source, weight)
        return result

    def breadth_first(self, start):
        """Yield the nodes that can be reached from *start*, near ones first."""
        seen = {start}
        queue = deque([start])
        while queue:
            node = queue.popleft()
            yield node
            for target in self._successors[node]:
                if target not in seen:
                    seen.add(target)
                    queue.append(target)

    def shortest_path(self, start, goal):
        """Return (distance, path) by Dijkstra's algorithm.

        Raise ValueError if an edge on the way has a negative weight, and
        GraphError if there is no path.
        """
        for node in (start, goal):
            if node not in self._successors:
                raise KeyError(node)
        distances = {start: 0}
        previous = {}
        done = set()
        # The counter keeps the heap from comparing nodes.
        counter = 0
        heap = [(0, counter, start)]
        while heap:
            distance, _, node = heapq.heappop(heap)
            if node in done:
                continue
            if node == goal:
                break
            done.add(node)
            for target, weight in self._successors[node].items():
                if weight < 0:
                    raise ValueError("negative weight from %r to %r"
                                     % (node, target))
                candidate = distance + weight
                if target not in distances or candidate < distances[target]:
                    distances[target] = candidate
                    previous[target] = node
                    counter += 1
                    heapq.heappush(heap, (candidate, counter, target))
        if goal not in distances:
            raise GraphError("no path from %r to %r" % (start, goal))
        path = [goal]
        while path[-1] != start:
            path.append(previous[path[-1]])
        path.reverse()
        return distances[goal], path

    def topological_order(self):
        """Return the nodes so that every edge points forward.

        Raise CycleError if that is not possible.
        """
        in_degree = dict.fromkeys(self._successors, 0)
        for _, target, _ in self.edges():
            in_degree[target] += 1
        ready = deque(n for n, degree in in_degree.items() if degree == 0)
        order = []
        while ready:
            node = ready.popleft()
            order.append(node)
            for target in self._successors[node]:
                in_degree[target] -= 1
                if in_degree[target] == 0:
                    ready.append(target)
        if len(order) < len(self._successors):
            raise CycleError(self._find_cycle(in_degree))
        return order

    def _find_cycle(self, in_degree):
        """Walk backwards among the nodes that could not be ordered."""
        left = {node for node, degree in in_degree.items() if degree > 0}
        predecessor = {}
        for source, target, _ in self.edges():
            if source in left and target in left:
                predecessor[target] = source
        node = next(iter(left))
        position = {}
        walk = []
        while node not in position:
            position[node] = len(walk)
            walk.append(node)
            node = predecessor[node]
        cycle = walk[position[node]:] + [node]
        cycle.reverse()
        return cycle

    def components(self):
        """Return the strongly connected components, as a list of sets.

        This is Tarjan's algorithm with an explicit stack, so that a long
        chain of nodes does not exceed the recursion limit.
        """
        index = {}
        low = {}
        stack = []
        on_stack = set()
        result = []
        for root in self._successors:
            if root in index:
                continue
            work = [(root, iter(self._successors[root]))]
            index[root] = low[root] = len(index)
            stack.append(root)
            on_stack.add(root)
            while work:
                node, targets = work[-1]
                for target in targets:
                    if target not in index:
                        index[target] = low[target] = len(index)
                        stack.append(target)
                        on_stack.add(target)
                        work.append((target, iter(self._successors[target])))
                        break
                    elif target in on_stack:
                        low[node] = min(low[node], index[target])
                else:
                    work.pop()
                    if work:
                        parent = work[-1][0]
                        low[parent] = min(low[parent], low[node])
                    if low[node] == index[node]:
                        component = set()
                        while True:
                            member = stack.pop()
                            on_stack.discard(member)
                            component.add(member)
                            if member == node:
                                break
                        result.append(component)
        return result
