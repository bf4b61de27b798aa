"""Cheapest perfect matching by NetworkX, for comparison.

Reads the number of vertices and the upper triangle of the costs, prints the processor time of the
matching in milliseconds, without the building of the graph, and its cost.
"""

import sys
import time

import networkx


def main():
    words = sys.stdin.read().split()
    n, costs = int(words[0]), [int(word) for word in words[1:]]
    if len(costs) != n * (n - 1) // 2:
        sys.exit(f"expected {n * (n - 1) // 2} costs of {n} vertices, found {len(costs)}")
    # It looks for the heaviest matching, so a weight is what a cost lacks to the greatest.
    most = max(costs, default=0)
    pairs = [(a, b) for a in range(n) for b in range(a + 1, n)]
    graph = networkx.Graph()
    graph.add_nodes_from(range(n))
    graph.add_weighted_edges_from((a, b, most - cost) for (a, b), cost in zip(pairs, costs))
    begin = time.process_time()
    found = networkx.max_weight_matching(graph, maxcardinality=True)
    took = time.process_time() - begin
    if 2 * len(found) != n:
        sys.exit(f"expected {n // 2} pairs, found {len(found)}")
    print(f"{took * 1e3:.3f} {sum(most - graph[a][b]['weight'] for a, b in found)}")


main()
