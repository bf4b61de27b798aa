"""Tables of a series in Markdown: what each way of placing threads gains over the kernel's, and beside the oracle's gain."""
import math

import suite, watch
from table import interval, percent, read, student

# Programs that are serial for so much of their time are those for which most of the oracle's gain is wanted.
SERIAL, WANTED, HARMLESS = 0.25, 90.0, 1.0
# Where the oracle gains less, its shares say nothing. Chosen: the harm that is allowed.
LEAST_GAIN = math.log(1 + HARMLESS / 100)
# Those that the targets are for.
JUDGED = ["parallelism-aware", "efficiency", "utility", "all-fast-first"]
ORDER = ["bare", "os", "pinned-fast", "pinned-slow", "pinned-in-order", *JUDGED, "oracle"]


class Series:
    """A series: seconds of every run by program and way, by round."""

    def __init__(self, lines):
        self.head = lines[0]
        self.slow = next(line["report"] for line in lines if line["kind"] == "slow")
        self.still = next((line["report"] for line in lines if line["kind"] == "still"), None)
        self.alike = {line["program"]: line for line in lines if line["kind"] == "phases" and line.get("steps")}
        self.refused = {line["way"]: line["said"] for line in lines if line["kind"] == "refused"}
        self.seconds, self.wrong, self.runs = {}, 0, 0
        for line in lines:
            if line["kind"] == "run":
                self.runs += 1
                self.wrong += bool(line["wrong"])
                if not line["wrong"]:
                    self.seconds.setdefault((line["program"], line["way"]), {})[line["round"]] = line["seconds"]
        self.programs = [name for name in self.alike if any(name == program for program, _ in self.seconds)]

    def ways(self, program):
        return [way for way in sorted({way for _, way in self.seconds}, key=order) if (program, way) in self.seconds]

    def logs(self, program, way, base):
        """Logarithms of the ratios to a base, of the rounds that have both."""
        these, those = self.seconds.get((program, way), {}), self.base(program, base)
        return {round_: math.log(these[round_] / those[round_]) for round_ in these if round_ in those}

    def base(self, program, base):
        """Seconds by round; the oracle of a program that cannot be its own is computed."""
        if base != "oracle" or (program, base) in self.seconds:
            return self.seconds.get((program, base), {})
        alike = self.alike[program]
        least = watch.least_time(alike["seconds"], alike["steps"], self.slow["ratio"]["mean"]["value"], self.head["pus"])
        return {round_: least for round_ in self.seconds.get((program, "os"), {})}

    def gains(self, program, way):
        """Pairs of what a way and the oracle gain over `os`, as logarithms, by round."""
        os_, best = self.seconds.get((program, "os"), {}), self.base(program, "oracle")
        gain = self.logs(program, way, "os")
        return [(-gain[round_], math.log(os_[round_] / best[round_])) for round_ in gain if round_ in best]

    def serial(self, program):
        return watch.serial_share(self.alike[program]["steps"])


def name_of(way):
    """A scheduler without its settings."""
    return way.split(":")[0]


def order(way):
    name = name_of(way)
    return (ORDER.index(name) if name in ORDER else len(ORDER), way)


def ratio_of_means(pairs):
    return sum(one for one, _ in pairs) / sum(other for _, other in pairs)


def share(pairs):
    """The share of the oracle's gain in percent, with half its 95 % interval by the jackknife's pseudo-values; `None` where there is no
    gain to have a share of."""
    if not pairs or sum(best for _, best in pairs) / len(pairs) < LEAST_GAIN:
        return None
    whole, count = ratio_of_means(pairs), len(pairs)
    if count < 3:
        return 100 * whole, None
    without = [ratio_of_means(pairs[:at] + pairs[at + 1:]) for at in range(count)]
    _, half = interval([count * whole - (count - 1) * one for one in without])
    return 100 * whole, 100 * half


def number(value):
    return f"{value:.0f}".replace("-", "−")


def share_text(found):
    if found is None:
        return "–"
    value, half = found
    return number(value) if half is None else f"{number(value)} ({number(value - half)} to {number(value + half)})"


