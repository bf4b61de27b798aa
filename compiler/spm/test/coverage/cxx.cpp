// C++ containers, views, lambdas and threads. Names are groups of the table: FORM_kernel.
#include <cstddef>
#include <thread>
#include <vector>

// std::span is of C++20; this is what it is.
template <typename T> struct span {
  T *first;
  std::size_t count;
  T &operator[](std::size_t at) const { return first[at]; }
  T *begin() const { return first; }
  T *end() const { return first + count; }
  std::size_t size() const { return count; }
};

void vector_add(std::vector<double> &a, const std::vector<double> &b) {
  for (std::size_t round = 0; round < 100; ++round)
    for (std::size_t i = 0; i < a.size(); ++i)
      a[i] += b[i];
}

double vector_range(const std::vector<double> &a) {
  double sum = 0;
  for (int round = 0; round < 100; ++round)
    for (double x : a)
      sum = sum * 0.5 + x;
  return sum;
}

struct matrix {
  std::vector<double> data;
  long n;
  double &operator()(long i, long j) { return data[i * n + j]; }
};

void vector_product(matrix &a, matrix &b, matrix &c) {
  for (long i = 0; i < a.n; ++i)
    for (long j = 0; j < a.n; ++j) {
      double sum = 0;
      for (long k = 0; k < a.n; ++k)
        sum += a(i, k) * b(k, j);
      c(i, j) = sum;
    }
}

void span_scale(span<double> a, span<const double> b) {
  for (int round = 0; round < 100; ++round)
    for (std::size_t i = 0; i < a.size(); ++i)
      a[i] = 2 * b[i] + a[i];
}

double span_range(span<double> a) {
  double sum = 0;
  for (int round = 0; round < 100; ++round)
    for (double x : a)
      sum = sum * 0.5 + x;
  return sum;
}

void lambda_thread(std::vector<double> &a, std::vector<double> &b, long n) {
  std::thread worker([&] {
    for (long i = 0; i < n; ++i)
      for (long j = 0; j < n; ++j)
        a[i * n + j] += b[j * n + i];
  });
  worker.join();
}

void lambda_by_value(double *a, double *b, long n) {
  std::thread worker([=] {
    for (long i = 0; i < n; ++i)
      for (long j = 0; j < n; ++j)
        a[i * n + j] += b[j * n + i];
  });
  worker.join();
}

void rows_add(std::vector<std::vector<double>> &a) {
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[i].size(); ++j)
      a[i][j] += 1;
}
