#!/usr/bin/env python3
"""How good and how quick is the copy-tree optimiser?

Question: over all sources and several limits, what do its trees cost against the exact optimum (integer
program), against its own proven lower bound and against depth-capped Prim; how long does a plan take for
60 and for 500 clusters?

Run:     ./dev bench copytree --families normal [--set 1]   500 drawn problems (families.py)
         ./dev bench copytree --scale                 500 and 1,000 clusters (scale.py)
         ./dev bench copytree [--skyplane DIR] [--quick] [--exact none|saved|sample|all] [--json FILE]
Data:    price and latency tables of 60 cloud regions (cost.csv, latency.csv, throughput.csv as skyplane
         publishes them). They are not part of the repository: DIR, else TAILCAST_SKYPLANE, else
         ../shared/data/skyplane beside it. Without them a synthetic world of 60 regions is used.
Exact:   `saved` compares with bench/results/copytree_exact.json where that was made from the same data;
         `sample` (default) also solves a few sources anew and checks the saved ones by them; `all`
         solves every source and saves. Where the solver ran out of time its incumbent is the reference
         and its bound is stated; such an optimum is not proven.
Expect:  without a fan-out limit the exact optimum for every source, proven; with fan-out 8 at depth 2
         the optimum, at depth 3 within 0.3 % of the best known; quick effort takes 10 to 130 ms of
         processor time at 60 clusters. At 500
         clusters, with normal effort, 5 to 9 s, 0.1 to 0.2 % above the bound at depth 4, with fan-out 8
         0.6 to 0.9 %. A quarter of an hour on an idle machine, half of it for the integer programs.
Results: bench/results/copytree.json; each of the three kinds of run replaces its own part of it.
Back of an envelope: one move is priced in 60 steps, a descent takes some 2,000 of them, so 100 ms hold
         about 500 descents.
"""

import argparse
import hashlib
import importlib
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SAVED = ROOT / "bench" / "results" / "copytree_exact.json"
EXACT_LIMITS = [(2, 0), (3, 0), (2, 8), (3, 8)]
HOP_DELAY_MS = 25


def log(text):
    print(text, file=sys.stderr, flush=True)


class World:
    """Clusters with prices and round-trip times, as matrices."""

    def __init__(self, names, price, rtt, kind):
        self.names, self.price, self.rtt, self.kind = names, price, rtt, kind
        text = json.dumps([names, price], separators=(",", ":"))
        self.digest = hashlib.sha256(text.encode()).hexdigest()[:16]

    def yaml(self, sources):
        lines = ["version: 1", "clusters:"]
        lines += [f"  - {{name: {name}}}" for name in self.names]
        lines.append("links:")
        for i, a in enumerate(self.names):
            for j, b in enumerate(self.names):
                if i != j and self.price[i][j] is not None:
                    lines.append(f"  - {{from: {a}, to: {b}, usd_per_gb: {self.price[i][j]:.6g}, "
                                 f"rtt_ms: {self.rtt[i][j]:.6g}}}")
        lines.append("streams:")
        lines += [f"  - {{name: {name}, source: {name}}}" for name in sources]
        lines.append(f"hop_delay_ms: {HOP_DELAY_MS}")
        return "\n".join(lines) + "\n"


def read_skyplane(folder, binary, scratch):
    """The 60 regions with all pairs, through the product's own import."""
    topology = scratch / "import.yaml"
    tables = [str(folder / name) for name in ("cost.csv", "latency.csv", "throughput.csv")]
    subprocess.run([binary, "copytree", "import", *tables, "--complete", "-o", str(topology)],
                   check=True, stderr=subprocess.DEVNULL)
    names, links = [], []
    for line in topology.read_text().splitlines():
        line = line.strip()
        if not line.startswith("- {"):
            continue
        entry = {}
        for field in line[3:-1].split(", "):
            key, value = field.split(": ", 1)
            entry[key] = value.strip('"')
        if "name" in entry:
            names.append(entry["name"])
        else:
            links.append(entry)
    at = {name: i for i, name in enumerate(names)}
    price = [[None] * len(names) for _ in names]
    rtt = [[None] * len(names) for _ in names]
    for link in links:
        ends = [(link["from"], link["to"])]
        if link.get("both") == "true":
            ends.append((link["to"], link["from"]))
        for a, b in ends:
            price[at[a]][at[b]] = float(link["usd_per_gb"])
            rtt[at[a]][at[b]] = float(link["rtt_ms"])
    return World(names, price, rtt, "skyplane")


