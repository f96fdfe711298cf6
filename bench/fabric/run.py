#!/usr/bin/env python3
"""Every driver of the fabric measured: shm and tcp on this host, RDMA on soft devices in a kernel of its own.

  run.py --programs FOLDER [--skip-rdma | --skip-host] [--json FILE] [--benchmark_...: for fabric_fabric_bench]

The soft devices say what the driver adds to libibverbs, not how fast RDMA is: their kernel has one core for both ends.
Expect of a batch of 64 reads 1 to 1.3 times the bare loop's time a read on a quiet machine: it is one doorbell and one READ
more, of the control page. Of 16 it is 1.5 times, and 1.5 to 5 times of a single one, which is two READs, of the chunk and of
the control page; and each batch takes three looks at the clock, for which that kernel takes 10 to 20 us each (a host's takes
0.02). No sleep of the server's engine, and at most 400 of the driver's own instructions a read in a batch, 1,000 of a single
one (callgrind, over a provider that does nothing): 300 of a batch of 64, which is 0.1 us on a host, a third of them to choose
what goes out where, the rest to check, keep and complete it.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

UML = pathlib.Path(__file__).resolve().parents[2] / "tests" / "uml" / "run.py"
BATCHES = (1, 16, 64)


def run(command, **more):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          **more)
    if done.returncode != 0:
        sys.exit(f"run.py: {command[0]} failed ({done.returncode}):\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done


def on_device(program, device):
    """{(benchmark, batch): its row} on a soft device."""
    text = run(["python3", UML, "test", "--device", device, "--seconds", "120", "--", program,
                "--benchmark_filter=^(Driver|DriverLong|Copied|Bare)/", "--benchmark_min_time=2",
                "--benchmark_format=json"]).stdout
    rows = json.loads(text[text.index("{"):text.rindex("}") + 1])["benchmarks"]
    for row in rows:
        if row.get("error_occurred"):
            sys.exit(f"run.py: {device}: {row['name']}: {row['error_message']}")
    return {(row["name"].split("/")[0], int(re.search(r"batch:(\d+)", row["name"])[1])): row for row in rows}


def rows_of_every_driver(programs, device):
    """{benchmark: its row} of the same reads and doorbells as on the host's drivers."""
    text = run(["python3", UML, "test", "--device", device, "--seconds", "120", "--", programs / "fabric_fabric_bench",
                "--benchmark_filter=^Driver(Read|Watch)/", "--benchmark_format=json"]).stdout
    rows = json.loads(text[text.index("{"):text.rindex("}") + 1])["benchmarks"]
    for row in rows:
        if row.get("error_occurred"):
            sys.exit(f"run.py: {device}: {row['name']}: {row['error_message']}")
    return {row["name"].removesuffix("/real_time"): row for row in rows}


def instructions(program, name, batch):
    """Instructions of one read more."""
    def count(iterations):
        with tempfile.NamedTemporaryFile() as out:
            said = run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out.name}", program,
                        f"--benchmark_filter=^{name}/batch:{batch}/"],
                       env={**os.environ, "TAILCAST_VERBS_BENCH_ITERATIONS": str(iterations)}).stderr
        return int(re.search(r"Collected\s*:\s*(\d+)", said)[1])
    few, many = 1000, 3000
    return (count(many) - count(few)) / ((many - few) * batch)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--skip-host", action="store_true", help="RDMA only")
    parser.add_argument("--skip-rdma", action="store_true", help="shm and tcp only; builds no kernel")
    options, others = parser.parse_known_args()
    if not options.skip_host:
        subprocess.run([options.programs / "fabric_fabric_bench", *others], check=True)
    if options.skip_rdma:
        return
    program = options.programs / "fabric_verbs_bench"
    report = {"devices": {}, "instructions": {}, "drivers": {}}
    print("\nEvery driver in the kernel of the soft devices, a read of 4 KB or a doorbell; server: its CPU for each")
    print(f"{'device':8}{'driver':8}{'reads/s':>10}{'p50 us':>9}{'p99 us':>9}{'server us':>11}{'watches/s':>11}{'server us':>11}")
    for device in ("siw", "rxe"):
        rows = rows_of_every_driver(options.programs, device)
        for driver in ("shm", "tcp", "verbs"):
            read, watch = rows[f"DriverRead/{driver}"], rows[f"DriverWatch/{driver}"]
            report["drivers"].setdefault(device, {})[driver] = {
                "reads_per_s": read["items_per_second"], "p50_us": read["p50_us"], "p99_us": read["p99_us"],
                "read_server_us": read["server_us"], "watches_per_s": watch["items_per_second"],
                "watch_server_us": watch["server_us"]}
            print(f"{device:8}{driver:8}{read['items_per_second']:10.0f}{read['p50_us']:9.1f}{read['p99_us']:9.1f}"
                  f"{read['server_us']:11.2f}{watch['items_per_second']:11.0f}{watch['server_us']:11.2f}")
    print("\nRDMA on soft devices, 4 KB reads, us a read (functional, no speed); copied: not into registered memory")
    print(f"{'device':8}{'batch':>6}{'driver':>9}{'copied':>9}{'bare':>9}{'ratio':>7}{'reads':>10}{'server sleeps':>15}")
    for device in ("siw", "rxe"):
        rows = on_device(program, device)
        for batch in BATCHES:
            driver, bare = rows["Driver", batch], rows["Bare", batch]
            # Rates of real time; the time of an iteration is a batch's.
            us, copied_us, bare_us = (1e6 / row["items_per_second"] for row in (driver, rows["Copied", batch], bare))
            reads, sleeps = driver["iterations"] * batch, driver["server_sleeps"]
            if batch == 64:
                reads += rows["DriverLong", 64]["iterations"] * 64
                sleeps += rows["DriverLong", 64]["server_sleeps"]
            report["devices"].setdefault(device, {})[batch] = {
                "driver_us": us, "copied_us": copied_us, "bare_us": bare_us, "reads": reads, "server_sleeps": sleeps}
            print(f"{device:8}{batch:6}{us:9.2f}{copied_us:9.2f}{bare_us:9.2f}{us / bare_us:7.2f}{reads:10}"
                  f"{sleeps:15.0f}")
    print("\nInstructions a read, over a provider that does nothing (callgrind)")
    print(f"{'batch':>6}{'driver':>9}{'bare':>9}")
    for batch in BATCHES:
        driver, bare = (instructions(program, name, batch) for name in ("FakeDriver", "FakeBare"))
        report["instructions"][batch] = {"driver": driver, "bare": bare}
        print(f"{batch:6}{driver:9.0f}{bare:9.0f}")
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
