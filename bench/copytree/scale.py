"""From tables to a tree for hundreds of clusters: how long, how much memory, how near to the bound?

Question: tables of every pair of 500 and of 1,000 clusters are imported into a small topology with one
table of links, and a tree is planned with normal effort. What do import and plan take, and what is
left between the tree and its own bound?

Run:     ./dev bench copytree --scale
Data:    a synthetic world: several clusters for each of 60 regions, prices and times within 20 %.
Expect:  import of 1,000 clusters in 2.5 s and 575 MB; normal effort at 500 clusters, depth 4, in 7 s, 0.2 %
         above the bound, with fan-out 8 in 9 s, 0.3 %; at 1,000 in 10 s, 0.6 %, and 13 s, 1.8 %. Wanted are
         10 s and 1 % at 500, and 20 s and 1 GB from import to tree for 1,000.
"""

import json
import os
import pathlib
import subprocess
import tempfile
import time

import run


def timed(command):
    """(seconds, seconds of processor time, MB at most, standard output) of a command."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise RuntimeError(f"{' '.join(command)} failed")
    return time.monotonic() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, output


def write_tables(world, folder):
    prices, times = folder / "prices.csv", folder / "latency.csv"
    with prices.open("w") as price, times.open("w") as rtt:
        price.write("from,to,usd_per_gb\n")
        rtt.write("from,to,rtt_ms\n")
        for i, a in enumerate(world.names):
            for j, b in enumerate(world.names):
                if i != j and world.price[i][j] is not None:
                    price.write(f"{a},{b},{world.price[i][j]:.6g}\n")
                    rtt.write(f"{a},{b},{world.rtt[i][j]:.6g}\n")
    return [str(prices), str(times)]


def report(binary):
    """Prints the table; its rows."""
    rows = []
    print(f"{'clusters':>8} {'limits':<22} {'import s':>9} {'cpu s':>7} {'MB':>6} {'plan s':>8} {'cpu s':>7} {'MB':>6} {'USD/GB':>9} {'gap':>8}")
    for count in (500, 1000):
        world = run.larger(run.synthetic(), count, 1)
        with tempfile.TemporaryDirectory(prefix="copytree-scale-") as scratch:
            folder = pathlib.Path(scratch)
            tables = write_tables(world, folder)
            topology, links = str(folder / "world.yaml"), str(folder / "links.csv")
            import_s, import_cpu_s, import_mb, _ = timed([binary, "copytree", "import", *tables, "--table", links, "-o", topology])
            for depth, fanout in ((4, 0), (4, 8)):
                plan_s, cpu_s, plan_mb, text = timed(
                    [binary, "copytree", "plan", "--topology", topology, "--source", world.names[0], "--format", "json",
                     "--max-depth", str(depth), "--max-fanout", str(fanout)])
                plan = json.loads(text)
                rows.append({"clusters": count, "max_depth": depth, "max_fanout": fanout, "import_s": round(import_s, 2),
                             "import_cpu_s": round(import_cpu_s, 2),
                             "import_mb": round(import_mb), "plan_s": round(plan_s, 2), "plan_cpu_s": round(cpu_s, 2),
                             "plan_mb": round(plan_mb), "usd_per_gb": plan["usd_per_gb"], "gap": plan["gap"]})
                limits = f"depth {depth}, fan-out {fanout or '-'}"
                print(f"{count:>8} {limits:<22} {import_s:>9.1f} {import_cpu_s:>7.1f} {import_mb:>6.0f} {plan_s:>8.1f} {cpu_s:>7.1f} "
                      f"{plan_mb:>6.0f} {plan['usd_per_gb']:>9.4f} {100 * plan['gap']:>6.2f} %", flush=True)
    return rows
