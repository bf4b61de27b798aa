"""kill -9 of colocate in the middle of a run: every program must come to its right end, none stopped, none
idle, none placed."""
import os, signal, subprocess, time
from pathlib import Path

from programs import NAMES
from series import HERE, command, say, wrongs

# When colocate is killed, in seconds after the launch, and how long its guardian may take. Chosen: every program has
# begun, none has ended; the guardian takes milliseconds.
MIDDLE_S, GUARDIAN_S = 4.0, 2.0
LONGEST_S = 300


def processes(folder):
    """Processes that work in a folder or below it."""
    found = []
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            if (path / "cwd").resolve(strict=True).is_relative_to(folder):
                found.append(int(path.name))
        except OSError:
            continue
    return found


def stopped(pid):
    """Whether a process is stopped by a signal or frozen with its cgroup."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        group = [line for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines() if line.startswith("0::")]
    except (OSError, IndexError):
        return False
    if state == "T":
        return True
    for root in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup"):
        try:
            return bool(group) and "frozen 1" in Path(root + group[0][3:] + "/cgroup.events").read_text()
        except OSError:
            continue
    return False


def idle(pid):
    """Whether a thread of a process gets only what nobody else wants."""
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            if os.sched_getscheduler(int(task.name)) & ~os.SCHED_RESET_ON_FORK == os.SCHED_IDLE:
                return True
        except OSError:
            continue
    return False


def placed(pid):
    """Whether a thread of a process may not use every PU that we may use."""
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            if os.sched_getaffinity(int(task.name)) != os.sched_getaffinity(0):
                return True
        except OSError:
            continue
    return False


def child_called(pid, name):
    """A child of a process by its name."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, tail = path.read_text().rsplit(")", 1)
        except OSError:
            continue
        if head.split("(", 1)[1] == name and int(tail.split()[1]) == pid:
            return int(path.parent.name)
    return None


def kill(child, guardian_too):
    """Kills colocate, and its guardian before if that is asked for."""
    child.send_signal(signal.SIGSTOP)
    if guardian_too:
        guardian = child_called(child.pid, "colocate-guard")
        if guardian is None:
            raise RuntimeError("expected a guardian of colocate, found none")
        os.kill(guardian, signal.SIGKILL)
    child.kill()
    child.wait(timeout=LONGEST_S)


def ended(folder, names):
    """Waits for the programs' ends; whether all came."""
    until = time.monotonic() + LONGEST_S
    while time.monotonic() < until:
        if all((folder / name / "ended").exists() for name in names):
            return True
        time.sleep(0.1)
    return False


def once(args, programs, folder, filling, guardian_too):
    """One kill; what was found, as a line of JSON."""
    folder = Path(folder).resolve()
    folder.mkdir(parents=True)
    words = command(args, "round-robin", filling=filling, guard=False, folder=folder, programs=programs, names=NAMES)
    child = subprocess.Popen(words, stdin=subprocess.DEVNULL, cwd=HERE)
    time.sleep(MIDDLE_S)
    # Between two quanta nobody may have to wait for a moment, so the look is repeated.
    waits = idle if filling else stopped
    before = 0
    for _ in range(50):
        before = max(before, sum(map(waits, processes(folder))))
        time.sleep(0.02)
    kill(child, guardian_too)
    if guardian_too:
        subprocess.run([args.colocate, "restore"], check=True)
    else:
        time.sleep(GUARDIAN_S)
    alive = processes(folder)
    line = {"kind": "killed", "guardian_too": guardian_too, "only_signals": args.only_signals, "filling": filling,
            "waiting_before": before, "alive_after": len(alive), "waiting_after": sum(map(waits, alive)),
            "placed_after": sum(map(placed, alive)), "all_ended": ended(folder, NAMES)}
    line["wrong"] = wrongs(programs, folder, NAMES)
    line["left_over"] = len(processes(folder))
    return line


def good(line):
    """Some had to wait and some lived when colocate died, and afterwards all was as it should be."""
    return (line["waiting_before"] > 0 and line["alive_after"] > 0 and line["all_ended"] and not line["wrong"]
            and not (line["waiting_after"] or line["placed_after"] or line["left_over"]))


def check(args, programs, folder):
    """All ways of letting programs wait, with and without the guardian; whether all was right."""
    all_good = True
    for only_signals, filling in ((False, False), (True, False), (False, True)):
        for guardian_too in (False, True):
            args.only_signals = only_signals
            line = once(args, programs, folder / f"kill-{only_signals}-{filling}-{guardian_too}", filling, guardian_too)
            all_good &= good(line)
            say(("right: " if good(line) else "WRONG: ") + ", ".join(f"{key} {value}" for key, value in line.items()))
    return all_good
