"""Runs of the eight programs: bare, under a scheduler, and series of such runs."""
import datetime, glob, json, os, random, shutil, subprocess, sys, threading, time
from pathlib import Path

from programs import JOBS, NAMES, Wrong

HERE = JOBS.parent.parent.parent
KEPT = HERE / "data/measured/real-programs"
# How fast the machine of docs/results/real-programs.md is, as seen from HERE: lines that are kept name no folder of a user's.
SPEEDS = "data/measured/sapphire-rapids.toml"
RATES = KEPT / "rates.json"
DEMANDS = KEPT / "demand"
# All that `colocate schedule` has. What cannot work here is refused by colocate, and that line is kept.
POLICIES = ["os", "round-robin", "random", "mmas", "mhas", "idas", "l1-static", "l1-dynamic", "bas", "fair",
            "perf-fair", "symbiotic", "symbiotic-numa"]
# Exit status of `colocate` where it could not begin.
REFUSED = 125
# No run takes so long. Chosen: ten times what is normal.
LONGEST_S = 300


def say(text):
    print(f"real-programs: {text}", file=sys.stderr, flush=True)


def alone_of(programs, rates, name):
    """`alone` of a workload file, if all of it is known: its time from a bare run, its rates from the model."""
    seconds, it = programs.seconds.get(name), rates.get(name)
    if seconds is None or it is None or it["memory_per_us"] is None:
        return None
    return f"seconds = {seconds}, memory = {it['memory_per_us']}, first-cache = {it['first_cache_per_us'] or 0.0}"


def workload(programs, folder, names, quantum_ms):
    """Writes a workload file; its path."""
    rates = json.loads(RATES.read_text())["programs"] if RATES.exists() else {}
    lines = ["version = 1", f'quantum = "{quantum_ms} ms"']
    for name in names:
        env = ", ".join(f"{key} = {json.dumps(value)}" for key, value in programs.env(name).items())
        lines += ["", "[[job]]", f'name = "{name}"', f"command = [{json.dumps(str(JOBS / name))}]",
                  f"dir = {json.dumps(str(programs.folder(folder, name)))}", f"env = {{ {env} }}"]
        demand = DEMANDS / f"{name}.json"
        if demand.exists():
            lines.append(f"demand = {json.dumps(str(demand))}")
        alone = alone_of(programs, rates, name)
        if alone:
            lines.append(f"alone = {{ {alone} }}")
    path = Path(folder) / "workload.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


class Busy:
    """CPU time of the machine while something runs, from /proc/stat, in seconds."""

    def __init__(self):
        self.before = self.now()

    @staticmethod
    def now():
        words = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
        user, nice, system, _idle, _io, irq, soft, steal = (int(word) / os.sysconf("SC_CLK_TCK") for word in words[:8])
        return user + nice + system + irq + soft, steal

    def since(self):
        busy, steal = (after - before for after, before in zip(self.now(), self.before))
        return {"busy_s": round(busy, 2), "stolen_s": round(steal, 2)}


