"""How far from the optimum are plans for problems that nobody tuned to?

Question: over 500 problems drawn from fixed seeds (src/copytree/families_testing.h), what does the optimiser's
tree cost against the exact optimum, how far is its own bound below that, and is any tree refused that
exists? Every tree is checked and priced here from the drawn tables alone.

Run:     ./dev bench copytree --families quick|normal|thorough [--set K] [--first N --last N] [--every N]
         ./dev bench copytree --solve-families [--exact-seconds S]    solves exactly what is not yet solved
         Only problems with a stored optimum are planned. Normal effort takes 1 to 2 s for each that is not
         proven at once: a quarter of an hour for a set on an idle core, quick effort a minute.
Stored:  tests/copytree/families.tsv: number, checksum of the problem, family, status (optimal,
         infeasible, open), weight and bound in 1e-9 USD per GB, penalties of 10 USD included.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import time
import zlib

import exact_tree

STORED = pathlib.Path(__file__).resolve().parent.parent.parent / "tests" / "copytree" / "families.tsv"


def numbers(options):
    """Of the problems that the options ask for."""
    begin = 500 * options.set
    return range(begin + options.first, begin + options.last + 1, options.every)


def draw(binary, number):
    """(instance, checksum)"""
    lines = subprocess.run([binary, "draw", str(number), str(number)], check=True, capture_output=True, text=True)
    line = lines.stdout.splitlines()[0]
    return json.loads(line), f"{zlib.crc32(line.encode()):08x}"


def stored():
    rows = {}
    if STORED.exists():
        for line in STORED.read_text().splitlines():
            if line.startswith("#"):
                continue
            number, checksum, family, status, weight, bound = line.split("\t")
            rows[int(number)] = {"checksum": checksum, "family": family, "status": status,
                                 "weight": int(weight), "bound": int(bound)}
    return rows


def store(rows):
    lines = ["# number, crc32 of the problem, family, status, weight, bound; bench/copytree/families.py"]
    for number, row in sorted(rows.items()):
        lines.append("\t".join(map(str, (number, row["checksum"], row["family"], row["status"],
                                         row["weight"], row["bound"]))))
    STORED.write_text("\n".join(lines) + "\n")


def plans(binary, wanted, effort):
    """One plan after the other; says on standard error how far it is."""
    began = time.monotonic()
    for done, number in enumerate(wanted):
        lines = subprocess.run([binary, "plan", str(number), str(number), effort], check=True, capture_output=True, text=True)
        yield json.loads(lines.stdout)
        if (done + 1) % 25 == 0 or done + 1 == len(wanted):
            print(f"{done + 1} of {len(wanted)} in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def solve_all(binary, wanted, seconds):
    rows = stored()
    for plan in plans(binary, wanted, "normal"):
        instance, checksum = draw(binary, plan["number"])
        row = rows.get(plan["number"])
        if row and row["checksum"] == checksum and row["status"] != "open":
            continue
        start = plan.get("edges")
        ours = exact_tree.check(instance, start) if start else None
        begin = time.monotonic()
        status, weight, bound, _ = exact_tree.solve(instance, seconds, start)
        if status == "open" and ours is not None and (weight is None or ours < weight):
            weight = ours
        if status == "infeasible" and ours is not None:
            raise RuntimeError(f"{plan['number']}: HiGHS says infeasible, but there is {start}")
        print(f"{plan['number']} {instance['family']} {status} ours {ours} exact {weight} bound {bound} "
              f"{time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)
        rows[plan["number"]] = {"checksum": checksum, "family": instance["family"], "status": status,
                                "weight": round(weight or 0),
                                "bound": 0 if bound in (None, float("-inf"), float("inf")) else round(bound)}
        store(rows)


def usd(weight):
    return weight % exact_tree.PENALTY


def measure(binary, wanted, effort):
    """Rows of the table, remarks, per-instance results."""
    rows, results, remarks = stored(), [], []
    known = [number for number in wanted if number in rows]
    if len(known) < len(wanted):
        remarks.append(f"{len(wanted) - len(known)} of {len(wanted)} problems have no stored optimum and were left out; "
                       "--solve-families with the same --set, --first, --last and --every solves them")
    for plan in plans(binary, known, effort):
        number = plan["number"]
        instance, checksum = draw(binary, number)
        row = rows[number]
        if row["checksum"] != checksum:
            remarks.append(f"STORED: {number} is drawn as another problem than the one that was solved")
            continue
        result = {"number": number, "family": row["family"], "status": row["status"], "cpu_ms": plan["cpu_ms"]}
        results.append(result)
        if "refusal" in plan:
            result["refusal"] = plan["refusal"]
            if row["status"] == "optimal" or row["weight"]:
                remarks.append(f"WRONG REFUSAL: {number} {row['family']}: {plan['refusal']}")
            continue
        ours = exact_tree.check(instance, plan["edges"])
        if row["status"] == "infeasible":
            remarks.append(f"IMPOSSIBLE: {number} has a tree, the exact solver says it has none")
            continue
        if ours < row["bound"] - 100:
            remarks.append(f"IMPOSSIBLE: {number} weighs {ours}, below the proven bound {row['bound']}")
        if ours // exact_tree.PENALTY != row["weight"] // exact_tree.PENALTY:
            remarks.append(f"WORSE: {number} uses more sick links or clusters than the optimum")
        result.update(gap=(ours - row["weight"]) / usd(row["weight"]), optimal=plan["optimal"],
                      slack=1 - plan["lower_bound"] * 1e9 / usd(ours), work=plan["work"])
        if plan["optimal"] and row["status"] == "optimal" and ours > row["weight"] + 100:
            remarks.append(f"FALSE CLAIM: {number} is said to be optimal")
    return results, remarks


def table(results):
    lines = [f"{'family':<10} {'plans':>5} {'proven':>6} {'optimal':>8} {'mean gap':>9} {'worst':>8} "
             f"{'own slack':>9} {'worst':>8} {'cpu ms p50':>10} {'max':>8}"]
    summary = []
    for family in ["cloud", "perturbed", "sparse", "tight", "delay", "outage", "all"]:
        mine = [r for r in results if family in (r["family"], "all")]
        proven = [r for r in mine if r["status"] == "optimal" and "gap" in r]
        if not proven:
            continue
        gaps = [max(0.0, r["gap"]) for r in proven]
        slack = [r["slack"] for r in mine if "slack" in r]
        cpu = sorted(r["cpu_ms"] for r in mine)
        row = {"family": family, "plans": len(mine), "proven": len(proven),
               "optimal": sum(g < 1e-6 for g in gaps) / len(gaps), "gap_mean": statistics.mean(gaps),
               "gap_max": max(gaps), "slack_mean": statistics.mean(slack), "slack_max": max(slack),
               "cpu_ms_p50": cpu[len(cpu) // 2], "cpu_ms_max": cpu[-1]}
        summary.append(row)
        lines.append(f"{family:<10} {row['plans']:>5} {row['proven']:>6} {100 * row['optimal']:>6.1f} % "
                     f"{100 * row['gap_mean']:>7.3f} % {100 * row['gap_max']:>6.2f} % {100 * row['slack_mean']:>7.2f} % "
                     f"{100 * row['slack_max']:>6.1f} % {row['cpu_ms_p50']:>10.0f} {row['cpu_ms_max']:>8.0f}")
    return "\n".join(lines), summary


def report(binary, wanted, effort):
    """Prints the table, the worst plans and the number of findings that must not be."""
    results, remarks = measure(binary, wanted, effort)
    text, summary = table(results)
    if results:
        print(text)
    above = [r for r in results if r["status"] == "optimal" and r.get("gap", 0) > 1e-6]
    for r in sorted(above, key=lambda r: -r["gap"])[:10]:
        print(f"above the optimum: {r['number']} {r['family']} {100 * r['gap']:.3f} %")
    for remark in remarks:
        print("note:", remark)
    return summary, sum(remark.split(":")[0].isupper() for remark in remarks)
