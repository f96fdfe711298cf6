#!/usr/bin/env python3
"""What does a deployment cost that nobody uses?

Question: `tailcast up` as it is by default, three cells with all their processes and one stream that nobody writes:
the processor time that each role takes, and the memory that is its own.

Run:     ./dev bench idle [--seconds 30] [--json FILE]
Expect:  as long as asked. At most 3 % of one processor and 200 MB altogether, on a machine that does nothing else.

Back of an envelope: some 30 processes that wake ten times a second, for a beat and its answer at 50 us each: 1.5 %.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from live import Deployment, own_bytes, processes

CPU_PERCENT_MAX = 3
OWN_MB_MAX = 200
SETTLE_S = 10  # what a start has left to do


def cpu_seconds(pid):
    """Of all threads of a process, those that have ended apart: an idle one starts none."""
    return sum(int((thread / "schedstat").read_text().split()[0])
               for thread in pathlib.Path(f"/proc/{pid}/task").iterdir()) / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--folder", help="for the deployment's files; default: a temporary one")
    parser.add_argument("--json", help="write the results here")
    parser.add_argument("--limit-factor", type=float,
                        help="fail if it takes more than so many times the processor time, or more memory; default: only show it")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="tc-idle-", dir=args.folder) as folder:
        deployment = Deployment(os.path.abspath(args.binary), folder, None)
        try:
            time.sleep(SETTLE_S)
            pids = {"up": deployment.process.pid, **processes(deployment.process.pid)}
            begin = time.monotonic()
            before = {name: cpu_seconds(pid) for name, pid in pids.items()}
            time.sleep(args.seconds)
            after = {name: cpu_seconds(pid) for name, pid in pids.items()}
            elapsed = time.monotonic() - begin
            own = {name: own_bytes(pid) / 1e6 for name, pid in pids.items()}
        finally:
            deployment.stop()

    roles = {}
    for name in pids:
        role = roles.setdefault(name.rpartition("/")[2].rstrip("-0123456789"), {"processes": 0, "cpu_percent": 0.0, "own_mb": 0.0})
        role["processes"] += 1
        role["cpu_percent"] += 100 * (after[name] - before[name]) / elapsed
        role["own_mb"] += own[name]
    total = {key: sum(role[key] for role in roles.values()) for key in ("processes", "cpu_percent", "own_mb")}
    print(f"{'role':<12} {'processes':>9} {'% of a core':>12} {'own MB':>8}")
    for name, role in [*sorted(roles.items()), ("all", total)]:
        print(f"{name:<12} {role['processes']:>9} {role['cpu_percent']:>12.2f} {role['own_mb']:>8.1f}")
    print(f"asked: at most {CPU_PERCENT_MAX} % and {OWN_MB_MAX} MB")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"roles": roles, **total}, indent=1))
    factor = args.limit_factor
    sys.exit(1 if factor and (total["cpu_percent"] > factor * CPU_PERCENT_MAX or total["own_mb"] > OWN_MB_MAX) else 0)


if __name__ == "__main__":
    main()
