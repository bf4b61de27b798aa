/* lease FILE: holds a lease on FILE, so that whoever opens or executes it waits, some 45 s at most
 * (/proc/sys/fs/lease-break-time); says when it does, and lets go when standard input closes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char byte;
    int file = argc > 1 ? open(argv[1], O_RDONLY) : -1;

    signal(SIGIO, SIG_IGN); /* the kernel tells that somebody waits */
    if (file < 0 || fcntl(file, F_SETLEASE, F_WRLCK) < 0) {
        perror("lease");
        return 1;
    }
    puts("ready");
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
    return 0;
}
