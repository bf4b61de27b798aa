/* The generator that the NAS report specifies: x' = 5^13 x mod 2^46, and x / 2^46 as a number below 1. */
#ifndef HPC_RANDOM_H
#define HPC_RANDOM_H
#include <stdint.h>

static uint64_t random_state = 314159265;

static inline double next_random(void)
{
	random_state = (random_state * 1220703125u) & ((UINT64_C(1) << 46) - 1);
	return (double)random_state / (double)(UINT64_C(1) << 46);
}
#endif
