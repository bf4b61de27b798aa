/* Like NAS IS: ranks of keys by counting, again and again with two keys changed, then a sorted copy.
 *
 *	is KEYS ROUNDS
 */
#include "random.h"
#include <stdio.h>
#include <stdlib.h>

enum { KEY_BITS = 19, KEYS_THERE = 1 << KEY_BITS, BUCKETS = 1 << 10, SHIFT = KEY_BITS - 10 };

static unsigned rank_of[KEYS_THERE + 1];
static unsigned bucket_at[BUCKETS + 1];

/* Keys by bucket first, as the report's version does, so that the counters of a bucket fit into a cache. */
static void rank(const unsigned *keys, unsigned *by_bucket, long count)
{
	for (int b = 0; b <= BUCKETS; b++)
		bucket_at[b] = 0;
	for (long i = 0; i < count; i++)
		bucket_at[(keys[i] >> SHIFT) + 1]++;
	for (int b = 0; b < BUCKETS; b++)
		bucket_at[b + 1] += bucket_at[b];
	for (long i = 0; i < count; i++)
		by_bucket[bucket_at[keys[i] >> SHIFT]++] = keys[i];
	for (long k = 0; k <= KEYS_THERE; k++)
		rank_of[k] = 0;
	for (long i = 0; i < count; i++)
		rank_of[by_bucket[i] + 1]++;
	for (long k = 0; k < KEYS_THERE; k++)
		rank_of[k + 1] += rank_of[k];
}

int main(int argc, char **argv)
{
	long count = argc > 1 ? atol(argv[1]) : 1 << 20, rounds = argc > 2 ? atol(argv[2]) : 10;
	unsigned *keys = malloc(count * sizeof *keys), *by_bucket = malloc(count * sizeof *keys);

	if (!keys || !by_bucket || count < 1 || rounds < 1)
		return 1;
	for (long i = 0; i < count; i++)
		keys[i] = (next_random() + next_random() + next_random() + next_random()) / 4 * KEYS_THERE;
	for (long round = 0; round < rounds; round++) {
		keys[round % count] = round;
		keys[(count + round) / 2] = KEYS_THERE - 1 - round;
		rank(keys, by_bucket, count);
	}
	for (long i = 0; i < count; i++)
		by_bucket[rank_of[keys[i]]++] = keys[i];
	for (long i = 1; i < count; i++)
		if (by_bucket[i - 1] > by_bucket[i])
			return 1;
	printf("%u %u\n", by_bucket[0], by_bucket[count - 1]);
	return 0;
}
