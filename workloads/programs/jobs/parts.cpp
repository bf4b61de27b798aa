// Code of many templates, for the compiler.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <regex>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

template <int N> struct Part {
	std::map<std::string, std::variant<int, std::string, Part<N - 1>>> parts;
	std::function<int(int)> make() const { return [n = int(parts.size())](int x) { return x * N + n; }; }
};
template <> struct Part<0> {
	std::function<int(int)> make() const { return [](int x) { return x; }; }
};

template <int N> int all(const Part<N> &part, std::vector<int> &values)
{
	std::transform(values.begin(), values.end(), values.begin(), part.make());
	std::sort(values.begin(), values.end(), [](int a, int b) { return a % N < b % N; });
	if constexpr (N > 1)
		return all(Part<N - 1>(), values) + std::accumulate(values.begin(), values.end(), N);
	return 0;
}

int main(int argc, char **argv)
{
	std::vector<int> values(argc, 7);
	std::unordered_map<std::string, std::unique_ptr<Part<6>>> known;
	known[argv[0]] = std::make_unique<Part<6>>();
	return std::regex_match(argv[0], std::regex("([a-z]+)[0-9]*")) + all(*known[argv[0]], values);
}
