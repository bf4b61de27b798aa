# Repeated string instructions count once, however often they repeat: 6 + 10 * 7 + 3 * 6 of them.
# QEMU leaves and enters them anew after every 65,536 repetitions. The second loop jumps straight
# to one, so that a block begins there; two of its four counts are below and above that number.
        .globl  _start
_start: sub     $1048576, %rsp
        movl    $10, %r8d
1:      mov     %rsp, %rdi
        movl    $300000, %ecx
        rep stosb                       # store
        mov     %rsp, %rdi
        mov     $200000, %ecx
        decl    %r8d
        jnz     1b
        movl    $3, %r8d
2:      imul    $60000, %r8d, %ecx
        mov     %rsp, %rsi
        jmp     3f
3:      rep lodsb                       # load
        decl    %r8d
        jnz     2b
        movl    $231, %eax
        xorl    %edi, %edi
        syscall
