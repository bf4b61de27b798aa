/* Updates of a table at random places.
 *
 *	gups WORDS UPDATES	WORDS a power of two
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	uint64_t words = argc > 1 ? strtoull(argv[1], NULL, 10) : 1 << 22, updates = argc > 2 ? strtoull(argv[2], NULL, 10) : 1 << 22;
	uint64_t *table = calloc(words, sizeof *table), state = 1, sum = 0;

	if (!table || words & (words - 1))
		return 1;
	for (uint64_t i = 0; i < updates; i++) {
		/* Marsaglia's xorshift. */
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		table[state & (words - 1)] ^= state;
	}
	for (uint64_t i = 0; i < words; i++)
		sum += table[i];
	printf("%llu\n", (unsigned long long)sum);
	return 0;
}
