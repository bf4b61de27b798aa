#!/usr/bin/env python3
"""Counts how often damaged XML crashes hwloc: crash.py ROUNDS FILE..."""
import collections
import random
import re
import subprocess
import sys
import tempfile

VALUES = ["-1", "0", "99999999", "0x0", "0xf...f", "", "abc", "18446744073709551615",
          "0xffffffff,0x1", "Group", "Core", "NUMANode", "PU", "Machine", "MemCache"]


def damage(lines, rng):
    """Deletes, doubles, swaps or rewrites something in one line."""
    at = rng.randrange(len(lines))
    values = list(re.finditer(r' \w+="([^"]*)"', lines[at]))
    choice = rng.randrange(6)
    if choice == 0:
        del lines[at]
    elif choice == 1:
        lines.insert(at, rng.choice(lines))
    elif choice == 2 and values:
        value = rng.choice(values)
        lines[at] = lines[at][:value.start(1)] + rng.choice(VALUES) + lines[at][value.end(1):]
    elif choice == 3 and lines[at]:
        letter = rng.randrange(len(lines[at]))
        lines[at] = lines[at][:letter] + chr(rng.randint(1, 126)) + lines[at][letter + 1:]
    elif choice == 4:
        other = rng.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    elif values:
        value = rng.choice(values)
        lines[at] = lines[at][:value.start()] + lines[at][value.end():]


def main():
    rng = random.Random(1)
    seeds = [open(path, encoding="utf-8").read() for path in sys.argv[2:]]
    counts = collections.Counter()
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        for _ in range(int(sys.argv[1])):
            lines = rng.choice(seeds).split("\n")
            for _ in range(rng.randint(1, 3)):
                damage(lines, rng)
            file.seek(0)
            file.truncate()
            file.write("\n".join(lines))
            file.flush()
            command = ["lstopo-no-graphics", "-i", file.name, "--if", "xml"]
            code = subprocess.run(command, capture_output=True, check=False).returncode
            counts["crashed" if code < 0 else "refused" if code else "read"] += 1
    print(dict(counts))


main()
