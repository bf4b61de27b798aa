"""The programs that are recorded: what each is, how it is run, and the inputs, which are made from fixed seeds."""
import math, os, random, re, shutil, struct, subprocess
from collections import namedtuple
from pathlib import Path

HERE = Path(__file__).resolve().parent
HPC = HERE.parent / "hpc"
# What it is for, what it does, the Debian package of what runs, and the command. In commands {in} is the folder of inputs and
# of what is compiled, {jobs} that of this repository's scripts. `<` leads to a file for standard input.
Program = namedtuple("Program", "kind does package command")
OWN = "workloads/hpc"

PROGRAMS = {
    "bt": Program("hpc", "like NAS BT: block-tridiagonal systems, Fortran", OWN, "{in}/bt 24 2"),
    "cg": Program("hpc", "like NAS CG: conjugate gradients, random sparse matrix, Fortran", OWN, "{in}/cg 9000 121 1"),
    "ep": Program("hpc", "like NAS EP: pairs of Gaussian deviates, C", OWN, "{in}/ep 400000"),
    "ft": Program("hpc", "like NAS FT: Fourier transforms in three dimensions, C", OWN, "{in}/ft 64 2"),
    "is": Program("hpc", "like NAS IS: sorting by counting, C", OWN, "{in}/is 2097152 3"),
    "lu": Program("hpc", "like NAS LU: symmetric relaxation by blocks, Fortran", OWN, "{in}/lu 24 2"),
    "mg": Program("hpc", "like NAS MG: multigrid cycles, Fortran", OWN, "{in}/mg 6 2"),
    "sp": Program("hpc", "like NAS SP: systems of five diagonals, Fortran", OWN, "{in}/sp 32 2"),
    "ua": Program("hpc", "like NAS UA: heat on an adaptive mesh, C", OWN, "{in}/ua 7 3"),
    "stencil": Program("hpc", "a five-point stencil on 2 x 8 MiB, C", "workloads/accuracy", "{in}/stencil 4"),
    "stream": Program("hpc", "sums of long arrays, C", OWN, "{in}/stream 2000000 4"),
    "gups": Program("hpc", "updates at random places of 32 MiB, C", OWN, "{in}/gups 4194304 4000000"),
    "nbody": Program("hpc", "bodies that attract each other, C", OWN, "{in}/nbody 1000 4"),
    "fftw": Program("hpc", "FFTW: transforms of a cube of 64 points a side", "libfftw3-double3", "{in}/fftw 64 2"),
    "dgemm": Program("hpc", "OpenBLAS: a product of matrices of 320", "libopenblas0-pthread", "{in}/blas product 320"),
    "dsyev": Program("hpc", "LAPACK: eigenvalues of a matrix of 140", "libopenblas0-pthread", "{in}/blas eigenvalues 140"),
    "hmmsearch": Program("hpc", "HMMER: a protein family among sequences", "hmmer", "/usr/bin/hmmsearch --cpu 0 {in}/family.hmm {in}/proteins.fa"),
    "glpsol": Program("hpc", "GLPK: a linear program by the simplex method", "glpk-utils", "/usr/bin/glpsol --lp {in}/plan.lp"),
    "minisat": Program("hpc", "MiniSat: a formula of 3-literal clauses", "minisat", "/usr/bin/minisat -verb=0 {in}/formula.cnf"),
    "povray": Program("hpc", "POV-Ray: spheres that mirror each other", "povray",
                      "/usr/bin/povray +I{jobs}/scene.pov +W100 +H75 +WT1 -D -P +FN +O/dev/null"),
    "gzip": Program("server", "compresses text", "gzip", "/usr/bin/gzip -6 -n -c {in}/text"),
    "gunzip": Program("server", "decompresses text", "gzip", "/usr/bin/gzip -d -c {in}/long.gz"),
    "bzip2": Program("server", "compresses text", "bzip2", "/usr/bin/bzip2 -c {in}/part"),
    "xz": Program("server", "compresses text", "xz-utils", "/usr/bin/xz -T1 -4 -k -c {in}/short"),
    "zstd": Program("server", "compresses text", "zstd", "/usr/bin/zstd --single-thread -9 -q -k -c {in}/text"),
    "7-zip": Program("server", "compresses text", "7zip", "/usr/bin/7zz a -mmt1 -mx5 -bd -so -txz -an {in}/short"),
    "sha512": Program("server", "OpenSSL: digests", "openssl", "/usr/bin/openssl dgst -sha512 {in}/text {in}/text {in}/text"),
    "prime": Program("server", "OpenSSL: tests whether a number of 2,048 bits is prime", "openssl", "/usr/bin/openssl prime -hex {number}"),
    "sort": Program("server", "sorts lines", "coreutils", "/usr/bin/sort --parallel=1 -S 1G -o /dev/null {in}/text"),
    "grep": Program("server", "searches text by regular expressions", "grep", r"/bin/grep -cE (fox|dog)[0-9]*7|[a-c]+.*99$ {in}/text"),
    "sqlite3": Program("server", "joins, indexes and updates in memory", "sqlite3", "/usr/bin/sqlite3 :memory: < {jobs}/shop.sql"),
    "postgres": Program("server", "the same, one backend with a database on disk", "postgresql-15", "{postgres} --single -D {in}/database postgres < {jobs}/shop.sql"),
    "redis": Program("server", "a key-value store that a client writes to", "redis-server",
                     "/usr/bin/redis-server --port 0 --unixsocket {in}/socket --save '' --appendonly no"),
    "python3": Program("server", "counts words", "python3.11-minimal", "/usr/bin/python3.11 -I {jobs}/words.py {in}/part"),
    "perl": Program("server", "regular expressions and hashes", "perl-base", "/usr/bin/perl {jobs}/words.pl {in}/part"),
    "mawk": Program("server", "counts words", "mawk", "/usr/bin/mawk -f {jobs}/words.awk {in}/part"),
    "gawk": Program("server", "counts words", "gawk", "/usr/bin/gawk -f {jobs}/words.awk {in}/part"),
    "lua": Program("server", "trees, tables and sorting", "lua5.4", "/usr/bin/lua5.4 {jobs}/tree.lua 4"),
    "guile": Program("server", "Scheme: queens on a board, compiled as it runs", "guile-3.0",
                     "/usr/bin/guile-3.0 --no-auto-compile -s {jobs}/queens.scm 7"),
    "bc": Program("server", "digits of pi and e", "bc", "/usr/bin/bc -l < {jobs}/digits.bc"),
    "cc1": Program("server", "GCC: compiles C", "cpp-12", "{cc1} -quiet -O2 -fpreprocessed {in}/sums.i -o /dev/null"),
    "clang": Program("server", "Clang: compiles C", "clang-14", "{clang} -cc1 -triple x86_64-linux-gnu -O2 -S -x cpp-output {in}/sums.i -o /dev/null"),
    "as": Program("server", "assembles", "binutils-x86-64-linux-gnu", "/usr/bin/x86_64-linux-gnu-as -o /dev/null {in}/sums.s"),
    "objdump": Program("server", "disassembles", "binutils-x86-64-linux-gnu", "/usr/bin/x86_64-linux-gnu-objdump -d --no-show-raw-insn /bin/tar"),
    "x264": Program("server", "encodes video", "x264", "/usr/bin/x264 --quiet --threads 1 --preset fast -o /dev/null {in}/video.y4m"),
    "flac": Program("server", "encodes sound", "flac", "/usr/bin/flac --silent --best -c {in}/sound.wav"),
    "lame": Program("server", "encodes sound", "lame", "/usr/bin/lame --silent -b 160 {in}/short.wav /dev/null"),
    "convert": Program("server", "ImageMagick: blurs, turns and compresses a picture", "imagemagick-6.q16",
                       "/usr/bin/convert-im6.q16 -limit thread 1 {in}/picture.ppm -blur 0x2 -rotate 7 -resize 60% -quality 90 jpeg:/dev/null"),
    "gnuplot": Program("server", "plots functions and surfaces", "gnuplot-nox", "/usr/bin/gnuplot-nox {jobs}/surface.gnuplot"),
    "dot": Program("server", "Graphviz: lays out a graph", "graphviz", "/usr/bin/dot -Tsvg -o /dev/null {in}/graph.dot"),
}
# Packages beside those of the commands, that inputs and what is compiled need.
ALSO = ["gcc-12", "gfortran-12", "libfftw3-dev", "libopenblas-dev", "redis-tools"]
# The command that reaches the server of a program while it is recorded.
CLIENTS = {"redis": [["SET", "key:__rand_int__", "value"], ["LPUSH", "list", "element"], ["GET", "key:__rand_int__"]]}
# What libraries that choose code by processor must leave out, as QEMU's processor lacks it; and what would change from run to run.
ENV = {
    "OPENSSL_ia32cap": ":~0xffffffffd1ff0000",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX512DQ,-ERMS,-FSRM",
    "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MAGICK_THREAD_LIMIT": "1", "PYTHONHASHSEED": "0",
    "PERL_HASH_SEED": "0", "LC_ALL": "C", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}
