# Finds the Rust toolchain; sourced by the other scripts.
# shellcheck shell=sh

# The oldest Rust that builds this, 1.N; Cargo.toml's rust-version says the same.
RUST_MINOR=88

# Whether the cargo in directory $1 is new enough.
rust_is_new_enough() {
    minor=$("$1/cargo" --version 2>/dev/null | sed -n 's/^cargo 1\.\([0-9]*\)\..*/\1/p')
    [ -n "$minor" ] && [ "$minor" -ge "$RUST_MINOR" ]
}

# Prints the directory of a cargo that is new enough; fails if there is none. Searches PATH, where
# rustup puts it, and where Ubuntu puts its versioned packages, newest first.
rust_dir() {
    in_path=$(command -v cargo || true)
    for dir in "${in_path%/cargo}" "${CARGO_HOME:-${HOME:-/nowhere}/.cargo}/bin" $(printf '%s\n' /usr/lib/rust-1.*/bin | sort -t. -k2 -rn); do
        if [ -x "$dir/cargo" ] && rust_is_new_enough "$dir"; then
            echo "$dir"
            return
        fi
    done
    return 1
}
