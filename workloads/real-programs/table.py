"""Tables of a series in Markdown: turnaround beside that under `os`, with Student's 95 % intervals."""
import json, math


def read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def student(degrees, tail=0.025):
    """The value that Student's t with so many degrees of freedom exceeds with the probability `tail`."""
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(degrees * math.pi)
    density = lambda x: scale * (1 + x * x / degrees) ** (-(degrees + 1) / 2)

    def beyond(x, steps=2_000):
        h = x / steps
        inner = sum((4 if i % 2 else 2) * density(i * h) for i in range(1, steps))
        return 0.5 - h / 3 * (density(0) + inner + density(x))

    low, high = 0.0, 1_000.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if beyond(middle) > tail else (low, middle)
    return low


def interval(values):
    """Mean and half of the 95 % interval, which is None for a single value."""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, None
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, student(len(values) - 1) * math.sqrt(variance / len(values))


def percent(logs):
    """Mean change in percent with its interval, of logarithms of ratios."""
    mean, half = interval(logs)
    change = lambda log: f"{100 * (math.exp(log) - 1):+.1f}".replace("-", "−")
    if half is None:
        return change(mean)
    return f"{change(mean)} ({change(mean - half)} to {change(mean + half)})"


def label(run):
    return f"`{run['policy']}`" + (", with the guard" if run["guard"] else "")


def mean_end(run):
    ends = [job["ended_s"] for job in run["jobs"] if job["ended_s"] is not None]
    return sum(ends) / len(ends)


def rows(lines):
    """Runs by scheduler, in the order of the policies' names, `os` first."""
    runs = [line for line in lines if line["kind"] == "run"]
    names = sorted({(run["policy"] != "os", run["guard"], run["policy"]) for run in runs})
    return [[run for run in runs if (run["policy"] != "os", run["guard"], run["policy"]) == name] for name in names]


def row(runs, os_by_round, pus):
    """A line of the table, for a machine of so many PUs. Rounds without a whole run under `os` count for nothing but seconds."""
    pairs = [(run, os_by_round[run["round"]]) for run in runs if run["round"] in os_by_round]
    ratios = lambda of: percent([math.log(of(run) / of(base)) for run, base in pairs]) if pairs else "–"
    is_os = runs[0]["policy"] == "os"
    seconds = sum(run["turnaround_s"] for run in runs) / len(runs)
    own = sum(run["colocate_cpu_s"] for run in runs) / sum(run["turnaround_s"] for run in runs)
    idle = 1 - sum(run["busy_s"] for run in runs) / sum(pus * run["turnaround_s"] for run in runs)
    right = sum(len(run["jobs"]) - len(run["wrong"]) for run in runs)
    all_ = sum(len(run["jobs"]) for run in runs)
    cells = [label(runs[0]), str(len(runs)), f"{seconds:.2f}", "–" if is_os else ratios(lambda run: run["turnaround_s"]),
             "–" if is_os else ratios(mean_end), f"{100 * idle:.1f}", "–" if is_os else ratios(lambda run: run["busy_s"]),
             f"{100 * own:.2f}", f"{right} of {all_}"]
    return "| " + " | ".join(cells) + " |"


def schedulers(lines):
    os_by_round = {run["round"]: run for run in lines if run["kind"] == "run" and run["policy"] == "os"}
    out = ["| scheduler | runs | turnaround, s | against `os`, % | mean end of the programs, % | PUs idle, % "
           "| CPU time, % | colocate itself, % of a PU | programs that did all right |", "|---|--:|--:|--:|--:|--:|--:|--:|--:|"]
    out += [row(runs, os_by_round, lines[0]["pus"]) for runs in rows(lines)]
    said = {}
    for line in lines:
        if line["kind"] == "refused":
            said.setdefault(line["said"], []).append(label(line))
    out += [""] + [f"- {', '.join(sorted(set(who)))} cannot work here: `{why}`" for why, who in said.items()]
    return out + [f"- round {line['round']}, `{line['policy']}` failed: `{line['said']}`" for line in lines
                  if line["kind"] == "failed"]


def programs(lines):
    """When each ended, by scheduler: means in seconds."""
    by = rows(lines)
    names = [job["name"] for job in by[0][0]["jobs"]]
    bare = {line["program"]: line["seconds"] for line in lines if line["kind"] == "bare"}
    out = ["| scheduler | " + " | ".join(names) + " |", "|---|" + "--:|" * len(names),
           "| alone, without colocate | " + " | ".join(f"{bare[name]:.1f}" for name in names) + " |"]
    for runs in by:
        ends = [sum(run["jobs"][i]["ended_s"] for run in runs) / len(runs) for i in range(len(names))]
        out.append(f"| {label(runs[0])} | " + " | ".join(f"{end:.1f}" for end in ends) + " |")
    return out


def tables(path):
    """Both tables with their head."""
    lines = read(path)
    head = lines[0]
    runs = [line for line in lines if line["kind"] == "run"]
    return "\n".join([
        f"{head['processor']}, {head['pus']} PUs, {head['system']}, {head['date']}, load {head['load']:.2f} before; "
        f"{head['colocate']}; `{head['command']}`; quantum {head['quantum_ms']} ms; "
        f"{max((run['round'] for run in runs), default=0)} rounds.", "",
        *schedulers(lines), "", "When each program ended, in seconds after the launch:", "", *programs(lines), ""])