COMPILED = {
    **{name: ["gcc-12", "-O2", HPC / f"{name}.c", "-lm"] for name in ("ep", "ft", "is", "ua", "stream", "gups", "nbody")},
    **{name: ["gfortran-12", "-O2", HPC / "flow.f90", HPC / f"{name}.f90"] for name in ("bt", "lu", "sp")},
    **{name: ["gfortran-12", "-O2", HPC / f"{name}.f90"] for name in ("cg", "mg")},
    "stencil": ["gcc-12", "-O2", "-DSIDE=1024", HERE.parent / "accuracy/stencil.c"],
    "fftw": ["gcc-12", "-O2", HPC / "fftw.c", "-lfftw3", "-lm"],
    "blas": ["gcc-12", "-O2", HPC / "blas.c", "-lopenblas"],
}


def version(package):
    """The installed version of a Debian package; None if it is not installed."""
    found = subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", package], capture_output=True, text=True)
    status, _, number = found.stdout.partition(" ")
    return number if status == "installed" else None


def packages(names):
    """The packages that these programs need."""
    own = {PROGRAMS[name].package for name in names if "/" not in PROGRAMS[name].package}
    return sorted(own | set(ALSO))


def run(command, **options):
    """Runs a command to its end; what it printed."""
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, **options).stdout


