"""Demand vectors of the programs, counted under QEMU: one each, the mean over all that a program's processes execute.

colocate counts a program only as far as it does not execute another one, so server and client are counted one after
the other, each beside the other as it is. Inputs are a tenth of those of real runs. Slots and dependencies are llvm-mca's, work is
by class, from which the model has the rate of accesses to the first cache, too."""
import json, os, shutil, subprocess, time
from pathlib import Path

from programs import CLIENTS, NAMES, Programs, run
from series import DEMANDS, HERE, say

CACHE = Path(os.environ.get("COLOCATE_CACHE", Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "colocate"))
# QEMU's processor has no AVX-512, so no program may use it; see workloads/accuracy/solo-cpi. Other runs have no such setting.
EMULATED = {"OPENSSL_ia32cap": ":~0xffffffffd1ff0000",
            "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX512DQ,-ERMS,-FSRM"}
SMALL = 0.1
FIGURES = ["slots", "dependent-cycles", "branch-misses", "written-back"]
# Longest wait for a server to begin and for a program to end, in seconds. Chosen: under QEMU it takes some.
BEGINS_S = 120
ENDS_S = 7200


class Counting:
    """Counts one program; each part of it in a folder of its own."""

    def __init__(self, args, folder):
        self.args, self.folder, self.parts, self.user = args, Path(folder), [], []
        self.folder.mkdir(parents=True)
        self.log = open(self.folder / "log", "w")
        self.env = {**os.environ, **EMULATED, "LC_ALL": "C", "TMPDIR": str(self.folder)}

    def as_user(self, name):
        """From now on, as another user, who must be able to read QEMU."""
        if os.getuid() != 0:
            return
        shutil.chown(self.folder, name)
        shutil.copytree(CACHE / "qemu", self.folder / "cache/qemu")
        self.env["COLOCATE_CACHE"] = str(self.folder / "cache")
        self.user = ["setpriv", f"--reuid={name}", f"--regid={name}", "--init-groups"]

    def plain(self, command, **options):
        """Starts a command as it is."""
        return subprocess.Popen([*self.user, *map(str, command)], cwd=self.folder, env=self.env,
                                **{"stdout": subprocess.DEVNULL, "stderr": self.log, **options})

    def counted(self, command):
        """Starts a command under QEMU; its counts are read by `read`."""
        out = [self.folder / f"{len(self.parts)}.{kind}.json" for kind in ("profile", "phases")]
        self.parts.append(out)
        words = [self.args.colocate, "profile", "--quiet", "--backend", "emulate", "--phase", out[1], "--output", out[0],
                 "--demand", HERE / self.args.machine_speeds, "--", *command]
        return self.plain(words, stdin=subprocess.DEVNULL)

    def read(self):
        """Each thread's instructions, mix and demand vector."""
        found = []
        for profile, phases in self.parts:
            threads = json.loads(profile.read_text())["threads"]
            found += zip(threads, json.loads(phases.read_text())["phase"], strict=True)
        return [(thread["instructions"], thread["mix"], phase) for thread, phase in found if thread["instructions"]]


def finish(child):
    if child.wait(timeout=ENDS_S):
        raise RuntimeError(f"expected status 0 of {child.args}, found {child.returncode}")


def until(ready):
    """Waits until a server answers."""
    end = time.monotonic() + BEGINS_S
    while not ready():
        if time.monotonic() > end:
            raise RuntimeError(f"expected a server that begins within {BEGINS_S} s, found none")
        time.sleep(0.1)


def answers(command):
    return lambda: subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def simple(counting, programs, name):
    """A program that is one process."""
    inputs = programs.inputs
    commands = {
        "7-zip": ["7zz", "a", "-mmt1", "-mx5", "-bd", "text.7z", inputs / "short"],
        "gzip": ["gzip", "-9", "-n", "-k", "-c", inputs / "text"],
        "openssl": ["openssl", "dgst", "-sha512", *[inputs / "text"] * programs.size("openssl", "TIMES")],
        "stencil": [inputs / "stencil", programs.env("stencil")["ROUNDS"]],
        "sysbench": ["sysbench", "memory", "--threads=1", "--time=0", "--memory-block-size=1M",
                     "--memory-total-size=" + programs.env("sysbench")["SIZE"], "run"],
        "x264": ["ffmpeg", "-nostdin", "-v", "error", "-i", inputs / "video.y4m", "-c:v", "libx264", "-preset", "medium",
                 "-threads", "2", "video.mp4"],
    }
    counting.env["OMP_NUM_THREADS"] = "2"
    finish(counting.counted(commands[name]))


def redis(counting, programs, _name):
    """The server beside its benchmark, then the other way round."""
    socket = counting.folder / "s"
    server = ["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no"]
    ask = ["redis-cli", "-s", str(socket)]
    requests = programs.size("redis", "REQUESTS")
    for first, second in ((counting.counted, counting.plain), (counting.plain, counting.counted)):
        running = first(server)
        until(lambda: socket.exists() and answers([*ask, "PING"])())
        for request in (["INCR", "counter"], ["SET", "key", "value"], ["LPUSH", "list", "element"]):
            finish(second(["redis-benchmark", "-s", socket, "-q", "-n", requests, "-c", "20", *request]))
        subprocess.run([*ask, "SHUTDOWN", "NOSAVE"], stderr=subprocess.DEVNULL)
        finish(running)
        socket.unlink(missing_ok=True)


