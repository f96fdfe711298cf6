#!/usr/bin/env python3
"""How long a message takes, and how many consumers keep up: end to end, in one cell.

Question: with 1, 4, 16 and 64 consumers (threads of one process, or processes), over shared memory and
over tcp, at 4 and 40 MB/s of 1 KB messages and at the highest rate: delay p50/p99/p99.9 from the
intended time of sending (open loop), delivered Gbit/s, the rate that the producer held, CPU seconds of
cache servers and consumers per delivered GB. Each consumer has its own connections and does its own
reads, checks and decoding; files roll over on the way; every byte is checked against what must be there.

Run:     ./dev bench e2e [--quick] [--consumers 16] [--rates 4,40,max] [--fabrics shm,tcp]
                         [--modes processes,threads] [--durability durable|page-cache] [--json FILE]
Expect:  about 12 minutes for all; 1 minute with --quick. Timings of a small machine are noisy: compare
         with the two bare fdatasyncs of the same run (`2 x fdatasync`), taken while the load ran.

Back of an envelope: low-latency profile, 4 MB/s: a message waits for the flush under way (data and
index, two fdatasyncs one after the other), then for its own, then 2 rpcs of some 0.2 ms and a wake-up.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

TOPOLOGY = """version: 1
clusters:
  - {name: cell}