class Inputs:
    """Makes inputs in a folder, each when it is first needed."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def command(self, name):
        """Words of the command of a program, and the file of its standard input."""
        text = PROGRAMS[name].command
        for file in re.findall(r"\{in\}/([\w.]+)", text):
            self.make(file)
        places = {"{in}": str(self.folder), "{jobs}": str(HERE / "jobs")}
        places["{cc1}"] = run(["gcc-12", "-print-prog-name=cc1"], text=True).strip()
        places["{clang}"] = str(Path(shutil.which("clang-14") or "/usr/bin/clang-14").resolve())
        places["{postgres}"] = "/usr/lib/postgresql/15/bin/postgres"
        places["{number}"] = "7" + "F" * 510 + "9"
        for place, value in places.items():
            text = text.replace(place, value)
        command, _, stdin = text.partition(" < ")
        return [word.replace("''", "") for word in command.split(" ")], stdin or "/dev/null"

    def make(self, name):
        path = self.folder / name
        if path.exists() or name in ("socket",):
            return
        if name in COMPILED:
            modules = ["-J", self.folder] if COMPILED[name][0] == "gfortran-12" else []
            run([*COMPILED[name][:2], *modules, "-o", path, *COMPILED[name][2:]])
        else:
            MAKERS[name](self, path)

    def file(self, name):
        self.make(name)
        return self.folder / name


def words(length):
    """Text that compresses as text does."""
    rng, base = random.Random(7), "the quick brown fox jumps over a lazy dog again"
    out, have = [], 0
    while have < length:
        start, many = rng.randrange(40), rng.randrange(1, 8)
        word = base[start : start + many] + str(rng.randrange(50)) + (" " if len(out) % 12 else "\n")
        out.append(word)
        have += len(word)
    return "".join(out)[:length].encode()


def video(_inputs, path, width=176, height=144, frames=3):
    """Squares that move over a gradient, with noise."""
    rng = random.Random(7)
    with open(path, "wb") as file:
        file.write(b"YUV4MPEG2 W%d H%d F25:1 Ip A1:1 C420jpeg\n" % (width, height))
        for frame in range(frames):
            noise = rng.randbytes(width * height)
            luma = bytearray((x + y + frame + noise[y * width + x] // 24) % 220 for y in range(height) for x in range(width))
            for square in range(4):
                left, top = (frame * (3 + square) + 80 * square) % (width - 40), (frame * 2 + 60 * square) % (height - 40)
                for y in range(top, top + 40):
                    luma[y * width + left : y * width + left + 40] = bytes([60 + 40 * square]) * 40
            file.write(b"FRAME\n" + luma + bytes([120]) * (width * height // 4) + bytes([136]) * (width * height // 4))


def sound(path, seconds):
    """Two voices and noise, 44.1 kHz, stereo."""
    rng = random.Random(7)
    samples = []
    for i in range(int(44100 * seconds)):
        tone = 9000 * math.sin(i * 0.031 * (1 + i // 22050 % 5 / 8)) + 5000 * math.sin(i * 0.077)
        samples += [int(tone) + rng.randrange(-400, 400), int(tone * 0.7) + rng.randrange(-400, 400)]
    data = struct.pack(f"<{len(samples)}h", *samples)
    head = struct.pack("<4sI8sIHHIIHH4sI", b"RIFF", 36 + len(data), b"WAVEfmt ", 16, 1, 2, 44100, 176400, 4, 16, b"data", len(data))
    path.write_bytes(head + data)


def picture(_inputs, path, width=320, height=240):
    rng = random.Random(7)
    dots = bytearray()
    for y in range(height):
        for x in range(width):
            wave = int(80 * math.sin(x / 23) * math.cos(y / 31))
            dots += bytes(((128 + wave + rng.randrange(16)) % 256, (x * y // 97) % 256, (x + 2 * y) % 256))
    path.write_bytes(b"P6 %d %d 255\n" % (width, height) + dots)


def sums(_inputs, path):
    """C of many small functions, no two alike."""
    rng, lines = random.Random(7), ["typedef struct { int a, b; double c[8]; } part;"]
    for number in range(4):
        odd, shift, turn = rng.randrange(1, 99, 2), rng.randrange(1, 9), rng.randrange(3, 40)
        lines.append(f"""
