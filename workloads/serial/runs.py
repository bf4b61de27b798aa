"""Runs of programs while one PU is slow, and series of such runs."""
import datetime, json, os, random, shutil, subprocess, sys, time
from pathlib import Path

import suite, watch

HERE = suite.HERE.parent.parent
# What needs options that only our own program has.
OWN_WAYS = ["pinned-fast", "pinned-slow", "oracle"]
# The kernel alone, and by way of colocate.
BASES = ["bare", "os"]
POLICIES = ["parallelism-aware", "all-fast-first"]
# No run takes so long. Chosen: ten times what is normal.
LONGEST_S = 120


def say(text):
    print(f"asymmetric: {text}", file=sys.stderr, flush=True)


class Slow:
    """The tool, which makes one PU slow until this is closed or this script ends."""

    def __init__(self, args, folder):
        self.report = Path(folder) / "slow.json"
        words = [args.asymmetric, "--cpu", str(args.cpu), "--ratio", str(args.ratio), "--again", "-o", str(self.report)]
        # cat ends at the end of its input.
        self.tool = subprocess.Popen([*words, "--", "sh", "-c", "echo slow; exec cat"], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, text=True)
        if self.tool.stdout.readline() != "slow\n":
            raise SystemExit(self.tool.wait(timeout=LONGEST_S) or 1)

    def told(self):
        return json.loads(self.report.read_text())

    def close(self):
        """Ends it; what it measured again."""
        self.tool.stdin.close()
        self.tool.wait(timeout=LONGEST_S)
        return self.told()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.tool.stdin.close()
        self.tool.terminate()
        self.tool.wait(timeout=LONGEST_S)


def own_options(way, args):
    """Options of our own program for a way of placing its threads."""
    slow, fast = str(args.cpu), [str(pu) for pu in sorted(os.sched_getaffinity(0)) if pu != args.cpu]
    return {"pinned-fast": ["--pin", ",".join([*fast, slow])], "pinned-slow": ["--pin", ",".join([slow, *fast])],
            "oracle": ["--oracle", ",".join([*fast, slow])]}.get(way, [])


def nice(args):
    """What a process begins with so that others on the machine have less of it; nothing if that is not asked for. Where the
    kernel shares PUs between sessions first, the session's own `nice` counts (autogroups, sched(7))."""
    def begin():
        os.setsid()
        os.nice(args.nice)
        session = Path("/proc/self/autogroup")
        if session.exists():
            session.write_text(str(args.nice))

    return begin if args.nice else None


def command(args, programs, name, way, folder):
    """The command of a run."""
    program = programs.command(name, own_options(way, args))
    if way == "bare" or way in OWN_WAYS:
        return program
    if way == "pinned-in-order":
        return [args.colocate, "run", "--quiet", "--policy", "compact", "--settle-ms", "0", "--", *program]
    words = [args.colocate, "schedule", "--quiet", "--policy", way, "--no-guard", "--quantum", f"{args.quantum_ms}ms",
             "-o", str(Path(folder).parent / f"{Path(folder).name}.json")]
    return [*words, "--", *program]


