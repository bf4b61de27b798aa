# make           build colocate
# make study     build colocate-study, the laboratory: simulations, published studies, training, traces
# make demo      build, then profile, plan and run two real programs (scripts/demo)
# make test      every check there is (scripts/test)
# make tracer    the QEMU and its plugin that `colocate profile --backend emulate` needs
# make compiler  the compiler pass and runtime that `colocate cc` needs (docs/guide/compile.md)
# make lab       what is proved on real kernels in guests; quick is in make test, SIZE=full takes half an hour
# make bench     speed, as ratios
# make fuzz      every fuzz target for SECONDS seconds
# make install   what make has built into PREFIX, with documents, manual pages and completions; below DESTDIR, if that is set
# make uninstall what make install has written
# All but the last two first install what is missing (scripts/install).

# The environment may set PREFIX and DESTDIR, as packagers do.
PREFIX ?= /usr/local
SECONDS = 60
SIZE = quick
CARGO = scripts/with-rust cargo
# Where cargo builds: what the environment names, else its default.
BUILT = $${CARGO_TARGET_DIR:-target}/release/colocate

.POSIX:
.PHONY: all study demo test tracer compiler lab bench fuzz install uninstall

all:
	scripts/install build
	$(CARGO) build --release --locked -p colocate

study:
	scripts/install build
	$(CARGO) build --release --locked -p colocate-study-cli

demo:
	scripts/install demo
	$(CARGO) build --release --locked -p colocate -p colocate-study-cli
	scripts/demo "$(BUILT)"

test:
	scripts/install test
	scripts/with-rust scripts/test

tracer:
	scripts/install test
	scripts/build-qemu
	$(CARGO) build --release --locked -p colocate-tracer

compiler:
	scripts/install test
	scripts/build-compiler

lab:
	scripts/install test
	$(CARGO) lab test $(SIZE)

bench:
	scripts/install bench
	$(CARGO) bench --locked -p colocate-benches

fuzz:
	scripts/install test
	scripts/with-rust scripts/fuzz all $(SECONDS)

# Copies only: root need not have a Rust of its own, nor build in this folder.
install:
	@[ -x "$(BUILT)" ] || { echo "install: expected $(BUILT), found none; run make first" >&2; exit 1; }
	scripts/install-files "$(BUILT)" "$(PREFIX)" "$(DESTDIR)"

uninstall:
	scripts/install-files --remove "$(PREFIX)" "$(DESTDIR)"
