#!/usr/bin/env python3
"""What does a hop cost, and a reader or writer that dies or stops on it?

Question: a stream is produced in one cell and read in another, low-latency profile, at 1 MB/s over a
link with a round trip of 40 ms. Delay p50 and p99 from the intended time of sending (open loop) while
nothing happens; then each reader of the first cell and each writer of the second is killed (SIGKILL),
and later stopped (SIGSTOP) for some seconds: the longest delay of any message meanwhile. One of each
kind runs the stream's operations: the worst of a kind counts. Every byte is checked. In the quiet stretch
there is a consumer in the first cell, too: what it waits for is the producer, its disk and the cell's caches, and
what the other one waits longer than that and the link is what the hop adds.

Run:     ./dev bench hop [--rtt 40] [--rate 1] [--seconds 8] [--consumers 1] [--json FILE]
Expect:  about 2 minutes. A killed one costs at most 100 ms and two round trips beyond the quiet p50,
         a stopped one 300 ms more; the hop adds at most 5 ms at p99 beyond half the round trip.

Back of an envelope: a death is a broken connection, which the reader or scheduler sees at once; the
replacement opens its file by fencing (a round trip) and goes on where that stands. A stop is seen by
missing beats, 100 ms apart: 200 ms after the last one at the earliest.
"""

import argparse
import json
import os
import pathlib
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from live import Consumers, Deployment

HOP_ADDS_P99_MS = 5
TOPOLOGY = """version: 1
clusters:
  - {{name: near}}
  - {{name: far}}
links:
  - {{from: near, to: far, usd_per_gb: 0.02, rtt_ms: {rtt}, both: true}}
streams:
  - {{name: s, source: near}}
"""


def pids(deployment, cell, role):
    cells = {c["name"]: c for c in json.loads(deployment.run("status", "--json"))["cells"]}
    return [p["pid"] for p in cells[cell]["processes"] if p["role"] == role]


def disturb(deployment, consumers, args, cell, role, kind):
    """The longest delay of a message while each process of the role was killed, or stopped."""
    worst = {}
    for pid in pids(deployment, cell, role):
        begin = time.time()
        os.kill(pid, signal.SIGKILL if kind == "killed" else signal.SIGSTOP)
        time.sleep(args.stop)
        if kind == "stopped":
            os.kill(pid, signal.SIGCONT)
        # Back, with a lease, before the next one goes.
        time.sleep(args.stop)
        end = time.time()
        time.sleep(0.6)  # the last window comes
        row = consumers.percentiles(begin, end)
        if row.get("max_ms", 0) >= worst.get("max_ms", 0):
            worst = row
    return worst


def show(row):
    beyond = f"{row['beyond_ms']:>10.1f} {row['limit_ms']:>9.0f}" if "limit_ms" in row else ""
    return f"{row['step']:<18} {row['p50_ms']:>8.1f} {row['p99_ms']:>8.1f} {row['max_ms']:>8.1f} {beyond}"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--rtt", type=float, default=40, help="of the link, ms")
    parser.add_argument("--rate", type=float, default=1, help="MB/s (10^6 bytes)")
    parser.add_argument("--consumers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=8, help="of the quiet stretch")
    parser.add_argument("--stop", type=float, default=4, help="seconds that one is stopped")
    parser.add_argument("--folder", help="for the deployment's files; default: a temporary one")
    parser.add_argument("--json", help="write the results here")
    parser.add_argument("--limit-factor", type=float,
                        help="fail if consumers waited longer than so many times a limit; default: only show it")
    args = parser.parse_args()

    rows = []

    def add(row):
        rows.append(row)
        print(show(row), flush=True)

    print(f"{'step':<18} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8} {'beyond ms':>10} {'limit ms':>9}")
    with tempfile.TemporaryDirectory(prefix="tc-hop-", dir=args.folder) as folder:
        deployment = Deployment(os.path.abspath(args.binary), folder, TOPOLOGY.format(rtt=args.rtt),
                                "--durability", "page-cache", "--data-cache-bytes", "64MB")
        try:
            consumers = Consumers(deployment, "s", args.consumers, 1, "--cluster", "far")
            near = Consumers(deployment, "s", 1, 1, "--cluster", "near")
            producer = deployment.produce("s", args.rate, "--cluster", "near")
            time.sleep(5)
            begin = time.time()
            time.sleep(args.seconds)
            end = time.time()
            time.sleep(0.6)
            quiet = {"step": "quiet", **consumers.percentiles(begin, end)}
            before_hop = {"step": "quiet, first cell", **near.percentiles(begin, end)}
            add(before_hop)
            quiet["beyond_link_p99_ms"] = quiet["p99_ms"] - args.rtt / 2
            quiet["hop_adds_p50_ms"] = quiet["p50_ms"] - args.rtt / 2 - before_hop["p50_ms"]
            quiet["hop_adds_p99_ms"] = quiet["beyond_link_p99_ms"] - before_hop["p99_ms"]
            add(quiet)
            for kind, limit in (("killed", 100 + 2 * args.rtt), ("stopped", 400 + 2 * args.rtt)):
                for cell, role in (("near", "reader"), ("far", "writer")):
                    row = {"step": f"{role} {kind}", "limit_ms": limit,
                           **disturb(deployment, consumers, args, cell, role, kind)}
                    row["beyond_ms"] = row["max_ms"] - quiet["p50_ms"]
                    add(row)
            produced = deployment.finish(producer)
            codes = consumers.finish()
            codes_near = near.finish()
        finally:
            deployment.stop()
    whole = consumers.verdict(codes, produced)
    whole["ok"] = near.verdict(codes_near, produced)["ok"] and whole["ok"]
    print(f"from publish to hand p99 is {quiet['beyond_link_p99_ms']:.1f} ms beyond half the round trip; of that the "
          f"hop adds {quiet['hop_adds_p99_ms']:.1f} ms (p50: {quiet['hop_adds_p50_ms']:.1f} ms)")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"rows": rows, **whole}, indent=1))
    late = [row["step"] for row in rows
            if args.limit_factor and row.get("beyond_ms", 0) > row.get("limit_ms", 0) * args.limit_factor]
    if args.limit_factor and quiet["hop_adds_p99_ms"] > HOP_ADDS_P99_MS * args.limit_factor:
        late.append("quiet")
    if late:
        print(f"beyond {args.limit_factor:g} times the limit: {', '.join(late)}")
    sys.exit(0 if whole["ok"] and not late else 1)


if __name__ == "__main__":
    main()
