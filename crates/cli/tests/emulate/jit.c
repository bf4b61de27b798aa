/* Makes code, runs it, makes other code in the same place: 200 times, ROUNDS additions each. */
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { TIMES = 200, ROUNDS = 50 };

int main(void) {
    unsigned char *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED)
        return 1;
    for (int i = 0; i < TIMES; i++) {
        unsigned char *at = code;
        /* i % 4 different lengths, so that stale code would be noticed. */
        for (int pad = 0; pad < i % 4; pad++)
            *at++ = 0x90;
        *at++ = 0xb9; /* mov ecx, ROUNDS */
        int32_t rounds = ROUNDS;
        memcpy(at, &rounds, 4), at += 4;
        static const unsigned char loop[] = {
            0xf2, 0x0f, 0x58, 0xc0, /* addsd xmm0, xmm0 */
            0xff, 0xc9,             /* dec ecx */
            0x75, 0xf8,             /* jnz back to addsd */
            0xc3,                   /* ret */
        };
        memcpy(at, loop, sizeof loop);
        ((void (*)(void))code)();
    }
    return 0;
}
