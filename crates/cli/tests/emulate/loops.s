# Known counts: 4 instructions outside the loop, 8 in it, 1,000 times round.
        .globl  _start
_start: movl    $1000, %ecx             # no class
1:      addsd   %xmm1, %xmm0            # float
        imul    %rbx, %rdx              # int
        mov     (%rsp), %rsi            # load
        mov     %rsi, -8(%rsp)          # store
        add     %rsi, -16(%rsp)         # int, load, store
        lea     1(%rsi), %rdi           # int
        decl    %ecx                    # int
        jnz     1b                      # branch
        movl    $231, %eax              # no class
        xorl    %edi, %edi              # int
        syscall                         # no class
