#!/usr/bin/env python3
"""How long a message takes, and how many consumers keep up: end to end, in one cell; Kafka beside it.

Question: with 1, 4, 16 and 64 consumers (threads of one process, or processes), over shared memory and
over tcp, at 4 and 40 MB/s of 1 KB messages and at the highest rate: delay p50/p99/p99.9 from the
intended time of sending (open loop), delivered Gbit/s, the slowest consumer's share of the mean rate,
the rate that the producer held, CPU seconds of servers and consumers per delivered GB. Each consumer
has its own connections and does its own reads, checks and decoding; files roll over on the way; every
byte is checked against what must be there.

Run:     ./dev bench e2e [--quick] [--consumers 16] [--rates 4,40,max] [--fabrics shm,tcp]
                         [--modes processes,threads] [--durability durable|page-cache]
                         [--peers kafka [--kafka FOLDER] [--kafka-partitions 1]] [--json FILE]
Peers:   each row also for a broker of this run: paced and measured by the same code, as many consumer
         processes, each of which reads everything. Without --consumers, --rates or --modes the rows are
         those that compare: 1 to 256 processes at 4 MB/s, 64 at the highest rate.
Expect:  about 12 minutes for all, also with a peer; 1 minute with --quick. Timings of a small machine
         are noisy: compare with the two bare fdatasyncs of the same run (`2 x fdatasync`), taken while
         the load ran.

Back of an envelope: low-latency profile, 4 MB/s: a message waits for the flush under way (data and
index, two fdatasyncs one after the other), then for its own, then 2 rpcs of some 0.2 ms and a wake-up.
"""

import argparse
import json
import os
import pathlib
import signal
import sys
import tempfile

from kafka_system import Kafka
from measure import Failed, log, measure
from tailcast_system import Tailcast

QUICK = [("processes", 4.0, 16), ("processes", 40.0, 64)]
BESIDE_PEERS = [("processes", 4.0, n) for n in (1, 4, 16, 64, 128, 256)] + [("processes", "max", 64)]
# A server's code is compiled while it runs.
WARM_UPS = [("processes", 30.0, 8), ("processes", "max", 8)]


def plan(args):
    """[(mode, rate, consumers)]"""
    if args.quick:
        return QUICK
    if args.peers and not (args.modes or args.rates or args.consumers):
        return BESIDE_PEERS
    rates = [r if r == "max" else float(r) for r in (args.rates or "4,40,max").split(",")]
    return [(mode, rate, int(consumers)) for mode in (args.modes or "processes,threads").split(",")
            for rate in rates for consumers in (args.consumers or "1,4,16,64").split(",")]


def warm_up_of(args, mode, rate, consumers):
    """Seconds. Processes that begin at once fill the machine, and are behind until they have caught up."""
    if args.warmup is not None:
        return args.warmup
    return 2 if rate == "max" or mode == "threads" else max(2, consumers / 8)


def rows_of(loads, systems, args):
    """One after the other for each load, so that what else the machine does meets all of them."""
    rows = []
    for mode, rate, consumers in loads:
        for system, vias in systems:
            for via in vias:
                row = {"system": system.name, "mode": mode, "via": via, "consumers": consumers,
                       "asked_mb_per_s": rate, "durability": getattr(system, "durability", "page-cache"),
                       "seconds": args.seconds, "warmup": warm_up_of(args, mode, rate, consumers),
                       # Who shares two cores with many others may wait long for his turn.
                       "idle": 1.5 if consumers < 64 else 5}
                rows.append((system, row))
    return rows


HEADER = (f"{'':>8} {'':>9} {'':>4} {'':>5} {'cons.':>5} {'asked':>6} {'held':>7} {'p50':>8} {'p99':>8} {'p99.9':>8} "
          f"{'2 x fdatasync p50/p99':>22} {'Gbit/s':>7} {'slowest':>7} {'server':>8} {'cons.':>8} {'write':>5} "
          f"{'read':>5}\n"
          f"{'system':>8} {'mode':>9} {'via':>4} {'fsync':>5} {'':>5} {'MB/s':>6} {'MB/s':>7} {'ms':>8} {'ms':>8} {'ms':>8} "
          f"{'ms':>22} {'':>7} {'share':>7} {'CPU s/GB':>8} {'CPU s/GB':>8} {'ampl.':>5} {'ampl.':>5}")


