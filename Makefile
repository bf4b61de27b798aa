# make           build colocate
# make study     build colocate-study, the laboratory: simulations, published studies, training, traces
# make demo      build, then profile, plan and run two real programs (scripts/demo)
# make test      every check there is (scripts/test)
# make tracer    the QEMU and its plugin that `colocate profile --backend emulate` needs
# make compiler  the compiler pass and runtime that `colocate cc` needs (docs/guide/compile.md)
# make lab       what is proved on real kernels in guests; quick is in make test, SIZE=full takes half an hour
# make book      the book of docs/ as HTML in target/book
# make bench     speed, as ratios
# make fuzz      every fuzz target for SECONDS seconds
# make install   what make has built into PREFIX, with documents, manual pages and completions; below DESTDIR, if that is set
# make uninstall what make install has written
# All but book and the last two first install what is missing (scripts/install).

# The environment may set PREFIX and DESTDIR, as packagers do.
PREFIX ?= /usr/local
SECONDS = 60
SIZE = quick
CARGO = scripts/with-rust cargo
# Where cargo builds: what the environment names, else its default.
TARGET = $${CARGO_TARGET_DIR:-target}
BUILT = $(TARGET)/dist/colocate
# Debian and Ubuntu have no mdBook: cargo builds this version once, without its server and search.
MDBOOK = 0.5.4

.POSIX:
.PHONY: all study demo test tracer compiler lab book bench fuzz install uninstall

all:
	scripts/install build
	$(CARGO) build --profile dist --locked -p colocate

study:
	scripts/install build
	$(CARGO) build --release --locked -p colocate-study-cli

demo:
	scripts/install demo
	$(CARGO) build --profile demo --locked -p colocate
	scripts/demo "$(TARGET)/demo/colocate"

test:
	scripts/install test
	scripts/with-rust scripts/test

tracer:
	scripts/install test
	scripts/build-qemu
	$(CARGO) build --release --locked -p colocate-tracer

compiler:
	scripts/install test
	compiler/spm/build

lab:
	scripts/install test
	$(CARGO) lab test $(SIZE)

# A warning of mdBook, as of a page that is missing, is an error here. The test `book` of colocate checks links and the list of pages.
book:
	@target=$${CARGO_TARGET_DIR:-target}; mkdir -p "$$target/tools"; target=$$(cd "$$target" && pwd); mdbook=$$target/tools/bin/mdbook; \
	[ "$$("$$mdbook" --version 2>/dev/null)" = "mdbook v$(MDBOOK)" ] || { \
		CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) install --quiet --debug --locked --no-default-features --version $(MDBOOK) --root "$$target/tools" \
			--target-dir "$$target/tools/build" mdbook && rm -rf "$$target/tools/build"; } || exit 1; \
	if ! "$$mdbook" build --dest-dir "$$target/book" docs 2>"$$target/tools/book.log" || \
		grep -E 'WARN|ERROR' "$$target/tools/book.log" >/dev/null; then cat "$$target/tools/book.log" >&2; exit 1; fi; \
	echo "book: $$target/book/index.html"

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
