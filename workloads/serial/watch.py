"""How many threads of a program are runnable, from /proc: had a PU or waited for one."""
import threading, time
from pathlib import Path

# Between two looks. Chosen: five times the 4 ms by which the kernel's sums can be late for a thread that runs.
STEP_S = 0.02


def family(pid):
    """A process and all below it."""
    found, left = [], [pid]
    while left:
        one = left.pop()
        found.append(one)
        for path in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                left += [int(word) for word in path.read_text().split()]
            except OSError:
                continue
    return found


def sums(pid):
    """CPU time and time of waiting for a CPU of every thread, in seconds."""
    found = {}
    for one in family(pid):
        for path in Path(f"/proc/{one}/task").glob("*/schedstat"):
            try:
                run, wait = path.read_text().split()[:2]
            except (OSError, ValueError):
                continue
            found[path.parent.name] = (int(run) + int(wait)) / 1e9
    return found


class Runnable(threading.Thread):
    """Looks at a process until it is told that it has ended."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.over = pid, threading.Event()
        self.steps = []  # seconds, and the mean number of runnable threads

    def run(self):
        before, at = sums(self.pid), time.monotonic()
        while not self.over.wait(STEP_S):
            after, now = sums(self.pid), time.monotonic()
            if not after:
                break
            # What a thread did after its last look is lost, which is half a step of it.
            did = sum(total - before.get(tid, 0) for tid, total in after.items())
            self.steps.append((round(now - at, 4), round(did / (now - at), 3)))
            before, at = after, now


def serial_share(steps):
    """The share of the time in which less than one and a half threads were runnable."""
    total = sum(seconds for seconds, _ in steps)
    return sum(seconds for seconds, runnable in steps if runnable < 1.5) / total if total else None


def least_time(seconds, steps, ratio, pus):
    """What the best placement could reach of `seconds`, where one of `pus` PUs is `ratio` times slower: a single thread is on a
    fast one, and more threads have the whole machine. Less than that no scheduler can reach; it may be out of reach itself."""
    speed = pus - 1 + 1 / ratio
    least = sum(length * max(1.0, runnable / speed) for length, runnable in steps)
    # The beginning and the end are not looked at.
    return seconds * least / sum(length for length, _ in steps)