def show(row):
    f = row["fdatasync2"]
    amplification = [f"{row[key]:>5.2f}" if key in row else f"{'':>5}"
                     for key in ("cache_write_amplification", "remote_read_amplification")]
    return (f"{row['system']:>8} {row['mode']:>9} {row['via']:>4} "
            f"{'yes' if row['durability'] == 'durable' else 'no':>5} {row['consumers']:>5} "
            f"{row['asked_mb_per_s']!s:>6} {row['held_mb_per_s']:>7.2f} {row['p50_ms']:>8.2f} "
            f"{row['p99_ms']:>8.2f} {row['p999_ms']:>8.2f} {f['p50_us'] / 1e3:>11.2f} /"
            f"{f['p99_us'] / 1e3:>9.2f} {row['gbit_per_s']:>7.2f} {row['slowest_share']:>7.2f} "
            f"{row['server_cpu_s_per_gb']:>8.3f} {row['consumer_cpu_s_per_gb']:>8.3f} "
            f"{' '.join(amplification)}" + "".join(f"\n  NOT OK: {wrong}" for wrong in row["wrong"]))


def start_peers(args, folder):
    """[(system, vias)] of the peers, warm."""
    systems = []
    try:
        for peer in args.peers:
            systems.append((Kafka(os.path.join(os.path.dirname(args.binary), "bench", "e2e_kafka_load"),
                                  args.kafka, folder, args.kafka_partitions), ["tcp"]))
            log(f"{peer} runs; warming it up")
            for number, (system, row) in enumerate(rows_of(WARM_UPS, systems[-1:], args)):
                measure(system, f"warm-up-{number}", row, folder)
    except BaseException:
        stop(systems)
        raise
    return systems


def stop(systems):
    for system, _ in systems:
        system.stop()


def run(args, folder):
    systems = [(Tailcast(args.binary, folder, args.durability), args.fabrics.split(","))]
    rows = []
    try:
        systems += start_peers(args, folder)
        print(HEADER, flush=True)
        for number, (system, row) in enumerate(rows_of(plan(args), systems, args)):
            rows.append(measure(system, f"e2e-{number}", row, folder))
            print(show(rows[-1]), flush=True)
    finally:
        stop(systems)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, type=os.path.abspath)
    parser.add_argument("--consumers", help="default: 1,4,16,64")
    parser.add_argument("--rates", help="MB/s (10^6 bytes), or max; default: 4,40,max")
    parser.add_argument("--fabrics", default="shm,tcp", help="how tailcast's consumers read the caches")
    parser.add_argument("--modes", help="default: processes,threads")
    parser.add_argument("--durability", default="durable", choices=["durable", "page-cache"])
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--warmup", type=float,
                        help="seconds before what counts; default: 2, and an eighth of one for each of "
                             "more than 16 processes that begin at once")
    parser.add_argument("--quick", action="store_true", help="16 consumers at 4, 64 at 40, over shm")
    parser.add_argument("--peers", default=[], type=lambda text: text.split(","), metavar="kafka")
    parser.add_argument("--kafka", default=os.environ.get("TAILCAST_KAFKA"),
                        help="folder with Kafka's jars; default: $TAILCAST_KAFKA, else they are fetched")
    parser.add_argument("--kafka-partitions", type=int, default=1)
    parser.add_argument("--folder", help="for the systems' files; default: a temporary one")
    parser.add_argument("--json", help="write the results here")
    args = parser.parse_args()
    if unknown := set(args.peers) - {"kafka"}:
        parser.error(f"no peer {', '.join(sorted(unknown))}; there is kafka")
    if args.quick:
        args.fabrics = "shm"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))

    try:
        with tempfile.TemporaryDirectory(prefix="tc-e2e-", dir=args.folder) as folder:
            rows = run(args, folder)
    except Failed as failed:
        sys.exit(f"bench e2e: {failed}")
    except KeyboardInterrupt:
        sys.exit(130)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"durability": args.durability,
                                                       "seconds": args.seconds, "rows": rows}, indent=1))
    sys.exit(0 if all(row["ok"] for row in rows) else 1)


if __name__ == "__main__":
    main()
