"""What is made of recorded programs: files that are easy to compare, a table, and the applications of `study serpa`."""
import json

FIGURES = ["slots", "dependent-cycles", "dependent-cycles-divided", "branch-misses", "written-back"]
# In the order of studies/serpa/nas.toml.
NAS = ["bt", "ft", "lu", "sp", "cg", "ep", "is", "mg", "ua"]
# Ten of each kind, of which all pairs are simulated: chosen by what they do, before any of them was.
BOTH_KINDS = ["bt", "cg", "ft", "lu", "mg", "ep", "dgemm", "hmmsearch", "minisat", "povray",
              "redis", "sqlite3", "python3", "perl", "cc1", "x264", "zstd", "sha512", "sort", "grep"]
SIZES = {"32 KiB": 32 << 10, "1 MiB": 1 << 20, "8 MiB": 8 << 20}
# Kinds of work by class.
CLASSES = {"branch": ["branch"], "float": ["float-add", "float-mul", "float-div"], "int": ["int", "int-mul", "int-div"],
           "load": ["load"], "store": ["store"]}


def renamed(recorded, name):
    """The same with phases called after the program."""
    for number, phase in enumerate(recorded["phase"], 1):
        phase["name"] = name if len(recorded["phase"]) == 1 else f"{name} {number}"
    return recorded


def compact(recorded):
    """JSON with a figure a line."""
    short = lambda value: json.dumps(value, separators=(",", ":"))
    phases = []
    for phase in recorded["phase"]:
        phases.append("{" + ",\n".join(f"{short(key)}:{short(rounded(value))}" for key, value in phase.items() if value != "unknown") + "}")
    course = f'"course":{short(recorded["course"])},\n' if recorded.get("course") else ""
    return f'{{"version":1,\n{course}"phase":[\n' + ",\n".join(phases) + "]}\n"


def rounded(value):
    """Six digits of every number: more were not counted."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value


def known(phase, key):
    figure = phase.get(key, "unknown")
    return None if figure == "unknown" else figure["value"]


def size(text):
    number, unit = text.split()
    return int(number) << {"B": 0, "KiB": 10, "MiB": 20, "GiB": 30}[unit]


def at(curve, place):
    """Misses at a size: a straight line between two points, level beyond, as the model has it."""
    before = [point for point in curve if point[0] <= place]
    after = [point for point in curve if point[0] > place]
    if not before or not after:
        return (before[-1] if before else after[0])[1]
    (low, more), (high, less) = before[-1], after[0]
    return more + (less - more) * (place - low) / (high - low)


def mean(pairs):
    return sum(weight * value for weight, value in pairs) / sum(weight for weight, _ in pairs)


def whole(recorded, name):
    """One vector of all phases by their instructions."""
    weights = [0] * len(recorded["phase"])
    for phase, ran in recorded["course"]:
        weights[phase] += ran
    parts = [*zip(weights, recorded["phase"])]
    how = f"mean of {len(parts)} phases by their instructions; " if len(parts) > 1 else ""
    phase = {"name": name}
    largest = max(parts, key=lambda part: part[0])[1]
    for key in FIGURES:
        values = [(weight, known(part, key)) for weight, part in parts if known(part, key) is not None]
        if values:
            phase[key] = {"value": mean(values), "source": how + next(p for _, p in parts if known(p, key) is not None)[key]["source"]}
    kinds = sorted({kind for _, part in parts for kind in known(part, "work")["kinds"]})
    work = {kind: mean([(weight, known(part, "work")["kinds"].get(kind, 0)) for weight, part in parts]) for kind in kinds}
    phase["work"] = {"value": {"kinds": work}, "source": how + largest["work"]["source"]}
    curves = [(weight, [(size(text), misses) for text, misses in known(part, "misses")]) for weight, part in parts]
    places = sorted({place for _, curve in curves for place, _ in curve})
    points = []
    for place in places:
        misses = mean([(weight, at(curve, place)) for weight, curve in curves])
        points.append([f"{place} B", min([misses, *(point[1] for point in points[-1:])])])
    phase["misses"] = {"value": points, "source": how + largest["misses"]["source"]}
    return phase


def shares(phase):
    """Shares of the classes, percent."""
    kinds = known(phase, "work")["kinds"]
    return [100 * sum(kinds.get(kind, 0) for kind in of) for of in CLASSES.values()]


def row(name, kind, does, recorded):
    phase = whole(recorded, name)
    curve = [(size(text), misses) for text, misses in known(phase, "misses")]
    cells = [f"{share:.0f}" for share in shares(phase)]
    cells += [f"{1000 * at(curve, place):.2f}" for place in SIZES.values()]
    cells.append(f"{1000 * (known(phase, 'branch-misses') or 0):.1f}")
    instructions = sum(ran for _, ran in recorded["course"])
    return f"| {name} | {kind} | {does} | {instructions / 1e9:.2f} | {len(recorded['phase'])} | " + " | ".join(cells) + " |"


def write(here, kept, manifest, programs):
    """The table and the applications, from what is kept."""
    recorded = {name: json.loads(kept.joinpath(f"{name}.json").read_text()) for name in programs if name in manifest}
    page = here / "docs/results/programs.md"
    text = page.read_text()
    begin, end = "<!-- table -->\n", "<!-- end of the table -->\n"
    head, tail = text.split(begin)[0], text.split(end)[1]
    lines = ["| program | kind | does | 10⁹ instructions | phases | branch | float | int | load | store | 32 KiB | 1 MiB | 8 MiB | mispredicted |",
             "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"]
    lines += [row(name, manifest[name][1], manifest[name][2], of) for name, of in recorded.items()]
    page.write_text(head + begin + "\n".join(lines) + "\n" + end + tail)
    for file, names in {"recorded": NAS, "hpc-and-server": BOTH_KINDS}.items():
        phases = [whole(recorded[name], name.upper() if name in NAS else name) for name in names if name in recorded]
        if len(phases) > 1:
            here.joinpath(f"studies/serpa/{file}.json").write_text(compact({"phase": phases}))
