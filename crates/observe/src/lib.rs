//! How programs are watched: counters, instruction-pointer samples, emulation, /proc.