class OwnTime(threading.Thread):
    """CPU time of a process's own threads, looked at until it ends."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.seconds, self.over = pid, 0.0, threading.Event()

    def run(self):
        while not self.over.wait(0.2):
            try:
                paths = glob.glob(f"/proc/{self.pid}/task/*/schedstat")
                now = sum(int(Path(path).read_text().split()[0]) for path in paths) / 1e9
            except (OSError, IndexError):
                continue
            self.seconds = max(self.seconds, now)


def wrongs(programs, folder, names):
    """What is wrong with what programs did: a line each; none is good."""
    found = []
    for name in names:
        try:
            programs.check(name, Path(folder) / name)
        except (Wrong, OSError, ValueError, subprocess.CalledProcessError) as why:
            found.append(str(why))
    return found


def bare(programs, name, folder):
    """One program without colocate: wall-clock and CPU time, and what is wrong."""
    inside = programs.folder(folder, name)
    before, start = os.times(), time.monotonic()
    done = subprocess.run([JOBS / name], cwd=inside, env={**os.environ, **programs.env(name)})
    seconds, after = time.monotonic() - start, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    programs.seconds[name] = round(seconds, 3)
    wrong = wrongs(programs, folder, [name])
    if done.returncode:
        wrong.append(f"{name}: expected status 0, found {done.returncode}")
    return {"kind": "bare", "program": name, "seconds": round(seconds, 3), "waited_for_cpu_s": round(cpu, 3),
            "wrong": wrong}


def command(args, policy, filling, guard, folder, programs, names):
    """The command of a run; its report goes into the folder."""
    words = [args.colocate, "schedule", "--quiet", "--policy", policy, "-o", str(Path(folder) / "report.json")]
    words += ["--waiting", "fill"] if filling else []
    words += [] if guard else ["--no-guard"]
    words += ["--only-signals"] if args.only_signals else []
    words += [] if args.machine_speeds == "none" else ["--machine-speeds", args.machine_speeds]
    return [*words, str(workload(programs, folder, names, args.quantum_ms))]


def began(folder, names):
    """Whether a program has left anything in its folder."""
    return any(any((folder / name).iterdir()) for name in names if (folder / name).exists())


def trained(args, policy, folder):
    """A policy with the coefficients that it needs, of this machine; else why there are none, in one line."""
    if not policy.startswith("symbiotic") or "model=" in policy or args.machine_speeds == "none":
        return policy, None
    file = Path(folder) / "cpi-model.json"
    words = [args.colocate + "-study", "train", "cpi-model", "--machine", args.machine_speeds, "-o", str(file)]
    done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=HERE)
    return f"{policy}:model={file}", done.stderr.strip() if done.returncode else None


def scheduled(args, programs, policy, guard, folder, names=NAMES):
    """A run under a scheduler: what colocate reports, its own CPU time, and what is wrong with the programs' work."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    policy, filling = unmarked(policy)
    policy, why_not = trained(args, policy, folder)
    if why_not:
        return {"kind": "refused", "policy": policy.split(":")[0], "guard": guard, "said": why_not}
    words = command(args, policy, filling, guard, folder, programs, names)
    load, busy = os.getloadavg()[0], Busy()
    child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=HERE)
    own = OwnTime(child.pid)
    own.start()
    try:
        said = child.communicate(timeout=LONGEST_S)[1].strip()
    except subprocess.TimeoutExpired:
        child.terminate()
        said = f"expected an end within {LONGEST_S} s, found none; {child.communicate(timeout=LONGEST_S)[1].strip()}"
    finally:
        # Where this script ends early, colocate ends its programs, and then itself.
        child.terminate()
        child.wait(timeout=LONGEST_S)
        own.over.set()
    run = {"policy": policy, "filling": filling, "guard": guard, "status": child.returncode, "load_before": round(load, 2), **busy.since()}
    if not (folder / "report.json").exists():
        if child.returncode == REFUSED and not began(folder, names):
            return {"kind": "refused", **run, "said": said}
        return {"kind": "failed", **run, "said": said, "wrong": [f"{policy}: {said}"]}
    return {"kind": "run", **run, **told(json.loads((folder / "report.json").read_text())),
            "colocate_cpu_s": round(own.seconds, 4), "wrong": wrongs(programs, folder, names)}


def rates(of):
    """Rates as they are kept: null where unknown."""
    known = {"ipc": of["ipc"], "first_cache_per_us": of["caches_per_us"][0], "memory_per_us": of["memory_per_us"]}
    return {**{key: value and round(value, 4) for key, value in known.items()}, "estimated": bool(of["estimated_of"])}


def told(report):
    """What is kept of a report."""
    jobs = [{
        "name": job["name"], "status": job["status"],
        "ended_s": None if job["ended_ns"] is None else round(job["ended_ns"] / 1e9, 4),
        "quanta": job["quanta"], "waited": job["waited"],
        "filled_s": None if job.get("filled_ns") is None else round(job["filled_ns"] / 1e9, 4), **rates(job["rates"]),
    } for job in report["jobs"]]
    return {"turnaround_s": round(report["turnaround_ns"] / 1e9, 4), "quanta": report["quanta"],
            "state": report["state"], "notes": report["notes"], "jobs": jobs}


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
            "quantum_ms": args.quantum_ms, "scale": args.scale, "seed": args.seed, "only_signals": args.only_signals,
            "inputs": programs.digests(), "demand": sorted(path.stem for path in DEMANDS.glob("*.json"))}