"""


def log(text):
    print(text, file=sys.stderr, flush=True)


class FdatasyncSampler:
    """Times two serial (write 4 KB, fdatasync) pairs every `interval` seconds in a thread of its own."""

    def __init__(self, folder, interval):
        self.samples = []
        self.stop = threading.Event()
        self.files = [os.open(os.path.join(folder, f"fdatasync-{i}"), os.O_CREAT | os.O_RDWR)
                      for i in range(2)]
        self.interval = interval
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        block = os.urandom(4096)
        while not self.stop.wait(self.interval):
            start = time.perf_counter()
            for file in self.files:
                os.write(file, block)
                os.fdatasync(file)
            self.samples.append((time.perf_counter() - start) * 1e6)

    def finish(self):
        self.stop.set()
        self.thread.join()
        for file in self.files:
            os.close(file)
        ordered = sorted(self.samples)
        pick = lambda q: ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else 0
        return {"count": len(ordered), "p50_us": pick(0.5), "p99_us": pick(0.99)}


def cpu_seconds(pids):
    total = 0
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def percentile(cdf, count, q):
    """From added-up [us, records at most that late] lists."""
    for us, at_most in cdf:
        if at_most >= q * count:
            return us
    return cdf[-1][0] if cdf else 0


def add_cdfs(cdfs):
    points = sorted({us for cdf in cdfs for us, _ in cdf})
    result = []
    at = [0] * len(cdfs)
    value = [0] * len(cdfs)
    for us in points:
        for i, cdf in enumerate(cdfs):
            while at[i] < len(cdf) and cdf[at[i]][0] <= us:
                value[i] = cdf[at[i]][1]
                at[i] += 1
        result.append((us, sum(value)))
    return result


class Deployment:
    def __init__(self, binary, folder, durability):
        self.binary = binary
        self.folder = folder
        topology = os.path.join(folder, "one-cell.yaml")
        pathlib.Path(topology).write_text(TOPOLOGY)
        self.dir = os.path.join(folder, "deployment")
        self.log = open(os.path.join(folder, "up.log"), "w+")
        self.process = subprocess.Popen(
            [binary, "up", "--dir", self.dir, "--topology", topology, "--profile", "low-latency",
             "--durability", durability, "--data-cache-bytes", "512MB"],
            stdout=subprocess.PIPE, stderr=self.log, text=True)
        for line in self.process.stdout:
            if line.strip() == "ready":
                return
        self.log.seek(0)
        sys.exit(f"the deployment did not start:\n{self.log.read()}")

    def run(self, *args):
        return subprocess.run([self.binary, *args[:1], *args[1:]], check=True, text=True,
                              stdout=subprocess.PIPE).stdout

    def cache_pids(self):
        status = json.loads(self.run("status", "--dir", self.dir, "--json"))
        return [p["pid"] for c in status["cells"] for p in c["processes"] if p["role"] == "cache"]

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=30)


def one(deployment, args, number, mode, fabric, rate, consumers):
    stream = f"e2e-{number}"
    deployment.run("stream", "create", "--dir", deployment.dir, "--stream", stream)
    where = ["--dir", deployment.dir, "--stream", stream]
    processes = consumers if mode == "processes" else 1
    threads = 1 if mode == "processes" else consumers
    readers = [subprocess.Popen(
        [deployment.binary, "load", "consume", *where, "--fabric", fabric, "--threads", str(threads),
         "--warmup", str(args.warmup), "--until-idle", "1.5", "--from", "beginning"],
        stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    for reader in readers:
        if json.loads(reader.stdout.readline() or "{}").get("kind") != "ready":
            sys.exit("a consumer did not become ready")
    pids = deployment.cache_pids()
    sampler = FdatasyncSampler(deployment.folder, 0.02)
    cpu = cpu_seconds(pids)
    roll = {4.0: 16 << 20}.get(rate, 64 << 20)
    produced = subprocess.run(
        [deployment.binary, "load", "produce", *where, "--mb-per-s", str(rate), "--seconds",
         str(args.seconds + args.warmup), "--roll-bytes", str(roll)],
        stdout=subprocess.PIPE, text=True)
    outputs = [reader.communicate()[0] for reader in readers]
    cpu = cpu_seconds(pids) - cpu
    fdatasync = sampler.finish()
    produced = json.loads(produced.stdout)
    results = [json.loads(output.splitlines()[-1]) for output in outputs]
    codes = [reader.returncode for reader in readers]

    cdf = add_cdfs([r["delay_cdf"] for r in results])
    count = sum(r["delay_us"]["count"] for r in results)
    delivered = sum(r["bytes"] for r in results)
    each = [e for r in results for e in r["each"]]
    complete = all(e["messages"] == produced["messages"] for e in each)
    row = {
        "mode": mode, "fabric": fabric, "consumers": consumers,
        "asked_mb_per_s": rate or "max",
        "durability": args.durability,
        "held_mb_per_s": produced["held_mb_per_s"],
        "p50_ms": percentile(cdf, count, 0.5) / 1e3,
        "p99_ms": percentile(cdf, count, 0.99) / 1e3,
        "p999_ms": percentile(cdf, count, 0.999) / 1e3,
        "samples": count,
        "gbit_per_s": sum(e["mb_per_s"] for e in each) * 8 / 1e3,
        "slowest_mb_per_s": min(e["mb_per_s"] for e in each),
        "roll_overs": produced["files"] - 1,
        "fdatasync2": fdatasync,
        "acknowledge_us": produced["acknowledge_us"],
        "cache_cpu_s_per_gb": cpu / (delivered / 1e9),
        "consumer_cpu_s_per_gb": sum(r["cpu_s"] for r in results) / (delivered / 1e9),
        "producer_cpu_s": produced["cpu_s"],
        # What partial chunks cost: bytes that the cache was given per byte produced (a chunk is written
        # again when it grows; once for all replicas), and bytes of remote memory that were read per
        # byte delivered (index, look-ups and lengths included).
        "cache_write_amplification": produced["shadow_bytes"] / max(1, produced["bytes"]),
        "remote_read_amplification": sum(r["remote_bytes_read"] for r in results) / max(1, delivered),
        "fallbacks": sum(r["fallbacks"] for r in results),
        "gaps": sum(r["gaps"] for r in results),
        "repeats": sum(r["repeats"] for r in results),
        "foreign": sum(r["foreign"] for r in results),
        "complete": complete,
        "ok": all(code == 0 for code in codes) and complete and not produced["error"],
    }
    deployment.run("stream", "delete", "--dir", deployment.dir, "--stream", stream)
    return row


HEADER = (f"{'':>9} {'':>4} {'cons.':>5} {'asked':>6} {'held':>7} {'p50':>8} {'p99':>8} {'p99.9':>8} "
          f"{'2 x fdatasync p50/p99':>22} {'Gbit/s':>7} {'rolls':>5} {'cache':>8} {'cons.':>8} {'write':>5} "
          f"{'read':>5}\n"
          f"{'mode':>9} {'via':>4} {'':>5} {'MB/s':>6} {'MB/s':>7} {'ms':>8} {'ms':>8} {'ms':>8} "
          f"{'ms':>22} {'':>7} {'':>5} {'CPU s/GB':>8} {'CPU s/GB':>8} {'ampl.':>5} {'ampl.':>5}")


def show(row):
    f = row["fdatasync2"]
    return (f"{row['mode']:>9} {row['fabric']:>4} {row['consumers']:>5} {row['asked_mb_per_s']!s:>6} "
            f"{row['held_mb_per_s']:>7.2f} {row['p50_ms']:>8.2f} {row['p99_ms']:>8.2f} "
            f"{row['p999_ms']:>8.2f} {f['p50_us'] / 1e3:>11.2f} /{f['p99_us'] / 1e3:>9.2f} "
            f"{row['gbit_per_s']:>7.2f} {row['roll_overs']:>5} {row['cache_cpu_s_per_gb']:>8.3f} "
            f"{row['consumer_cpu_s_per_gb']:>8.3f} {row['cache_write_amplification']:>5.2f} "
            f"{row['remote_read_amplification']:>5.2f}  {'' if row['ok'] else 'NOT OK'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--consumers", default="1,4,16,64")
    parser.add_argument("--rates", default="4,40,max", help="MB/s (10^6 bytes), or max")
    parser.add_argument("--fabrics", default="shm,tcp")
    parser.add_argument("--modes", default="processes,threads")
    parser.add_argument("--durability", default="durable", choices=["durable", "page-cache"])
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--warmup", type=float, default=2)
    parser.add_argument("--quick", action="store_true", help="16 consumers at 4, 64 at 40, over shm")
    parser.add_argument("--folder", help="for the deployment's files; default: a temporary one")
    parser.add_argument("--json", help="write the results here")
    args = parser.parse_args()

    if args.quick:
        plan = [("processes", "shm", 4.0, 16), ("processes", "shm", 40.0, 64)]
    else:
        rates = [0.0 if r == "max" else float(r) for r in args.rates.split(",")]
        plan = [(mode, fabric, rate, int(consumers))
                for mode in args.modes.split(",") for fabric in args.fabrics.split(",")
                for rate in rates for consumers in args.consumers.split(",")]
    binary = os.path.abspath(args.binary)
    with tempfile.TemporaryDirectory(prefix="tc-e2e-", dir=args.folder) as folder:
        deployment = Deployment(binary, folder, args.durability)
        rows = []
        try:
            print(HEADER, flush=True)
            for number, (mode, fabric, rate, consumers) in enumerate(plan):
                rows.append(one(deployment, args, number, mode, fabric, rate, consumers))
                print(show(rows[-1]), flush=True)
        finally:
            deployment.stop()
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"durability": args.durability,
                                                       "seconds": args.seconds, "rows": rows}, indent=1))
    sys.exit(0 if all(row["ok"] for row in rows) else 1)


if __name__ == "__main__":
    main()
