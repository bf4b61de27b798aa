//! The corpus of instructions, and any bytes at all. One binary: to link two takes longer than to run them.

mod golden;
mod robust;