def synthetic(seed=1, count=60):
    """Three providers on four continents: dear between continents and providers, cheap within."""
    draw = random.Random(seed)
    names, home = [], []
    for i in range(count):
        provider, continent = i % 3, draw.randrange(4)
        names.append(f"p{provider}-k{continent}-{i:02}")
        home.append((provider, continent, draw.uniform(0, 40), draw.uniform(0, 40)))
    price = [[None] * count for _ in names]
    rtt = [[None] * count for _ in names]
    egress = [0.09, 0.087, 0.12]
    for i, a in enumerate(home):
        for j, b in enumerate(home):
            if i == j:
                continue
            far = a[1] != b[1]
            if a[0] != b[0]:
                cost = egress[a[0]] + (0.03 if a[1] == 3 else 0)
            else:
                cost = (0.02 + 0.015 * (a[0] == 2) if not far else 0.05 + 0.02 * ((a[1] + b[1]) % 2))
            price[i][j] = round(cost * draw.choice([1, 1, 1, 0.9, 1.1]), 4)
            rtt[i][j] = round(5 + math.hypot(a[2] - b[2], a[3] - b[3]) + (90 * abs(a[1] - b[1]) if far else 0), 2)
    return World(names, price, rtt, "synthetic")


def larger(world, count, seed):
    """Several clusters per region, every price and time changed by up to 20 %."""
    draw = random.Random(seed)
    n = len(world.names)
    names = [f"{world.names[i % n]}.{i // n}" for i in range(count)]
    price = [[None] * count for _ in names]
    rtt = [[None] * count for _ in names]
    for i in range(count):
        for j in range(count):
            a, b = i % n, j % n
            if i == j:
                continue
            base = (0.01, 1.0) if a == b else (world.price[a][b], world.rtt[a][b])
            if base[0] is None:
                continue
            price[i][j] = round(base[0] * draw.uniform(0.8, 1.2), 4)
            rtt[i][j] = round(base[1] * draw.uniform(0.8, 1.2), 2)
    return World(names, price, rtt, f"{world.kind}, {count} clusters")


