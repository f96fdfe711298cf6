#!/usr/bin/env python3
"""Does anybody notice that the ring of caches changes, or that its replicas restart?

Question: 64 consumers read what one producer publishes at 10 MB/s, low-latency profile, shared memory.
Meanwhile the ring goes from 4 to 6 replicas, and to 3; then each of them restarts, the next when the
one before is whole. Then, at several repair rates, one replica of four restarts, some times over. Delay
p50 and p99 from the intended time of sending (open loop), in windows of a tenth of a second, put together
for each of these stretches, beside quiet ones before and after. Every consumer checks each byte, and that
no message is missing or comes twice.

Run:     ./dev bench resharding [--consumers 64] [--rate 10] [--seconds 12]
                                [--repair 25,50,100,200,400] [--repeat 4] [--skip-ring] [--json FILE]
Expect:  about 8 minutes. p99 while the ring changes at most 3 times that of the quiet stretch before
         it, and no message a second late, until 2 s after it; no error or gap. The highest repair
         rate at which the median p99 of the restarts is at most twice that of the quiet stretches
         before them. Nothing else may run: a machine that others fill is another one.

`busy` is the share of the machine's processor time that was used (the JSON has that of processes that give
way beside it, `nice`, which should be none). `replica CPU s`: what the process that
began anew has used until it was whole, and for how much of that the kernel gave it memory (pages that it
touched first).

Back of an envelope: a replica that begins anew copies as much as fits into its memory, 128 MB here;
reading and writing it costs about a core second per GB at each end. The caches are full, and their
memory is in place, after 17 s of 10 MB/s: it counts from then on.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from live import Consumers, Deployment, processes

AFTERWARDS = 2  # seconds, of which the longest delay is counted as well
STANDSTILL_MS = 1000  # nobody waits longer, for any message
WINDOW = 0.1  # seconds
RESTARTED = "cache-2"
TICKS = os.sysconf("SC_CLK_TCK")
DEFAULT_REPAIR = 25  # MB/s, of `cache.repair_bytes_per_s`
TOPOLOGY = """version: 1
clusters:
  - {name: cell}
streams:
  - {name: s, source: cell}
"""


def machine():
    """(used, given to who gives way, all) ticks of the machine's processors since it booted."""
    with open("/proc/stat") as stat:
        ticks = [int(n) for n in stat.readline().split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], ticks[1], sum(ticks)


