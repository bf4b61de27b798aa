/* A program whose memory is in a file of a FUSE server that never answers.
 *
 *     unanswered FOLDER code|lock
 *
 * Serves the folder from a child process, maps a file of it, prints a line, and has two threads that compute.
 * code: one after the other, further threads compute on a page of their own, over which the file is mapped while they do: what reads
 * the code that they were sampled at does not come back.
 * lock: a thread reads the mapped file through /proc/self/mem, which holds the lock of the process's mappings for ever, and another one
 * waits to change them: what reads arguments, environment or mappings does not come back.
 * All ends with the program: once the server has ended, all readings fail. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define SERVED_B (64 * PAGE)
#define READERS 60

static void reply(int fuse, uint64_t unique, int error, const void *body, size_t length)
{
    struct fuse_out_header head = {.len = sizeof head + length, .error = error, .unique = unique};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)body, length}};
    if (writev(fuse, parts, 2) < 0 && errno != ENOENT)
        exit(1);
}

static struct fuse_attr attributes(uint64_t node)
{
    struct fuse_attr of = {.ino = node, .nlink = 1, .blksize = PAGE};
    of.mode = node == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0755;
    of.size = node == FUSE_ROOT_ID ? 0 : SERVED_B;
    return of;
}

/* Answers everything but readings. */
static void serve(int fuse)
{
    static char buffer[1 << 18];
    for (;;) {
        ssize_t got = read(fuse, buffer, sizeof buffer);
        if (got < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT))
            continue;
        if (got < (ssize_t)sizeof(struct fuse_in_header))
            exit(0);
        const struct fuse_in_header *in = (void *)buffer;
        switch (in->opcode) {
        case FUSE_INIT: {
            struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION, .max_write = PAGE};
            reply(fuse, in->unique, 0, &out, sizeof out);
            break;
        }
        case FUSE_LOOKUP: {
            struct fuse_entry_out out = {.nodeid = 2, .entry_valid = 3600, .attr_valid = 3600, .attr = attributes(2)};
            reply(fuse, in->unique, 0, &out, sizeof out);
            break;
        }
        case FUSE_GETATTR: {
            struct fuse_attr_out out = {.attr_valid = 3600, .attr = attributes(in->nodeid)};
            reply(fuse, in->unique, 0, &out, sizeof out);
            break;
        }
        case FUSE_OPEN:
        case FUSE_OPENDIR: {
            struct fuse_open_out out = {.fh = 1};
            reply(fuse, in->unique, 0, &out, sizeof out);
            break;
        }
        case FUSE_RELEASE:
            reply(fuse, in->unique, 0, NULL, 0);
            break;
        case FUSE_READ:
        case FUSE_FORGET:
        case FUSE_BATCH_FORGET:
        case FUSE_INTERRUPT:
            break;
        default:
            reply(fuse, in->unique, -ENOSYS, NULL, 0);
        }
    }
}

static void *compute(void *unused)
{
    for (volatile unsigned long count = 0;; count++)
        ;
    return unused;
}

/* x86-64: a loop that adds to memory for ever. */
static const unsigned char LOOP[] = {0x48, 0xff, 0x07, 0xeb, 0xfb};

struct reader {
    void (*code)(unsigned long *);
    unsigned long count;
    clockid_t clock;
};

static void *run(void *given)
{
    struct reader *reader = given;
    reader->code(&reader->count);
    return NULL;
}

static void *place(int file, void *at, int flags)
{
    int kind = file < 0 ? MAP_ANONYMOUS | MAP_PRIVATE : MAP_PRIVATE;
    int may = file < 0 ? PROT_READ | PROT_WRITE | PROT_EXEC : PROT_READ | PROT_EXEC;
    void *found = mmap(at, PAGE, may, kind | flags, file, 0);
    if (found == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return found;
}

static void *mapped;

static void *hold_lock(void *unused)
{
    char byte;
    int own = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    if (pread(own, &byte, 1, (off_t)(uintptr_t)mapped) != 1)
        return unused;
    return unused;
}

static void *wait_for_lock(void *unused)
{
    usleep(300000);
    place(-1, NULL, 0);
    return unused;
}

int main(int count, char **words)
{
    static char folder[PAGE], options[200], path[PAGE + 10];
    if (count != 3)
        return 2;
    snprintf(folder, sizeof folder, "%s", words[1]);
    int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
    if (fuse < 0 || mount("unanswered", folder, "fuse", MS_NOSUID | MS_NODEV, options) < 0) {
        perror("fuse");
        return 77;
    }
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, "unanswered-fs");
        alarm(60); /* what reads /proc, as ps does, waits until then */
        serve(fuse);
    }
    close(fuse);
    snprintf(path, sizeof path, "%s/code", folder);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    umount2(folder, MNT_DETACH);
    if (file < 0) {
        perror(path);
        return 1;
    }
    pthread_t thread;
    for (int number = 0; number < 2; number++)
        pthread_create(&thread, NULL, compute, NULL);
    static struct reader readers[READERS];
    if (!strcmp(words[2], "lock")) {
        mapped = place(file, NULL, 0);
        pthread_t waits;
        /* First, for a thread's stack is mapped, which waits for the lock as well. */
        pthread_create(&waits, NULL, wait_for_lock, NULL);
        pthread_create(&thread, NULL, hold_lock, NULL);
        sleep(1);
    }
    puts("unanswered");
    fflush(stdout);
    for (int number = 0;; number++) {
        struct reader *reader = &readers[number % READERS];
        struct timespec ran = {0}, moment = {.tv_nsec = 5000000};
        if (number >= READERS || mapped) {
            sleep(1);
            continue;
        }
        void *page = place(-1, NULL, 0);
        memcpy(page, LOOP, sizeof LOOP);
        reader->code = (void (*)(unsigned long *))(uintptr_t)page;
        pthread_create(&thread, NULL, run, reader);
        pthread_getcpuclockid(thread, &reader->clock);
        while (ran.tv_sec == 0 && ran.tv_nsec < 30000000) {
            nanosleep(&moment, NULL);
            clock_gettime(reader->clock, &ran);
        }
        place(file, page, MAP_FIXED);
        usleep(100000);
    }
}
