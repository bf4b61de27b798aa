/* Says how many threads a parallel region has. */
#include <omp.h>
#include <stdio.h>

int main(void)
{
#pragma omp parallel
#pragma omp single
    printf("threads %d\n", omp_get_num_threads());
    return 0;
}
