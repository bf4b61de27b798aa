"""The programs: ours with five shares of serial time, and two real ones; what they are given, and whether they did right."""
import hashlib, os, random, subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
SHARES = (0, 10, 25, 50, 75)
OURS = [f"serial-{share}" for share in SHARES]
# Two that everybody has who builds programs.
REAL = ["sort", "make"]
NAMES = OURS + REAL
# Chosen so that each takes some 4 s on the machine of docs/results/asymmetric.md while all its PUs are alike; --length-ms is for
# all of them.
USUAL_MS = 4000
LINES = 4_400_000
FILES, FUNCTIONS = 8, 9


class Wrong(Exception):
    """What a program did is not what it should have done: one line."""


class Programs:
    """Inputs in a folder, and what is known to be right."""

    def __init__(self, folder, length_ms=USUAL_MS, threads=2):
        self.inputs = Path(folder) / "inputs"
        self.length_ms = length_ms
        self.threads = threads
        self.right = {}  # what each printed or wrote when it first ran

    def prepare(self):
        """Makes the inputs: the same bytes everywhere."""
        self.inputs.mkdir(parents=True)
        subprocess.run(["cc", "-O2", "-Wall", "-pthread", "-o", self.inputs / "serial", HERE / "serial.c"], check=True)
        scale = self.length_ms / USUAL_MS
        rng = random.Random(7)
        lines = (f"{rng.getrandbits(64):x} {number}\n" for number in range(max(1000, round(LINES * scale))))
        (self.inputs / "lines").write_text("".join(lines))
        sources(self.inputs, max(1, round(FUNCTIONS * scale)), rng)

    def digests(self):
        """SHA-256 of every input but what a compiler made."""
        paths = sorted(path for path in self.inputs.iterdir() if path.name != "serial")
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}

    def command(self, name, options=()):
        """A program's words. It works in the folder that it begins in."""
        if name == "sort":
            return ["sort", f"--parallel={self.threads}", "-S", "1G", "-T", ".", "-o", "sorted", str(self.inputs / "lines")]
        if name == "make":
            return ["make", "-s", f"-j{self.threads}", "-f", str(self.inputs / "Makefile"), f"SOURCES={self.inputs}"]
        share = name.split("-")[1]
        spins = {"spin": ["--spin"], "lock": ["--spin-lock"]}.get(name.rsplit("-", 1)[1], [])
        return [str(self.inputs / "serial"), "--serial", share, "--threads", str(self.threads),
                "--length", str(self.length_ms), *spins, *options]

    def check(self, name, folder, printed):
        """Raises Wrong unless the program did what it did when it first ran."""
        found = self.outcome(name, Path(folder), printed)
        if self.right.setdefault(name, found) != found:
            raise Wrong(f"{name}: expected {self.right[name]}, found {found}")

    def outcome(self, name, folder, printed):
        """A line that is the same for all runs that are right."""
        if name == "sort":
            path = folder / "sorted"
            if not path.exists():
                raise Wrong("sort: wrote no file")
            if name not in self.right and subprocess.run(["sort", "-c", path], env=environment()).returncode:
                raise Wrong("sort: what it wrote is not sorted")
            return hashlib.sha256(path.read_bytes()).hexdigest()
        if name == "make":
            # The link names temporary files in the program, so its bytes differ, and what it does must not.
            done = subprocess.run([folder / "program"], stdout=subprocess.PIPE, text=True)
            if done.returncode:
                raise Wrong(f"make: its program ended with {done.returncode}")
            return done.stdout.strip()
        words = printed.split()
        if len(words) != 1:
            raise Wrong(f"{name}: expected a checksum, found {printed!r}")
        return words[0]


def environment():
    """What every program is started with."""
    return {**os.environ, "LC_ALL": "C", "MAKEFLAGS": ""}


def function(name, rng):
    """A C function with loops and branches for a compiler to think about."""
    body = []
    for _ in range(6):
        a, b, c = rng.randrange(3, 99), rng.randrange(3, 99), rng.randrange(2, 9)
        body.append(f"    for (unsigned i = 0; i < {a}u; i++) {{ if ((x ^ i) % {c}u) x = x * {2 * b + 1}u + t[i % 16];"
                    f" else t[(x + i) % 16] ^= x >> {c}; }}")
        body.append(f"    switch (x % {c + 3}u) {{ case 0: x += {a}u; break; case 1: x ^= t[{a % 16}]; break;"
                    f" case 2: x = x << {c} | x >> {32 - c}; break; default: x -= {b}u; }}")
    return "\n".join([f"unsigned {name}(unsigned x, unsigned *t) {{", *body, "    return x;", "}"])


def sources(folder, functions, rng):
    """C files and a Makefile that compiles them side by side and optimises all of them once more in one link."""
    names = []
    for file in range(FILES):
        ours = [f"f{file}_{number}" for number in range(functions)]
        (folder / f"part{file}.c").write_text("\n".join(function(name, rng) for name in ours) + "\n")
        names += ours
    declared = "\n".join(f"unsigned {name}(unsigned, unsigned *);" for name in names)
    called = "\n".join(f"    x = {name}(x, t);" for name in names)
    (folder / "main.c").write_text(f"#include <stdio.h>\n{declared}\nint main(void) {{\n    unsigned t[16] = {{1, 2, 3}}, x = 1;\n"
                                   f"{called}\n    printf(\"%u\\n\", x);\n    return 0;\n}}\n")
    (folder / "Makefile").write_text(
        "PARTS = main " + " ".join(f"part{file}" for file in range(FILES)) + "\n"
        "FLAGS = -O2 -flto -ffat-lto-objects\n"
        "program: $(PARTS:=.o)\n\tgcc -O2 -flto=1 -flto-partition=one -o $@ $^\n"
        "%.o: $(SOURCES)/%.c\n\tgcc $(FLAGS) -frandom-seed=$* -c -o $@ $<\n")
