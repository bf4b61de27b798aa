/* A library with a call of its own, which hostile.c loads and unloads. */
long add(const char *bytes, long count, long rounds) {
  long sum = 0;
  for (long round = 0; round < rounds; ++round)
    for (long at = 0; at < count; ++at)
      sum += bytes[at] + (round & count & 1);
  return sum;
}