def save(path, **parts):
    """Replaces these parts of the results."""
    path = pathlib.Path(path)
    results = json.loads(path.read_text()) if path.exists() else {}
    results.update(parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")
    log(f"written to {path}")


def plan(binary, topology, *flags):
    command = [binary, "copytree", "plan", "--topology", str(topology), "--format", "json", "--time", *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return None, done.stderr.strip()
    plans = json.loads(done.stdout)
    return (plans if isinstance(plans, list) else [plans]), ""


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def measure(binary, topology, effort, depth, fanout, delay_ms=0, prim=True):
    limits = ["--max-depth", str(depth), "--max-fanout", str(fanout), "--max-delay-ms", str(delay_ms)]
    plans, error = plan(binary, topology, "--effort", effort, *limits)
    row = {"max_depth": depth, "max_fanout": fanout, "max_delay_ms": delay_ms, "effort": effort}
    if plans is None:
        row["error"] = error
        return row, {}
    costs = {p["source"]: p["usd_per_gb"] for p in plans}
    row.update({
        "plans": len(plans),
        "mean_usd_per_gb": statistics.mean(costs.values()),
        "proven": sum(p["optimal"] for p in plans),
        "gap_mean": statistics.mean(p["gap"] for p in plans),
        "gap_max": max(p["gap"] for p in plans),
        **({"gaps": sorted(p["gap"] for p in plans)} if len(plans) <= 4 else {}),
        "worst_delay_ms_mean": statistics.mean(p["worst_delay_ms"] for p in plans),
        "plan_ms_p50": quantile([p["plan_ms"] for p in plans], 0.5),
        "plan_ms_max": max(p["plan_ms"] for p in plans),
        "plan_cpu_ms_p50": quantile([p["plan_cpu_ms"] for p in plans], 0.5),
        "plan_cpu_ms_max": max(p["plan_cpu_ms"] for p in plans),
    })
    if prim:
        baseline, _ = plan(binary, topology, *limits, "--prim")
        if baseline is not None:
            theirs = {p["source"]: p["usd_per_gb"] for p in baseline}
            row["prim_mean_usd_per_gb"] = statistics.mean(theirs.values())
            row["prim_worst_ratio"] = max(theirs[s] / costs[s] for s in costs)
    return row, costs


def solver_missing():
    """Makes highspy importable, in a folder of the build tree if need be; else the reason why not."""
    try:
        import highspy  # noqa: F401
        return ""
    except ImportError:
        pass
    folder = ROOT / "build" / "bench_python"
    sys.path.insert(0, str(folder))
    try:
        import highspy  # noqa: F401,F811
        return ""
    except ImportError:
        log("installing highspy (HiGHS) for the exact optima ...")
        done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), "highspy"],
                              capture_output=True, text=True)
        if done.returncode != 0:
            return "highspy cannot be installed: " + (done.stderr.strip().splitlines() or ["?"])[-1]
        importlib.invalidate_caches()
        try:
            import highspy  # noqa: F401,F811
            return ""
        except ImportError as error:
            return f"highspy does not load: {error}"