static int mix{number}(int x) {{ return (x * {odd}) ^ (x >> {shift}); }}
double sum{number}(part *parts, int count, const char *text) {{
    double sum = {odd}; int state = count;
    for (int i = 0; i < count; i++) {{
        part *one = parts + (mix{number}(i) & {turn}) % count;
        switch (text[i % {turn}]) {{
        case 'a': sum += one->c[i & 7] * {odd}; break;
        case 'b': state = mix{number}(state) + one->a; break;
        case 'c': for (int k = 0; k < 8; k++) one->c[k] = one->c[(k + {shift}) & 7] / (1 + state % {odd}); break;
        default: one->b ^= state << {shift}; if (one->b % {turn} == 0) return sum;
        }}
        if (state > {odd * 1000}) state -= one->b; else sum -= sum{max(number - 1, 0)}(parts, i / 2, text);
    }}
    return sum;
}}""")
    path.write_text("\n".join(lines) + "\n")


def proteins(_inputs, path, count=700):
    rng = random.Random(11)
    family = "".join(rng.choices("ACDEFGHIKLMNPQRSTVWY", k=120))
    with open(path, "w") as file:
        for number in range(count):
            own = "".join(rng.choices("ACDEFGHIKLMNPQRSTVWY", k=350))
            alike = "".join(one if rng.random() < 0.6 else rng.choice("ACDEFGHIKLMNPQRSTVWY") for one in family)
            file.write(f">p{number}\n{own[:100] + alike + own[100:] if number % 50 == 0 else own}\n")


def family(_inputs, path):
    rng = random.Random(11)
    one = rng.choices("ACDEFGHIKLMNPQRSTVWY", k=120)
    alike = ["".join(each if rng.random() < 0.8 else rng.choice("ACDEFGHIKLMNPQRSTVWY") for each in one) for _ in range(12)]
    text = "# STOCKHOLM 1.0\n" + "".join(f"s{number} {line}\n" for number, line in enumerate(alike)) + "//\n"
    alignment = path.with_suffix(".sto")
    alignment.write_text(text)
    run(["hmmbuild", path, alignment])


def plan(_inputs, path, rows=90, columns=140):
    """The cheapest mixture that has enough of everything."""
    rng = random.Random(7)
    cost = " + ".join(f"{rng.randrange(1, 50)} x{column}" for column in range(columns))
    lines = ["Minimize", f" cost: {cost}", "Subject To"]
    for row in range(rows):
        parts = " + ".join(f"{rng.randrange(1, 20)} x{column}" for column in range(columns) if rng.random() < 0.3)
        lines.append(f" r{row}: {parts} >= {rng.randrange(50, 400)}")
    path.write_text("\n".join([*lines, "End"]) + "\n")


def formula(_inputs, path, variables=170, clauses=720):
    rng = random.Random(3)
    lines = [f"p cnf {variables} {clauses}"]
    for _ in range(clauses):
        chosen = rng.sample(range(1, variables + 1), 3)
        lines.append(" ".join(str(one if rng.random() < 0.5 else -one) for one in chosen) + " 0")
    path.write_text("\n".join(lines) + "\n")


def graph(_inputs, path, nodes=110, edges=170):
    rng = random.Random(7)
    lines = [f"  n{rng.randrange(nodes)} -> n{rng.randrange(nodes)};" for _ in range(edges)]
    path.write_text("digraph g {\n" + "\n".join(lines) + "\n}\n")


def database(_inputs, path):
    """A database cluster; PostgreSQL refuses root, so as another user where we are root."""
    run([*as_user(path.parent), "/usr/lib/postgresql/15/bin/initdb", "-N", "-D", path, "-A", "trust", "-U", "bench", "--locale=C", "-E", "UTF8"],
        stderr=subprocess.DEVNULL)


def as_user(folder):
    """What leads to another user, who owns `folder`, where we are root."""
    if os.getuid() != 0:
        return []
    shutil.chown(folder, "postgres")
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]


def cache_for_all(folder):
    """A cache in `folder` with our QEMU that every user can read."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    shutil.copytree(cache / "colocate/qemu", Path(folder, "cache/colocate/qemu"), dirs_exist_ok=True)
    return str(Path(folder, "cache"))


MAKERS = {
    "text": lambda _inputs, path: path.write_bytes(words(400_000)),
    "part": lambda _inputs, path: path.write_bytes(words(100_000)),
    "short": lambda _inputs, path: path.write_bytes(words(50_000)),
    "long.gz": lambda inputs, path: path.write_bytes(run(["gzip", "-6", "-n", "-c", *[inputs.file("text")] * 5])),
    "video.y4m": video,
    "sound.wav": lambda _inputs, path: sound(path, 1),
    "short.wav": lambda _inputs, path: sound(path, 0.4),
    "picture.ppm": picture,
    "sums.i": sums,
    "sums.s": lambda inputs, path: run(["gcc-12", "-S", "-O2", "-o", path, *["-x", "cpp-output"], inputs.file("sums.i")]),
    "proteins.fa": proteins, "family.hmm": family, "plan.lp": plan, "formula.cnf": formula, "graph.dot": graph,
    "database": database,
}
