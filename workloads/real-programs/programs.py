"""The eight programs: what they are given, how long they are, and whether what they did is right."""
import hashlib, os, random, re, shutil, subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
JOBS = HERE / "jobs"
STENCIL = HERE.parent / "accuracy/stencil.c"
# What they are started with. Chosen so that each takes some 4 s of CPU time alone on the machine of docs/results/real-programs.md;
# --scale multiplies all of it.
SIZES = {
    "7-zip": {"SHORT": 4_000_000},
    "gzip": {"TEXT": 17_000_000},
    "openssl": {"TIMES": 120},
    "postgresql": {"TRANSACTIONS": 2_500},
    "redis": {"REQUESTS": 110_000},
    "stencil": {"ROUNDS": 200},
    "sysbench": {"GIB": 60},
    "x264": {"FRAMES": 75},
}
NAMES = list(SIZES)
CLIENTS = 4  # of pgbench, as jobs/postgresql has it
PACKAGES = {
    "7zz": "7zip",
    "gzip": "gzip",
    "openssl": "openssl",
    "/usr/lib/postgresql": "postgresql",
    "redis-server": "redis-server",
    "redis-benchmark": "redis-tools",
    "ffmpeg": "ffmpeg",
    "sysbench": "sysbench",
    "setpriv": "util-linux",
    "cc": "gcc libc6-dev",
}


class Wrong(Exception):
    """What a program did is not what it should have done: one line."""


def missing():
    """Debian packages of programs that are not there."""
    there = lambda name: Path(name).exists() if "/" in name else shutil.which(name)
    return [package for name, package in PACKAGES.items() if not there(name)]


def install():
    """Installs what is missing; exit status."""
    packages = " ".join(missing()).split()
    if not packages:
        print("real-programs: nothing is missing")
        return 0
    # Servers that packages start would disturb, and be disturbed.
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    return subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", *packages], env=env).returncode


class Programs:
    """Inputs in a folder, the programs' sizes, and what is known to be right."""

    def __init__(self, folder, scale=1.0):
        self.inputs = Path(folder) / "inputs"
        self.scale = scale
        self.seconds = {}  # how long each took when it last ran bare
        self.right = {}  # digests of outputs that were looked at whole, by program

    def size(self, name, key):
        return SIZES[name][key] if key == "TIMES" else max(1, round(SIZES[name][key] * self.scale))

    def prepare(self):
        """Makes the inputs: the same bytes everywhere, but for what ffmpeg's and cc's versions change."""
        self.inputs.mkdir(parents=True)
        longest = max(self.size("gzip", "TEXT"), self.size("7-zip", "SHORT"))
        text = words(longest).encode()
        (self.inputs / "text").write_bytes(text[: self.size("gzip", "TEXT")])
        (self.inputs / "short").write_bytes(text[: self.size("7-zip", "SHORT")])
        picture = "testsrc2=size=640x360:rate=25,noise=alls=12:allf=t:all_seed=7"
        run(["ffmpeg", "-nostdin", "-v", "error", "-f", "lavfi", "-i", picture, "-frames:v",
             str(self.size("x264", "FRAMES")), "-pix_fmt", "yuv420p", self.inputs / "video.y4m"])
        run(["cc", "-O2", "-fopenmp", "-DSIDE=2048", "-DSUM", "-o", self.inputs / "stencil", STENCIL])

    def digests(self):
        """SHA-256 of every input."""
        return {path.name: digest(path) for path in sorted(self.inputs.iterdir())}

    def env(self, name):
        """Variables that a program is started with."""
        env = {"INPUTS": str(self.inputs), "LC_ALL": "C"}
        for key in SIZES[name]:
            if key == "GIB":
                env["SIZE"] = f"{self.size(name, key)}G"
            elif key in ("TIMES", "TRANSACTIONS", "REQUESTS", "ROUNDS"):
                env[key] = str(self.size(name, key))
        return env

    def folder(self, run_folder, name):
        """A fresh folder for a program to work in."""
        folder = Path(run_folder) / name
        folder.mkdir(parents=True)
        return folder

    def check(self, name, folder):
        """Raises Wrong unless the program has come to its end and did what it should."""
        if not (folder / "ended").exists():
            raise Wrong(f"{name}: did not come to its end")
        CHECKS[name](self, folder)

    def known(self, name, path, look):
        """`path` has the bytes that were right before, or `look` finds it right."""
        found = digest(path)
        if self.right.get(name) == found:
            return
        look()
        self.right.setdefault(name, found)