def run(args, programs, name, way, folder, look=False):
    """One run; a line of JSON."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    line = {"program": name, "way": way, "load_before": round(os.getloadavg()[0], 2)}
    begun = time.monotonic()
    state = getattr(args, "speeds", None) if way != "os" else None
    env = {**suite.environment(), "XDG_STATE_HOME": str(state or folder.parent / "unmeasured")}
    child = subprocess.Popen(command(args, programs, name, way, folder), cwd=folder, env=env, text=True,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             preexec_fn=nice(args))
    watcher = watch.Runnable(child.pid) if look else None
    if watcher:
        watcher.start()
    try:
        printed, said = child.communicate(timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        child.terminate()
        printed, said = child.communicate(timeout=LONGEST_S)
        said += f"expected an end within {LONGEST_S} s, found none"
    finally:
        # Where this script ends early, colocate ends its programs, and then itself.
        child.terminate()
        child.wait(timeout=LONGEST_S)
    line["whole_s"] = line["seconds"] = round(time.monotonic() - begun, 4)
    if watcher:
        watcher.over.set()
        watcher.join()
        line["steps"] = watcher.steps
    if child.returncode in (2, 125) and not any(folder.iterdir()) and not printed:
        return {"kind": "refused", **line, "said": said.strip().splitlines()[0] if said else ""}
    report = folder.parent / f"{folder.name}.json"
    if report.exists():
        # Without colocate's own beginning and end.
        line["seconds"] = round(json.loads(report.read_text())["turnaround_ns"] / 1e9, 4)
    return {"kind": "run", **line, "wrong": wrongs(programs, name, folder, printed, child.returncode, said)}


def wrongs(programs, name, folder, printed, status, said):
    """What is wrong with a run: a line each; none is good."""
    if status:
        return [f"{name}: expected status 0, found {status}: {said.strip()}"]
    try:
        programs.check(name, folder, printed)
    except (suite.Wrong, OSError) as why:
        return [str(why)]
    return []


def speeds(args, folder):
    """Speeds of the cores, measured while one is slow: the folder in which they are kept, and the machine."""
    kept = Path(folder) / "state"
    kept.mkdir()
    if args.core_speeds == "none":
        return kept, None
    words = ["--only", "speeds", "--force"] if args.core_speeds == "measure" else ["--import", str(Path(args.core_speeds).resolve())]
    done = subprocess.run([args.colocate, "calibrate", *words, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, env={**os.environ, "XDG_STATE_HOME": str(kept)}, preexec_fn=nice(args))
    if done.returncode:
        raise SystemExit(f"asymmetric: cannot measure the cores: {done.stderr.strip()}")
    return kept, json.loads(done.stdout)


def head(args, programs):
    """Where, when and how."""
    processor = [line.split(": ", 1)[1] for line in Path("/proc/cpuinfo").read_text().splitlines()
                 if line.startswith("model name")]
    version = subprocess.run([args.colocate, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
    system = os.uname()
    return {"kind": "head", "version": 1, "processor": processor[0] if processor else system.machine,
            "pus": len(os.sched_getaffinity(0)), "system": f"{system.sysname} {system.release}",
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%F %R UTC"),
            "load": os.getloadavg()[0], "colocate": version.strip(), "command": "scripts/" + " ".join(args.words),
            "quantum_ms": args.quantum_ms, "length_ms": args.length_ms, "nice": args.nice, "seed": args.seed, "inputs": programs.digests()}


def ways(args, name):
    """The ways in which a program is run."""
    return [*BASES, *args.policies, *(["pinned-in-order"] if name in suite.REAL else OWN_WAYS)]


def plan(args, round_):
    """The runs of a round in their order."""
    runs = [(name, way) for name in args.programs for way in ways(args, name)]
    random.Random(args.seed * 1_000 + round_).shuffle(runs)
    return runs


def measure(args, programs, folder, file):
    """The series; whether all was right."""
    good = True

    def keep(line):
        nonlocal good
        good &= not line.get("wrong")
        print(json.dumps(line, ensure_ascii=False), file=file, flush=True)
        for wrong in line.get("wrong", []):
            say(f"wrong: {wrong}")

    keep(head(args, programs))
    for name in args.programs:
        keep(phases(args, programs, name, folder / f"phases-{name}"))
    with Slow(args, folder) as slow:
        keep({"kind": "slow", "report": slow.told()})
        args.speeds, found = speeds(args, folder)
        keep({"kind": "cores", "report": found})
        rounds(args, programs, folder, keep)
        keep({"kind": "still", "report": slow.close()})
    return good


def rounds(args, programs, folder, keep):
    """All rounds that there is time for."""
    begun, refused, longest = time.monotonic(), set(), 0.0
    for round_ in range(1, args.rounds + 1):
        start = time.monotonic()
        if start - begun + longest > 60 * args.minutes:
            say(f"{args.minutes:g} minutes are over after {round_ - 1} rounds")
            break
        for place, (name, way) in enumerate(plan(args, round_)):
            if way in refused:
                continue
            line = run(args, programs, name, way, folder / f"{round_}-{place}")
            keep({**line, "round": round_, "place": place})
            shutil.rmtree(folder / f"{round_}-{place}")
            if line["kind"] == "refused":
                refused.add(way)
                say(f"{way}: {line['said']}")
            else:
                say(f"round {round_}, {name}, {way}: {line['seconds']:.2f} s")
        longest = max(longest, time.monotonic() - start)


def phases(args, programs, name, folder):
    """A program on PUs that are alike: how serial it is."""
    line = run(args, programs, name, "bare", folder, look=True)
    shutil.rmtree(folder)
    share = watch.serial_share(line.get("steps", []))
    say(f"{name}: {line['seconds']:.2f} s on PUs that are alike, serial for "
        + ("an unknown share of it" if share is None else f"{100 * share:.0f} % of it"))
    return {**line, "kind": "phases"}
