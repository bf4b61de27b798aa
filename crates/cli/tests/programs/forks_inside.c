/* A loop whose iterations fork children now and then. A child enters sections of its own. Prints the milliseconds of the slowest
 * child. */
#include <omp.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    double slowest = 0;
#pragma omp parallel for schedule(dynamic, 1)
    for (int i = 0; i < 2000; i++) {
#pragma omp critical(parents)
        usleep(200);
        if (i % 100 == 0) {
            double begin = omp_get_wtime();
            pid_t child = fork();
            if (child == 0) {
                for (int k = 0; k < 20; k++) {
#pragma omp critical(children)
                    usleep(200);
                }
                _exit(0);
            }
            waitpid(child, NULL, 0);
            double took = omp_get_wtime() - begin;
#pragma omp critical(parents)
            if (took > slowest) slowest = took;
        }
    }
    printf("%.0f\n", slowest * 1000);
    return 0;
}