def words(length):
    """Text that compresses as text does, from a fixed seed."""
    rng = random.Random(7)
    base = "the quick brown fox jumps over a lazy dog again"
    out, have, i = [], 0, 0
    while have < length:
        start, many = int(rng.random() * 40), 1 + int(rng.random() * 7)
        word = base[start : start + many] + str(int(rng.random() * 50)) + (" " if i % 12 else "\n")
        out.append(word)
        have += len(word)
        i += 1
    return "".join(out)


def run(command, **options):
    """Runs a command to its end; its output."""
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, **options).stdout


def digest(path, kind="sha256"):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()


def expect(name, what, found, expected):
    if found != expected:
        raise Wrong(f"{name}: expected {what} {expected!r}, found {found!r}")


def unpacks(programs, name, path, command, original):
    """What a command makes of a packed file has the bytes of the original."""
    def look():
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        same = hashlib.sha256(done.stdout).hexdigest() == digest(programs.inputs / original)
        expect(name, "the original's bytes from", (done.returncode, same), (0, True))
    programs.known(name, path, look)


def seven_zip(programs, folder):
    path = folder / "text.7z"
    unpacks(programs, "7-zip", path, ["7zz", "x", "-so", path], "short")


def gzip(programs, folder):
    path = folder / "text.gz"
    unpacks(programs, "gzip", path, ["gzip", "-dc", path], "text")


def openssl(programs, folder):
    """As many digests as files, each that of Python."""
    right = digest(programs.inputs / "text", "sha512") if "sha512" not in programs.right else programs.right["sha512"]
    programs.right["sha512"] = right
    lines = (folder / "digests").read_text().splitlines()
    expect("openssl", "digests", len(lines), programs.size("openssl", "TIMES"))
    expect("openssl", "a digest", {line.split()[0] for line in lines}, {right})


def same_as_before(programs, name, found):
    expect(name, "what a run without colocate printed,", found, programs.right.setdefault(name, found))


def stencil(programs, folder):
    """The sum of all points, to the last bit."""
    found = (folder / "sum").read_text()
    expect("stencil", "lines", len(found.split()), 2)
    same_as_before(programs, "stencil", found)


def x264(programs, folder):
    """As many frames as there were, and after decoding the same ones as in a run without colocate."""
    path = folder / "video.mp4"
    def look():
        text = run(["ffmpeg", "-nostdin", "-v", "error", "-i", path, "-f", "framemd5", "-"]).decode()
        frames = [line.split(",")[-1] for line in text.splitlines() if not line.startswith("#")]
        expect("x264", "frames", len(frames), programs.size("x264", "FRAMES"))
        same_as_before(programs, "x264 frames", " ".join(frames))
    programs.known("x264", path, look)


def sysbench(programs, folder):
    text = (folder / "totals").read_text()
    mib = 1024 * programs.size("sysbench", "GIB")
    found = re.search(r"Total operations: (\d+)", text), re.search(r"(\d+)\.00 MiB transferred", text)
    expect("sysbench", "operations and MiB", [int(one[1]) if one else None for one in found], [mib, mib])


def redis(programs, folder):
    """Every request arrived once, and the values are what they come to."""
    asked = programs.size("redis", "REQUESTS")
    counter, value, length, *stats = (folder / "values").read_text().splitlines()
    expect("redis", "values", (counter, value, length), (str(asked), "value", str(asked)))
    calls = dict(re.findall(r"cmdstat_(\w+):calls=(\d+)", "\n".join(stats)))
    failed = re.findall(r"(?:rejected|failed)_calls=([1-9]\d*)", "\n".join(stats))
    expect("redis", "calls", [calls.get(one) for one in ("incr", "set", "lpush")] + failed, [str(asked)] * 3)


def postgresql(programs, folder):
    """Every transaction is there, and the balances of accounts, tellers and branches are the history's sum."""
    wanted = CLIENTS * programs.size("postgresql", "TRANSACTIONS")
    text = (folder / "benchmark").read_text()
    expect("postgresql", "processed", f"processed: {wanted}/{wanted}\n" in text, True)
    *sums, count = (folder / "balances").read_text().split()
    expect("postgresql", "transactions in the history", count, str(wanted))
    expect("postgresql", "four equal sums", (len(sums), len(set(sums))), (4, 1))


CHECKS = {
    "7-zip": seven_zip, "gzip": gzip, "openssl": openssl, "stencil": stencil, "x264": x264, "sysbench": sysbench,
    "redis": redis, "postgresql": postgresql,
}
