/* 100 regions, all of whose work is in a critical section, half of it in a task that the section awaits. */
#include <omp.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
    long count = 0;
    for (int region = 0; region < 100; region++) {
#pragma omp parallel
        {
#pragma omp critical
            {
#pragma omp task
                usleep(200);
#pragma omp taskwait
                usleep(200);
                count++;
            }
        }
    }
    printf("%d\n", count > 0);
    return 0;
}
