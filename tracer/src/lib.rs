//! QEMU TCG plugin that counts instructions by class and thread.
