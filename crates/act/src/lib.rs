//! Launch, pin, read back, journal, restore.