def row(series, program, way):
    seconds = series.seconds[(program, way)].values()
    against = lambda base: percent(list(logs.values())) if way != base and (logs := series.logs(program, way, base)) else "–"
    cells = [program, f"{100 * series.serial(program):.0f}", f"`{way}`", str(len(seconds)), f"{sum(seconds) / len(seconds):.3f}",
             against("bare"), against("os"), "–" if way in ("os", "oracle") else share_text(share(series.gains(program, way)))]
    return "| " + " | ".join(cells) + " |"


def computed(series, program):
    """The oracle of a program that cannot be its own."""
    bases = series.base(program, "oracle")
    os_ = series.seconds.get((program, "os"), {})
    logs = [math.log(bases[round_] / os_[round_]) for round_ in os_]
    if not logs:
        return []
    return [f"| {program} | {100 * series.serial(program):.0f} | oracle, computed | – | {next(iter(bases.values())):.3f} | – "
            f"| {percent(logs)} | – |"]


def whole(series):
    out = ["| program | serial, % | placed by | runs | s | against `bare`, % | against `os`, % | share of the oracle's gain, % |",
           "|---|--:|---|--:|--:|--:|--:|--:|"]
    for program in series.programs:
        out += [row(series, program, way) for way in series.ways(program)]
        if (program, "oracle") not in series.seconds:
            out += computed(series, program)
    return out


def verdict(series, way):
    """The two targets: the least share of the oracle's gain where it counts, and the worst against `os`."""
    shares, worst = [], []
    for program in series.programs:
        logs = list(series.logs(program, way, "os").values())
        if not logs:
            continue
        mean, half = interval(logs)
        worst.append((100 * (math.exp(mean) - 1), None if half is None else 100 * (math.exp(mean + half) - 1), program))
        found = share(series.gains(program, way))
        if found is not None and series.serial(program) >= SERIAL:
            shares.append((found[0], found[1], program))
    least, most = min(shares, default=None, key=lambda one: one[0]), max(worst, default=None, key=lambda one: one[0])
    return least, most


def answer(value, holds, surely):
    """Whether a target is reached: surely, by the mean only, or not."""
    if value is None:
        return "unknown"
    return "yes" if surely else "by the mean" if holds else "no"


def targets(series):
    out = [f"| placed by | least share of the oracle's gain, %, where ≥ {100 * SERIAL:.0f} % is serial | ≥ {WANTED:.0f} % "
           f"| worst against `os`, % | ≤ {HARMLESS:.0f} % |", "|---|--:|---|--:|---|"]
    for way in sorted({way for _, way in series.seconds if name_of(way) in JUDGED}, key=order):
        least, most = verdict(series, way)
        cells = [f"`{way}`", "–" if least is None else f"{share_text(least[:2])}, {least[2]}",
                 answer(least, least and least[0] >= WANTED, least and least[1] is not None and least[0] - least[1] >= WANTED),
                 "–" if most is None else f"{most[0]:+.1f}".replace("-", "−") + f", {most[2]}",
                 answer(most, most and most[0] <= HARMLESS, most and most[1] is not None and most[1] <= HARMLESS)]
        out.append("| " + " | ".join(cells) + " |")
    return out


def estimate(found):
    if found["interval"] is None:
        return f"{found['value']:.3f}"
    return f"{found['value']:.3f} ({found['interval']['low']:.3f} to {found['interval']['high']:.3f})"


def tables(path):
    """Both tables with their head."""
    series = Series(read(path))
    head, slow = series.head, series.slow
    rounds = max((round_ for by in series.seconds.values() for round_ in by), default=0)
    still = f", {estimate(series.still['after']['mean'])} at the end" if series.still and series.still["after"] else ""
    refused = [f"- `{way}` cannot work here: `{why}`" for way, why in series.refused.items()]
    return "\n".join([
        f"{head['processor']}, {head['pus']} PUs, {head['system']}, {head['date']}, load {head['load']:.2f} before; "
        f"{head['colocate']}; `{head['command']}`; quantum {head['quantum_ms']} ms; {rounds} rounds; "
        f"{series.runs - series.wrong} of {series.runs} runs did all right.",
        f"PU {slow['cpu']} is {estimate(slow['ratio']['mean'])} times slower than PU {slow['fast']}{still}.", "",
        *targets(series), "", *whole(series), *([""] + refused if refused else []), ""])
