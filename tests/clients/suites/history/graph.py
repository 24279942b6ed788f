"""A graph of dependencies between transactions, and the search for cycles in it."""

from collections import deque

WW, WR, RW, RT = "ww", "wr", "rw", "rt"


def components(nodes, successors):
    """The number of each node's strongly connected component (Tarjan's algorithm, without recursion)."""
    index, low, component, stack = {}, {}, {}, []
    count = 0
    for root in nodes:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        work = [(root, iter(successors(root)))]
        while work:
            node, rest = work[-1]
            for after in rest:
                if after not in index:
                    index[after] = low[after] = len(index)
                    stack.append(after)
                    work.append((after, iter(successors(after))))
                    break
                if after not in component:
                    low[node] = min(low[node], index[after])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == index[node]:
                    while True:
                        member = stack.pop()
                        component[member] = count
                        if member == node:
                            break
                    count += 1
    return component


def shortest_path(start, goal, successors):
    """The nodes of the shortest path, both ends included, or None."""
    came_from = {start: None}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        if node == goal:
            path = []
            while node is not None:
                path.append(node)
                node = came_from[node]
            return path[::-1]
        for after in successors(node):
            if after not in came_from:
                came_from[after] = node
                waiting.append(after)
    return None


class Graph:
    """Transactions by number, and edges between them; each edge has kinds, and each kind a reason for people."""

    def __init__(self, size):
        self.edges = [{} for _ in range(size)]

    def add(self, before, after, kind, reason):
        if before != after:
            self.edges[before].setdefault(after, {}).setdefault(kind, reason)

    def of_kind(self, kind):
        """The edges of one kind."""
        for before, found in enumerate(self.edges):
            for after, kinds in found.items():
                if kind in kinds:
                    yield before, after

    def steps(self, kinds):
        """A function from a node to its successors over edges of these kinds."""

        def successors(node):
            return [after for after, found in self.edges[node].items() if not kinds.isdisjoint(found)]

        return successors

    def steps_apart(self, kinds):
        """The same over states (node, came over rw): after an rw edge only edges of `kinds`, which are no rw, follow.

        So a cycle of states is one in which no two rw edges are neighbours.
        """

        def successors(state):
            node, over_rw = state
            for after, found in self.edges[node].items():
                if not kinds.isdisjoint(found):
                    yield after, False
                if RW in found and not over_rw:
                    yield after, True

        return successors

    def states(self):
        return [(node, over_rw) for node in range(len(self.edges)) for over_rw in (False, True)]

    def describe(self, path, kinds):
        """A cycle in words: a path, and the edge from its last node to its first. `kinds` names that of each edge."""
        lines = []
        for before, after, kind in zip(path, path[1:] + path[:1], kinds):
            lines.append(f"T{before} -{kind}-> T{after}: {self.edges[before][after][kind]}")
        return "\n".join(lines)

    def kind_among(self, before, after, kinds):
        """The first of the kinds that the edge has."""
        return next(kind for kind in kinds if kind in self.edges[before][after])
