#!/usr/bin/env python3
"""Does a deployment run for as long as it likes on a finite disk, without growing?

Question: a stream is produced in one cell and copied to two more, as fast as asked, and keeps so many
bytes of each shard. Each second the disk that its files take in each cell is measured, and the memory
of each process that is its own (anonymous: neither the caches' regions nor mapped files). Consumers of
each cell check every message.

Run:     ./dev soak [--seconds 600] [--mb-per-s 40] [--file-mib 64] [--keep-mib 512] [--kill SECONDS]
Expect:  as long as asked. No cell ever holds more than what is kept and two message files, index
         included; no process grows; every message arrives in every cell, in order. With --kill a second
         of the stream more: a cell whose scheduler was killed deletes nothing until the next one has
         heard what may go, while the writers copy on.

A process grows if the least that it had in the last third is more than the least in the third before,
by a tenth and 4 MiB. Not on average: a writer whose disk is behind holds what it received, 48 MiB for
each layer at most, for as long as that takes (`at most` has it).

Back of an envelope: the closed files are what is kept at most; one is open; and one closes and is not
collected yet, for it must be seen to be everywhere: some hundred milliseconds at the rate of the stream.
"""

import argparse
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from live import CHAIN, CHAIN_TOPOLOGY, Consumers, Deployment, own_bytes, processes


def disk_bytes(folder):
    """What the files below take on the disk."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                entry = os.lstat(os.path.join(where, name))
            except FileNotFoundError:
                continue
            # A claim is a second name of its file.
            total += 0 if name.startswith(".claim") else entry.st_blocks * 512
    return total


class Watch(threading.Thread):
    """Measures once a second until it is told to end."""

    def __init__(self, deployment):
        super().__init__(daemon=True)
        self.deployment = deployment
        self.pids = processes(deployment.process.pid)
        self.disk = {cell: [] for cell in CHAIN}
        self.memory = {}  # (cell/name, pid): [bytes]
        self.done = threading.Event()

    def run(self):
        while not self.done.wait(1):
            for cell in CHAIN:
                self.disk[cell].append(disk_bytes(os.path.join(self.deployment.dir, cell, "store", "streams")))
            for name, pid in self.pids.items():
                if (used := own_bytes(pid)) is not None:
                    self.memory.setdefault((name, pid), []).append(used)


def grown(samples):
    """(least of the middle third, least of the last one, most of both) in bytes."""
    third = len(samples) // 3
    return min(samples[third:2 * third]), min(samples[2 * third:]), max(samples[third:])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--mb-per-s", type=float, default=40, help="10^6 bytes")
    parser.add_argument("--file-mib", type=int, default=64, help="data of a message file")
    parser.add_argument("--keep-mib", type=int, default=512, help="closed files that are kept")
    parser.add_argument("--kill", type=float, default=0,
                        help="kill a reader, writer or scheduler each so many seconds; then memory is not judged")
    parser.add_argument("--seed", type=int, default=1, help="of --kill")
    parser.add_argument("--folder", help="for the deployment's files; default: a temporary one")
    parser.add_argument("--json", help="write the results here")
    args = parser.parse_args()

    keep, file_bytes = args.keep_mib << 20, args.file_mib << 20
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory(prefix="tc-soak-", dir=args.folder) as folder:
        deployment = Deployment(os.path.abspath(args.binary), folder, CHAIN_TOPOLOGY,
                                "--durability", "page-cache", "--data-cache-bytes", "64MB")
        try:
            deployment.run("stream", "create", "--cluster", "one", "--stream", "s", "--max-shard-bytes",
                           str(keep), "--file-bytes", str(file_bytes))
            consumers = {cell: Consumers(deployment, "s", 1, 1, "--cluster", cell) for cell in CHAIN}
            watch = Watch(deployment)
            watch.start()
            producer = deployment.produce("s", args.mb_per_s, "--cluster", "one", seconds=args.seconds + 60)
            end = time.time() + args.seconds
            kills, next_kill, next_line = 0, time.time() + args.kill, time.time() + 30
            while time.time() < end:
                time.sleep(0.2)
                if args.kill and time.time() > next_kill:
                    next_kill += args.kill
                    name = rng.choice([n for n in watch.pids if "cache" not in n])
                    os.kill(watch.pids[name], signal.SIGKILL)
                    kills += 1
                    while processes(deployment.process.pid).get(name) in (None, watch.pids[name]):
                        time.sleep(0.05)
                    watch.pids = processes(deployment.process.pid)
                if time.time() > next_line:
                    next_line += 30
                    print(f"{args.seconds - (end - time.time()):5.0f} s  disk, MiB: "
                          + ", ".join(f"{cell} {watch.disk[cell][-1] >> 20}" for cell in CHAIN), flush=True)
            produced = deployment.finish(producer)
            verdicts = {cell: consumers[cell].verdict(consumers[cell].finish(), produced) for cell in CHAIN}
            watch.done.set()
            watch.join()
        finally:
            deployment.stop()

    # Data and index. The marks of the folders, the commit words and the filling of blocks are not the
    # stream's, and a file ends with the message that reaches its size.
    limit = keep + 2 * file_bytes + (1 << 20) + (int(args.mb_per_s * 1e6) if kills else 0)
    result = {"messages": produced["durable"], "held_mb_per_s": produced["held_mb_per_s"], "kills": kills,
              "limit_bytes": limit, "disk_max_bytes": {c: max(watch.disk[c]) for c in CHAIN},
              "cells": verdicts, "memory": {}}
    ok = all(v["ok"] for v in verdicts.values())
    print(f"\n{produced['durable']} messages at {produced['held_mb_per_s']:.1f} MB/s of {args.mb_per_s:g}, "
          f"{kills} kills")
    for cell in CHAIN:
        most = result["disk_max_bytes"][cell]
        ok &= most <= limit
        print(f"{cell:<6} at most {most / 2**20:7.1f} MiB of {limit / 2**20:.1f} on disk; "
              + ("every message, in order" if verdicts[cell]["ok"] else f"WRONG: {verdicts[cell]}"))
    if not kills:
        total = 0
        for (name, pid), samples in sorted(watch.memory.items()):
            before, after, most = grown(samples)
            total += 0 if "cache" in name else after
            result["memory"][name] = {"middle_bytes": before, "last_bytes": after, "most_bytes": most}
            bad = after > before * 1.1 + (4 << 20)
            ok &= not bad
            print(f"{name:<18} {before / 2**20:7.1f} -> {after / 2**20:7.1f} MiB of its own, at most "
                  f"{most / 2**20:5.1f}" + ("   GROWS" if bad else ""))
        print(f"together, beside the caches: {total / 2**20:.0f} MiB")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(result, indent=1))
    print("ok" if ok else "NOT ok")
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
