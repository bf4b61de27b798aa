# Known distances: 1,000 times round 100 lines of 64 bytes, each read once a round; the last is written.
        .globl  _start
_start: movl    $1000, %ecx
1:      leaq    lines(%rip), %rsi
        movl    $99, %edx
2:      movq    (%rsi), %rax
        addq    $64, %rsi
        decl    %edx
        jnz     2b
        movq    %rax, (%rsi)
        decl    %ecx
        jnz     1b
        movl    $231, %eax
        xorl    %edi, %edi
        syscall
        .bss
        .balign 64
lines:  .skip   6400
