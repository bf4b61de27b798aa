/* One parallel region, executed ROUNDS times: each of four iterations sleeps OUT microseconds and then IN in a critical
 * section, so that times depend on sleeping and hardly on who else uses the PUs. WHO says how many threads: `no` leaves it to
 * the runtime, `clause` has a num_threads clause, `call` calls omp_set_num_threads. Prints the sum and the largest team. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long sum;
static int largest;

static void iteration(int out, int in)
{
    if (out > 0)
        usleep(out);
#pragma omp critical
    {
        if (in > 0)
            usleep(in);
        sum++;
        if (omp_get_num_threads() > largest)
            largest = omp_get_num_threads();
    }
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    int rounds = atoi(argv[1]), out = atoi(argv[2]), in = atoi(argv[3]);
    const char *who = argv[4];
    if (strcmp(who, "call") == 0)
        omp_set_num_threads(2);
    for (int round = 0; round < rounds; round++) {
        if (strcmp(who, "clause") == 0) {
#pragma omp parallel for schedule(static) num_threads(2)
            for (int i = 0; i < 4; i++)
                iteration(out, in);
        } else {
#pragma omp parallel for schedule(static)
            for (int i = 0; i < 4; i++)
                iteration(out, in);
        }
    }
    printf("%ld %d\n", sum, largest);
    return 0;
}