def plan(args, round_, refused):
    """The runs of a round in its order: schedulers with the guard or without, `os` twice if that is asked for."""
    runs = [(policy, False) for policy in args.policies] + [(policy, True) for policy in args.guarded]
    runs = [one for one in runs if one not in refused]
    random.Random(args.seed * 1_000 + round_).shuffle(runs)
    return runs


def unmarked(policy):
    """A policy without its mark, and whether that says that waiting jobs fill idle PUs: `bas+fill`."""
    name, _, mark = policy.partition("+")
    if mark not in ("", "fill"):
        raise SystemExit(f"real-programs: expected POLICY or POLICY+fill, found {policy}")
    return name, mark == "fill"


def setting(policy, round_):
    """`random` draws other numbers in each round."""
    name, filling = unmarked(policy)
    seeded = f"random:seed={round_}" if name == "random" else name
    return seeded + ("+fill" if filling else "")


def measure(args, programs, folder, file):
    """The series; whether all was right."""
    begun, good, refused, longest = time.monotonic(), True, set(), 0.0

    def keep(line):
        nonlocal good
        good &= not line.get("wrong")
        print(json.dumps(line, ensure_ascii=False), file=file, flush=True)
        for wrong in line.get("wrong", []):
            say(f"wrong: {wrong}")

    keep(head(args, programs))
    for name in NAMES:
        keep(bare(programs, name, folder / "bare"))
    for round_ in range(1, args.rounds + 1):
        start = time.monotonic()
        if start - begun + longest > 60 * args.minutes:
            say(f"{args.minutes:g} minutes are over after {round_ - 1} rounds")
            break
        for place, (policy, guard) in enumerate(plan(args, round_, refused)):
            inside = folder / f"{round_}-{place}"
            line = scheduled(args, programs, setting(policy, round_), guard, inside)
            keep({**line, "policy": policy, "round": round_, "place": place})
            shutil.rmtree(inside)
            if line["kind"] == "refused":
                refused.add((policy, guard))
                good &= policy != "os"
            if line["kind"] != "run":
                say(f"{policy}: {line['said']}")
            else:
                say(f"round {round_}, {policy}{' with guard' if guard else ''}: {line['turnaround_s']:.2f} s")
        longest = max(longest, time.monotonic() - start)
    return good


def check(args, programs, folder):
    """Every program bare, then all under some schedulers; whether all was right."""
    lines = [bare(programs, name, folder / "bare") for name in NAMES]
    for line in lines:
        say(f"{line['program']}: {line['seconds']:.2f} s, {line['waited_for_cpu_s']:.2f} s of CPU: {verdict(line)}")
    for at, policy in enumerate(args.rest):
        line = scheduled(args, programs, policy, False, folder / str(at))
        lines.append(line)
        if line["kind"] != "run":
            say(f"{policy}: {line['said']}")
            continue
        say(f"{policy}: {line['turnaround_s']:.2f} s: {verdict(line)}")
        for note in line["notes"]:
            say(f"  note: {note}")
    # A scheduler that was asked for and is refused does not work here.
    return not any(line.get("wrong") or line["kind"] == "refused" for line in lines)


def verdict(line):
    return "; ".join(line["wrong"]) or "right"


def find_rates(args, programs, folder):
    """Keeps what the model says that each program does alone, on the machine whose speeds are known."""
    found, good = {}, True
    for name in NAMES:
        line = scheduled(args, programs, "os", False, folder / name, [name])
        good &= line["kind"] == "run" and not line["wrong"]
        if line["kind"] != "run":
            say(f"{name}: {line['said']}")
            continue
        job = line["jobs"][0]
        found[name] = {key: job[key] for key in ("ipc", "memory_per_us", "first_cache_per_us", "estimated")}
        say(f"{name}: {json.dumps(found[name])}: {verdict(line)}")
    RATES.write_text(json.dumps({"head": head(args, programs), "programs": found}, indent=1) + "\n")
    return good
