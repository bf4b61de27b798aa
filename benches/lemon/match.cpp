// Cheapest perfect matching by LEMON, for comparison.
//
// Reads the number of vertices and the upper triangle of the costs, prints the processor time of
// the matching in milliseconds, the building of the graph included, and its cost.
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <lemon/full_graph.h>
#include <lemon/matching.h>
#include <vector>

int main() {
  int n = 0;
  if (std::scanf("%d", &n) != 1 || n < 0) return 2;
  std::vector<int64_t> costs;
  int64_t most = 0, cost = 0;
  while (std::scanf("%ld", &cost) == 1) {
    costs.push_back(cost);
    most = cost > most ? cost : most;
  }
  if (costs.size() != static_cast<size_t>(n) * (n - 1) / 2) return 2;

  const std::clock_t begin = std::clock();
  lemon::FullGraph graph(n);
  // It looks for the heaviest matching, so a weight is what a cost lacks to the greatest.
  lemon::FullGraph::EdgeMap<int64_t> weight(graph);
  size_t at = 0;
  for (int a = 0; a < n; ++a)
    for (int b = a + 1; b < n; ++b)
      weight[graph.edge(graph(a), graph(b))] = most - costs[at++];
  lemon::MaxWeightedPerfectMatching<lemon::FullGraph, lemon::FullGraph::EdgeMap<int64_t>> matching(
      graph, weight);
  if (!matching.run()) return 1;
  const double ms = 1e3 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  std::printf("%.3f %ld\n", ms, most * (n / 2) - static_cast<int64_t>(matching.matchingWeight()));
  return 0;
}
