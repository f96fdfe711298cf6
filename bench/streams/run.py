#!/usr/bin/env python3
"""What do a cell's processes cost that look after very many streams, its scheduler above all?

Question: two cells, 2,000 streams that are idle, each with a closed file, and 200 that are written to,
all copied from one cell to the other. The CPU time of each process, and how often it wakes up, over
a minute in which files roll over and shards are looked at.

Run:     ./dev bench streams [--idle 2000] [--active 200] [--rate 4000] [--seconds 60] [--json FILE]
Expect:  some 8 minutes, most of them to make the streams. Less than 20 % of a core each.

Back of an envelope: 200 active streams are 400 operations, whose readers report twice a second, and
with files of 64 KB at 4 KB/s 12 new files a second. Each stream's folder is listed once in 30 s: 73
listings a second.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from live import Deployment, processes

TOPOLOGY = """version: 1
clusters:
  - {name: near}
  - {name: far}
links:
  - {from: near, to: far, usd_per_gb: 0.02, rtt_ms: 2, both: true}
streams:
"""
LIMIT_PERCENT = 20  # of a core, for each scheduler


def used(pid):
    """CPU seconds of a process, and how often its threads were woken."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    wakes = 0
    for status in pathlib.Path(f"/proc/{pid}/task").glob("*/status"):
        wakes += int(status.read_text().rpartition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return seconds, wakes


def producers(args, cell, first, count, *more):
    env = dict(os.environ, PYTHONPATH=str(ROOT / "clients/python"), PYTHONDONTWRITEBYTECODE="1",
               TAILCAST_LIBRARY=os.path.abspath(args.library))
    return subprocess.Popen([sys.executable, str(pathlib.Path(__file__).with_name("producers.py")), cell, str(first), str(count),
                             str(args.rate), *more], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--library", required=True, help="libtailcast.so")
    parser.add_argument("--idle", type=int, default=2000, help="streams")
    parser.add_argument("--active", type=int, default=200, help="streams")
    parser.add_argument("--rate", type=int, default=4000, help="bytes a second, of each active one")
    parser.add_argument("--seconds", type=float, default=60, help="that are measured")
    parser.add_argument("--folder", help="for the deployment's files; default: a temporary one")
    parser.add_argument("--json", help="write the results here")
    args = parser.parse_args()

    rows = []
    with tempfile.TemporaryDirectory(prefix="tc-streams-", dir=args.folder) as folder:
        names = "".join(f"  - {{name: s{n}, source: near}}\n" for n in range(args.active, args.active + args.idle))
        began = time.monotonic()
        deployment = Deployment(os.path.abspath(args.binary), folder, TOPOLOGY + names, "--durability", "page-cache",
                                "--data-cache-bytes", "64MB")
        try:
            for n in range(args.active):
                deployment.run("stream", "create", "--cluster", "near", "--stream", f"s{n}", "--file-bytes", "65536")
            print(f"{args.active + args.idle} streams made in {time.monotonic() - began:.0f} s", flush=True)
            cells = {c["name"]: c for c in json.loads(deployment.run("status", "--json"))["cells"]}
            address = cells["near"]["scheduler"]
            began = time.monotonic()
            if args.idle > 0:
                idle = producers(args, address, args.active, args.idle, "once")
                if idle.stdout.readline() != "open\n" or idle.wait() != 0:
                    sys.exit("the idle streams could not be written to")
            active = producers(args, address, 0, args.active)
            if active.stdout.readline() != "open\n":
                sys.exit("the producers did not open")
            print(f"written to in {time.monotonic() - began:.0f} s", flush=True)
            time.sleep(40)  # what is new is copied, and every shard was looked at once
            pids = {name: pid for name, pid in processes(deployment.process.pid).items()}
            before, begin = {name: used(pid) for name, pid in pids.items()}, time.monotonic()
            time.sleep(args.seconds)
            seconds = time.monotonic() - begin
            for name, pid in sorted(pids.items()):
                now = used(pid)
                rows.append({"process": name, "percent": 100 * (now[0] - before[name][0]) / seconds,
                             "wakes_per_s": (now[1] - before[name][1]) / seconds})
            active.stdin.close()
            ok = active.wait(timeout=120) == 0
        finally:
            deployment.stop()
    print(f"\n{'process':<20} {'% of a core':>12} {'wakes/s':>9}")
    for row in rows:
        print(f"{row['process']:<20} {row['percent']:>12.1f} {row['wakes_per_s']:>9.0f}")
    busy = [r["process"] for r in rows if "scheduler" in r["process"] and r["percent"] > LIMIT_PERCENT]
    if busy:
        print(f"more than {LIMIT_PERCENT} %: {', '.join(busy)}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"idle": args.idle, "active": args.active, "rows": rows}, indent=1))
    sys.exit(0 if ok and not busy else 1)


if __name__ == "__main__":
    main()