def used_by(pid):
    """Processor seconds of a process, (all, in the kernel), and the pages that it has touched first."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS, int(fields[12]) / TICKS, int(fields[7])


def measure(args, folder, repair_mb, steps, quiet_seconds):
    """`steps`: (name, function of the deployment). Returns a row for each, and one for all of it."""
    deployment = Deployment(os.path.abspath(args.binary), folder, TOPOLOGY, "--caches", "4", "--spares", "2",
                            "--data-cache-bytes", "128MB", "--repair-bytes-per-s", f"{repair_mb}MB")
    deployment.quiet_seconds = quiet_seconds
    try:
        deployment.run("cache", "wait")
        consumers = Consumers(deployment, "s", args.consumers, args.processes, "--fabric", "shm", window=WINDOW)
        producer = deployment.produce("s", args.rate)
        time.sleep(args.warmup)
        rows = []
        for name, step in steps:
            begin, before = time.time(), machine()
            step(deployment)
            end, after = time.time() + WINDOW, machine()
            row = {"step": name, "repair_mb_per_s": repair_mb, "seconds": end - begin,
                   "busy": (after[0] - before[0]) / (after[2] - before[2]),
                   "nice": (after[1] - before[1]) / (after[2] - before[2])}
            if step is one_restart:
                row["replica_cpu_s"], row["replica_kernel_s"], row["replica_pages"] = used_by(
                    processes(deployment.process.pid)[f"cell/{RESTARTED}"])
            # The last window comes; what comes late after a step is seen, and over before the next one.
            time.sleep(AFTERWARDS + 0.1 if step is not quiet else 2 * WINDOW)
            row.update(consumers.percentiles(begin, end))
            # Who stands still says so when he goes on.
            row["max_ms"] = consumers.percentiles(begin, end + AFTERWARDS).get("max_ms", 0)
            if step is not quiet and "p99_ms" in row and "p99_ms" in rows[-1]:
                row["p99_times"] = row["p99_ms"] / rows[-1]["p99_ms"]
            rows.append(row)
            print(show(row), flush=True)
        produced = deployment.finish(producer)
        codes = consumers.finish()
    finally:
        deployment.stop()
    return rows, consumers.verdict(codes, produced)


def quiet(deployment):
    time.sleep(deployment.quiet_seconds)


def one_restart(deployment):
    deployment.run("cache", "restart", RESTARTED)


def together(rows, repair_mb):
    """The medians of the restarts, and of the quiet stretches before them."""
    def median(key, restarts):
        return statistics.median(r[key] for r in rows if ("p99_times" in r) == restarts)
    return {"repair_mb_per_s": repair_mb, "restarts": sum("p99_times" in r for r in rows),
            "quiet_p99_ms": median("p99_ms", False), "p99_ms": median("p99_ms", True),
            "p99_times": median("p99_ms", True) / median("p99_ms", False),
            "seconds": median("seconds", True), "quiet_busy": median("busy", False),
            **{key: median(key, True) for key in ("busy", "replica_cpu_s", "replica_kernel_s", "replica_pages")}}


HEADER = (f"{'step':<28} {'repair MB/s':>11} {'seconds':>8} {'busy':>5} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8} "
          f"{'p99 times':>9} replica CPU s")


def show(row):
    times = f"{row['p99_times']:.1f}" if "p99_times" in row else ""
    cpu = f"{row['replica_cpu_s']:.2f}, {row['replica_kernel_s']:.2f} kernel" if "replica_cpu_s" in row else ""
    return (f"{row['step']:<28} {row['repair_mb_per_s']:>11} {row['seconds']:>8.1f} {row['busy']:>5.0%} "
            f"{row.get('p50_ms', 0):>8.2f} {row.get('p99_ms', 0):>8.2f} {row.get('max_ms', 0):>8.1f} {times:>9} {cpu}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--consumers", type=int, default=64)
    parser.add_argument("--processes", type=int, default=4, help="that the consumers share")
    parser.add_argument("--rate", type=float, default=10, help="MB/s (10^6 bytes)")
    parser.add_argument("--seconds", type=float, default=12, help="of a quiet stretch while the ring changes")
    parser.add_argument("--repeat", type=int, default=4, help="restarts at each repair rate")
    parser.add_argument("--between", type=float, default=5, help="seconds of the quiet stretch before each of those")
    parser.add_argument("--warmup", type=float, default=20)
    parser.add_argument("--repair", default="25,50,100,200,400", help="repair rates, MB/s")
    parser.add_argument("--skip-ring", action="store_true", help="only the repair rates")
    parser.add_argument("--folder", help="for the deployment's files; default: a temporary one")
    parser.add_argument("--json", help="write the results here")
    args = parser.parse_args()

    def ring(*numbers):
        return lambda deployment: deployment.run("cache", "reshard", *[f"cache-{n}" for n in numbers])

    print(HEADER, flush=True)
    result = {}
    with tempfile.TemporaryDirectory(prefix="tc-ring-", dir=args.folder) as folder:
        if not args.skip_ring:
            rows, whole = measure(args, folder, DEFAULT_REPAIR, [
                ("quiet", quiet),
                ("4 -> 6 replicas", ring(1, 2, 3, 4, 5, 6)),
                ("quiet, 6 replicas", quiet),
                ("6 -> 3 replicas", ring(2, 5, 6)),
                ("quiet, 3 replicas", quiet),
                ("each of 3 restarts in turn", lambda deployment: deployment.run("cache", "restart")),
                ("quiet again", quiet)], args.seconds)
            result["ring"] = {"rows": rows, **whole}
        result["repair"] = []
        for repair_mb in [int(r) for r in args.repair.split(",") if r]:
            rows, whole = measure(args, folder, repair_mb,
                                  [("quiet", quiet), ("one restarts", one_restart)] * args.repeat, args.between)
            result["repair"].append({**together(rows, repair_mb), "rows": rows, **whole})
    ok = all(rate["ok"] for rate in result["repair"])
    if "ring" in result:
        worst = max(row.get("p99_times", 0) for row in result["ring"]["rows"])
        longest = max(row["max_ms"] for row in result["ring"]["rows"] if "p99_times" in row)
        ok = ok and result["ring"]["ok"] and longest <= STANDSTILL_MS
        print(f"while the ring changes and replicas restart: p99 at most {worst:.1f} times that before, "
              f"longest delay of a message {longest:.0f} ms{' TOO LONG' if longest > STANDSTILL_MS else ''}")
    for rate in result["repair"]:
        print(f"repair at {rate['repair_mb_per_s']} MB/s: p99 {rate['quiet_p99_ms']:.1f} ms, {rate['p99_ms']:.1f} ms while one "
              f"restarts, {rate['p99_times']:.1f} times (medians of {rate['restarts']}); whole after {rate['seconds']:.1f} s, "
              f"{rate['replica_cpu_s']:.2f} s of processor time, {rate['replica_kernel_s']:.2f} of them in the kernel")
    fits = [r["repair_mb_per_s"] for r in result["repair"] if r["p99_times"] <= 2]
    if fits:
        print(f"highest repair rate with p99 at most twice that before: {max(fits)} MB/s")
    elif result["repair"]:
        print("p99 is more than twice that before at each of these repair rates")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(result, indent=1))
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