def compare_exact(world, results, mode, seconds, sample):
    """Adds the ratios to exact optima to each row of `results`; returns remarks."""
    remarks = []
    saved = json.loads(SAVED.read_text()) if SAVED.exists() else {}
    if saved.get("digest") != world.digest:
        if saved:
            remarks.append("saved optima are of other data and were not used")
        saved = {"digest": world.digest, "world": world.kind, "optima": {}}
    if mode in ("sample", "all"):
        reason = solver_missing()
        if reason:
            remarks.append(f"no exact solver: {reason}")
            mode = "saved"
    if mode in ("sample", "all"):
        sys.path.insert(0, str(HERE))
        import exact_tree
        chosen = world.names if mode == "all" else world.names[:: max(1, len(world.names) // sample)][:sample]
        for depth, fanout in EXACT_LIMITS:
            entries = saved["optima"].setdefault(f"{depth}/{fanout}", {})
            for source in chosen:
                began = time.monotonic()
                instance = exact_tree.everybody(world.price, world.names.index(source), depth, fanout)
                _, cost, bound, _ = exact_tree.solve(instance, seconds)
                if cost is None:
                    remarks.append(f"no tree found in {seconds:.0f} s: {source} at {depth}/{fanout}")
                    continue
                cost, bound, took = cost / 1e9, bound / 1e9, time.monotonic() - began
                log(f"  exact depth {depth} fan-out {fanout} from {source}: {cost:.4f} (bound {bound:.4f}) in {took:.1f} s")
                before = entries.get(source)
                proven = bound >= cost - 1e-6
                if before and before["proven"] and (bound > before["cost"] + 1e-6 or
                                                    (proven and abs(cost - before["cost"]) > 1e-6)):
                    remarks.append(f"MISMATCH: {source} at {depth}/{fanout}: saved {before['cost']:.6f}, "
                                   f"now {cost:.6f} (bound {bound:.6f})")
                better_bound = max(bound, before["bound"] if before else bound)
                best = min(cost, before["cost"]) if before else cost
                entries[source] = {"cost": round(best, 6), "bound": round(better_bound, 6),
                                   "proven": better_bound >= best - 1e-6}
        if mode == "all":
            SAVED.parent.mkdir(parents=True, exist_ok=True)
            SAVED.write_text(json.dumps(saved, indent=1, sort_keys=True) + "\n")
    for row, costs in results:
        entries = saved["optima"].get(f"{row['max_depth']}/{row['max_fanout']}", {})
        known = [s for s in costs if s in entries]
        if row["max_delay_ms"] or not known:
            continue
        # A fan-out limit makes no tree cheaper: the optimum without it is a bound too.
        free = saved["optima"].get(f"{row['max_depth']}/0", {})
        proven = 0
        for source in known:
            bound = entries[source]["bound"]
            if source in free and free[source]["proven"]:
                bound = max(bound, free[source]["cost"])
            proven += bound >= min(entries[source]["cost"], costs[source]) - 1e-6
        ratios = [costs[s] / entries[s]["cost"] for s in known]
        row["exact_sources"] = len(known)
        row["exact_proven"] = proven
        row["exact_mean_usd_per_gb"] = statistics.mean(entries[s]["cost"] for s in known)
        row["mean_ratio_to_exact"] = sum(costs[s] for s in known) / sum(entries[s]["cost"] for s in known)
        row["worst_ratio_to_exact"] = max(ratios)
        below = [s for s in known if costs[s] < entries[s]["bound"] - 1e-6]
        if below:
            remarks.append(f"IMPOSSIBLE: cheaper than a proven bound from {below}")
    return remarks


def percent(ratio):
    return f"{100 * (ratio - 1):+.3f} %"


def print_table(title, rows):
    print(f"\n{title}")
    print(f"{'depth':>5} {'fan':>4} {'delay':>6} {'mean USD/GB':>12} {'Prim':>8} {'to exact mean':>14} {'worst':>10}"
          f" {'exact of':>9} {'proven':>7} {'gap mean':>9} {'max':>8} {'cpu ms p50':>11} {'max':>8} {'wall max':>9}")
    for row in rows:
        head = f"{row['max_depth']:>5} {row['max_fanout'] or '-':>4} {row['max_delay_ms'] or '-':>6}"
        if "error" in row:
            print(f"{head} {row['error']}")
            continue
        exact = ("-", "-", "-")
        if "exact_sources" in row:
            exact = (percent(row["mean_ratio_to_exact"]), percent(row["worst_ratio_to_exact"]),
                     f"{row['exact_proven']}/{row['exact_sources']}")
        prim = f"{row['prim_mean_usd_per_gb']:.4f}" if "prim_mean_usd_per_gb" in row else "-"
        print(f"{head} {row['mean_usd_per_gb']:>12.4f} {prim:>8} {exact[0]:>14} {exact[1]:>10} {exact[2]:>9}"
              f" {row['proven']:>3}/{row['plans']:<3} {100 * row['gap_mean']:>7.3f} % {100 * row['gap_max']:>6.2f} %"
              f" {row['plan_cpu_ms_p50']:>11.1f} {row['plan_cpu_ms_max']:>8.1f} {row['plan_ms_max']:>9.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "build" / "tailcast"))
    parser.add_argument("--skyplane", default=os.environ.get("TAILCAST_SKYPLANE", str(ROOT.parent / "shared" / "data" / "skyplane")))
    parser.add_argument("--exact", choices=["none", "saved", "sample", "all"], default="sample")
    parser.add_argument("--exact-seconds", type=float, default=60, help="time limit of one integer program")
    parser.add_argument("--sample", type=int, default=4, help="sources solved anew with --exact sample")
    parser.add_argument("--quick", action="store_true", help="saved optima only, no 500 clusters")
    parser.add_argument("--json", default=str(ROOT / "bench" / "results" / "copytree.json"))
    parser.add_argument("--effort", default="quick", help="of the tables on real prices: quick, normal, thorough or seconds")
    parser.add_argument("--families", choices=["quick", "normal", "thorough"],
                        help="instead: 500 drawn problems against stored exact optima, with this effort")
    parser.add_argument("--solve-families", action="store_true", help="instead: solve those exactly, and store")
    parser.add_argument("--scale", action="store_true", help="instead: 500 and 1,000 clusters from tables to tree")
    parser.add_argument("--set", type=int, default=0, help="which 500 drawn problems; 0: those that the optimiser was tuned on")
    parser.add_argument("--first", type=int, default=0, help="first problem of the set")
    parser.add_argument("--last", type=int, default=499, help="last problem of the set")
    parser.add_argument("--every", type=int, default=1, help="only one in so many: a fair sample")
    options = parser.parse_args()
    if options.every < 1 or not 0 <= options.first <= options.last <= 499 or options.set < 0:
        parser.error("--every is at least 1, --set at least 0, and 0 <= --first <= --last <= 499")
    if not pathlib.Path(options.binary).exists():
        sys.exit(f"{options.binary} is missing; run ./dev build, or give --binary")
    if options.families or options.solve_families:
        sys.path.insert(0, str(HERE))
        import families
        helper = str(pathlib.Path(options.binary).parent / "bench" / "copytree_families")
        if options.solve_families:
            reason = solver_missing()
            if reason:
                sys.exit(f"no exact solver: {reason}")
            families.solve_all(helper, families.numbers(options), options.exact_seconds)
            return
        summary, wrong = families.report(helper, families.numbers(options), options.families)
        if (options.first, options.last, options.every) == (0, 499, 1):
            path = pathlib.Path(options.json)
            known = json.loads(path.read_text()).get("families", {}) if path.exists() else {}
            known[f"set {options.set}, {options.families}"] = summary
            save(path, families=dict(sorted(known.items())))
        sys.exit(1 if wrong else 0)
    if options.scale:
        sys.path.insert(0, str(HERE))
        sys.modules["run"] = sys.modules["__main__"]
        import scale
        save(options.json, scale=scale.report(options.binary))
        return
    if options.quick and options.exact == "sample":
        options.exact = "saved"

    with tempfile.TemporaryDirectory(prefix="copytree-bench-") as folder:
        scratch = pathlib.Path(folder)
        skyplane = pathlib.Path(options.skyplane)
        if (skyplane / "cost.csv").exists():
            world = read_skyplane(skyplane, options.binary, scratch)
        else:
            print(f"no tables in {skyplane}: a SYNTHETIC world is used, its figures say nothing about real "
                  "prices; give the tables with --skyplane DIR")
            world = synthetic()
        topology = scratch / "world.yaml"
        topology.write_text(world.yaml(world.names))
        results = []
        limits = [(2, 0, 0), (3, 0, 0), (4, 0, 0), (2, 8, 0), (3, 8, 0), (4, 8, 0), (4, 0, 250), (3, 8, 220)]
        begin = time.monotonic()
        for depth, fanout, delay in limits:
            log(f"planning from {len(world.names)} sources: depth {depth}, fan-out {fanout or 'free'}"
                + (f", delay {delay} ms" if delay else ""))
            results.append(measure(options.binary, topology, options.effort, depth, fanout, delay, prim=delay == 0))
        remarks = []
        if options.exact != "none":
            remarks = compare_exact(world, results, options.exact, options.exact_seconds, options.sample)
        rows = [row for row, _ in results]
        print_table(f"{len(world.names)} clusters ({world.kind}), every cluster as the source in turn", rows)
        big_rows = []
        if not options.quick:
            big = larger(world, 500, 1)
            topology.write_text(big.yaml(big.names[:: 125]))
            for depth, fanout in [(2, 0), (3, 0), (3, 8), (4, 0), (4, 8)]:
                log(f"planning 500 clusters: depth {depth}, fan-out {fanout or 'free'}")
                big_rows.append(measure(options.binary, topology, "normal", depth, fanout)[0])
            print_table(f"{big.kind}, seed 1, four sources, normal effort", big_rows)
        for remark in remarks:
            print("note:", remark)
        print(f"\n'to exact': our cost against the integer program's; 'exact of': how many of its optima are proven; "
              f"'proven', 'gap': by our own lower bound. {time.monotonic() - begin:.0f} s.")
        save(options.json, world=world.kind, digest=world.digest, clusters=len(world.names), rows=rows,
             remarks=remarks, **({"rows_500": big_rows} if big_rows else {}))
        sys.exit(1 if any(r.startswith(("MISMATCH", "IMPOSSIBLE")) for r in remarks) else 0)


if __name__ == "__main__":
    main()
