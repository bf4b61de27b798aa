# 20,000,000 rounds of four multiplications, each waiting for the one before, and two instructions
# that count the rounds.
        .globl  _start
        .type   _start, @function
_start: mov     $20000000, %rcx
        mov     $3, %rax
        mov     $5, %rdx
        .p2align 6
1:      imul    %rdx, %rax
        imul    %rdx, %rax
        imul    %rdx, %rax
        imul    %rdx, %rax
        sub     $1, %rcx
        jne     1b
        mov     $60, %eax
        xor     %edi, %edi
        syscall
        .size   _start, . - _start