def postgresql(counting, programs, _name):
    """The server beside pgbench, then the other way round: one client, and no processes that look after tables, since each
    process that is counted takes llvm-mca its time."""
    counting.as_user("postgres")
    bin_ = Path(run(["sh", "-c", "ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1"]).decode().strip())
    data, where = counting.folder / "data", ["-h", counting.folder, "-U", "bench"]
    settings = ["listen_addresses=", "fsync=off", "autovacuum=off", "max_logical_replication_workers=0"]
    server = [bin_ / "postgres", "-D", data, "-k", counting.folder, *sum((["-c", one] for one in settings), [])]
    stop = [bin_ / "pg_ctl", "-s", "-m", "fast", "-D", data, "stop"]
    finish(counting.plain([bin_ / "initdb", "-N", "-D", data, "-A", "trust", "-U", "bench", "--locale=C", "-E", "UTF8"]))
    fill = [bin_ / "pgbench", "-q", *where, "-i", "-s", "2", "postgres"]
    bench = [bin_ / "pgbench", "-n", *where, "-t", CLIENTS * programs.size("postgresql", "TRANSACTIONS"), "postgres"]
    plain, counted = counting.plain, counting.counted
    for first, second, what in ((plain, plain, fill), (counted, plain, bench), (plain, counted, bench)):
        running = first(server)
        until(lambda: "ready" in (data / "postmaster.pid").read_text() if (data / "postmaster.pid").exists() else False)
        finish(second(what))
        finish(plain(stop))
        finish(running)


def size(text):
    """Bytes of "48 KiB"."""
    number, unit = text.split()
    return int(number) << {"B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}[unit]


def at(curve, place):
    """Misses at a size: a straight line between two points, level beyond, as the model has it."""
    before = [point for point in curve if point[0] <= place]
    after = [point for point in curve if point[0] > place]
    if not before or not after:
        return (before[-1] if before else after[0])[1]
    (low, high_misses), (high, low_misses) = before[-1], after[0]
    return high_misses + (low_misses - high_misses) * (place - low) / (high - low)


def mean(pairs):
    """Mean of values by weight."""
    return sum(weight * value for weight, value in pairs) / sum(weight for weight, _ in pairs)


def merged(name, threads):
    """One vector of all threads, and whose sources it has."""
    how = f"mean of {len(threads)} threads by their instructions; " if len(threads) > 1 else ""
    phase = {"name": name}
    for key in FIGURES:
        known = [(count, vector[key]) for count, _, vector in threads if vector.get(key, "unknown") != "unknown"]
        if known:
            value = mean([(count, figure["value"]) for count, figure in known])
            largest = max(known, key=lambda one: one[0])[1]
            phase[key] = {"value": round(value, 6), "source": how + largest["source"]}
    mixes = {kind: mean([(count, mix[kind]) for count, mix, _ in threads]) for kind in threads[0][1]}
    counted = "counted under QEMU"
    phase["work"] = {"value": {"classes": {kind: round(share, 9) for kind, share in mixes.items()}}, "source": how + counted}
    curves = [(count, [(size(text), misses) for text, misses in vector["misses"]["value"]])
              for count, _, vector in threads if vector.get("misses", "unknown") != "unknown"]
    places = sorted({place for _, curve in curves for place, _ in curve})
    points = [(place, mean([(count, at(curve, place)) for count, curve in curves])) for place in places]
    largest = max(threads, key=lambda one: one[0])[2]["misses"]
    phase["misses"] = {"value": falling(points), "source": how + largest["source"]}
    return {"version": 1, "phase": [phase]}


def falling(points):
    """Points as the schema wants them, without those that are on a straight line with their neighbours."""
    kept = []
    for i, (place, misses) in enumerate(points):
        if 0 < i < len(points) - 1 and kept:
            line = at([kept[-1], points[i + 1]], place)
            if abs(line - misses) < 1e-3 * max(misses, 1e-6):
                continue
        kept.append((place, min(misses, kept[-1][1]) if kept else misses))
    return [[f"{place} B", round(misses, 9)] for place, misses in kept]


def demand(args, _programs, folder):
    """Counts the programs that are named, or all; True, since who fails raises."""
    small = Programs(folder / "small", SMALL * args.scale)
    small.prepare()
    DEMANDS.mkdir(parents=True, exist_ok=True)
    for name in args.rest or NAMES:
        counting = Counting(args, folder / "counted" / name)
        {"redis": redis, "postgresql": postgresql}.get(name, simple)(counting, small, name)
        threads = counting.read()
        (DEMANDS / f"{name}.json").write_text(json.dumps(merged(name, threads), indent=1) + "\n")
        say(f"{name}: {sum(count for count, _, _ in threads) / 1e9:.2f} 10^9 instructions in {len(threads)} threads")
    return True
