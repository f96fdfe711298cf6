"""What the end-to-end benchmark measures, whatever system it is: one row of it.

A system is an object with
  name                          "tailcast"
  server_pids()                 whose CPU time counts as the servers'
  begin(stream), end(stream)    makes and removes a stream
  produce(stream, row)          the command that publishes and prints a line of JSON at its end
  consume(stream, row)          the command that prints a line when it reads, and one at its end
The lines are those of `tailcast load`.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time


def log(text):
    print(text, file=sys.stderr, flush=True)


class Failed(Exception):
    """A part of the benchmark could not be started or ended badly; the message says which."""


def spawn(command, **options):
    """A process that Ctrl-C does not reach: it is ended by end(), or by a SIGTERM should this one be gone."""
    if shutil.which("setpriv"):
        command = ["setpriv", "--pdeathsig", "TERM", *command]
    return subprocess.Popen([str(word) for word in command], text=True, start_new_session=True, **options)


def end(process, how=signal.SIGTERM, timeout=30):
    """Ends a process that may have ended; kills it when it does not end in time."""
    if process.poll() is None:
        process.send_signal(how)
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Sampler:
    """Adds a sample() to `samples` every `interval` seconds, in a thread of its own, until join()."""

    def __init__(self, interval):
        self.samples = []
        self.interval = interval
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.stop.wait(self.interval):
            self.samples.append(self.sample())

    def join(self):
        self.stop.set()
        self.thread.join()


class FdatasyncSampler(Sampler):
    """Times two serial (write 4 KB, fdatasync) pairs."""

    def __init__(self, folder, interval):
        self.block = os.urandom(4096)
        self.files = [os.open(os.path.join(folder, f"fdatasync-{i}"), os.O_CREAT | os.O_RDWR)
                      for i in range(2)]
        super().__init__(interval)

    def sample(self):
        start = time.perf_counter()
        for file in self.files:
            os.write(file, self.block)
            os.fdatasync(file)
        return (time.perf_counter() - start) * 1e6

    def finish(self):
        self.join()
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


class CpuSampler(Sampler):
    """CPU seconds of processes over time."""

    def __init__(self, pids, interval):
        self.pids = pids
        self.first = self.sample()
        super().__init__(interval)

    def sample(self):
        return time.time() * 1e6, cpu_seconds(self.pids)  # of all

    def finish(self):
        self.join()
        self.samples = [self.first, *self.samples, self.sample()]

    def between(self, begin_us, end_us):
        """From the last sample before `begin_us` to the first after `end_us`."""
        before = [cpu for at, cpu in self.samples if at <= begin_us] or [self.samples[0][1]]
        after = [cpu for at, cpu in self.samples if at >= end_us] or [self.samples[-1][1]]
        return after[0] - before[-1]


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


def slowest_share(rates):
    """The slowest consumer's rate, as a share of the mean rate."""
    mean = sum(rates) / len(rates) if rates else 0
    return min(rates) / mean if mean > 0 else 0


def last_json(output, whose):
    lines = output.splitlines()
    if not lines:
        raise Failed(f"{whose} ended without a result; it says why above")
    return json.loads(lines[-1])


def load(system, stream, row, folder):
    """Runs producer and consumers of `row`. Their results, CPU seconds of the servers, bare fdatasyncs."""
    processes = row["consumers"] if row["mode"] == "processes" else 1
    readers, producer, sampler, cpu = [], None, None, None
    try:
        for _ in range(processes):
            readers.append(spawn(system.consume(stream, row), stdout=subprocess.PIPE))
        for reader in readers:
            if json.loads(reader.stdout.readline() or "{}").get("kind") != "ready":
                raise Failed(f"a consumer of {system.name} did not become ready; it says why above")
        sampler = FdatasyncSampler(folder, 0.02)
        cpu = CpuSampler(system.server_pids(), 0.1)
        producer = spawn(system.produce(stream, row), stdout=subprocess.PIPE)
        produced = last_json(producer.communicate()[0], f"the producer of {system.name}")
        outputs = collect(readers)
    finally:
        fdatasync = sampler.finish() if sampler else None
        if cpu:
            cpu.finish()
        for process in [*readers, *([producer] if producer else [])]:
            end(process)
    results = [last_json(output, f"a consumer of {system.name}") for output in outputs]
    produced["ok"] = producer.returncode == 0 and not produced["error"]
    for reader, result in zip(readers, results):
        result["ok"] = reader.returncode == 0 and not result["error"]
    # Until the last message: they wait for more for a while, and who is idle is not what is measured.
    used = cpu.between(min(r["began_us"] for r in results), max(r["ended_us"] for r in results))
    return produced, results, used, fdatasync


def collect(readers):
    """What they print until they end, all at once: none waits for its pipe while another is read."""
    outputs = [None] * len(readers)

    def read(i):
        outputs[i] = readers[i].communicate()[0]

    threads = [threading.Thread(target=read, args=(i,), daemon=True) for i in range(len(readers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outputs


def wrong_with(row, produced, results, each):
    """What keeps a row from being ok, in words; empty if nothing does. `each`: consumers of all processes."""
    wrong = []
    if not produced["ok"]:
        wrong.append(f"the producer failed: {produced['error'] or 'it says why above'}")
    failed = [r for r in results if not r["ok"]]
    if failed:
        wrong.append(f"{len(failed)} of {len(results)} processes of consumers failed: "
                     f"{failed[0]['error'] or 'they say why above'}")
    for what in ("gaps", "repeats", "foreign"):
        if row[what]:
            wrong.append(f"{what}: {row[what]}")
    if not row["complete"]:
        short = [e["messages"] for e in each if e["messages"] != produced["messages"]]
        wrong.append(f"{len(short)} of {len(each)} consumers do not have {produced['messages']} messages "
                     f"(one has {min(short)}); who gets nothing for a while ends")
    return wrong


def summary(row, produced, results, cpu, fdatasync):
    """`row` with what was measured."""
    cdf = add_cdfs([r["delay_cdf"] for r in results])
    count = sum(r["delay_us"]["count"] for r in results)
    delivered = sum(r["bytes"] for r in results)
    each = [e for r in results for e in r["each"]]
    rates = [e["mb_per_s"] for e in each]
    gb = max(delivered, 1) / 1e9
    row |= {
        "held_mb_per_s": produced["held_mb_per_s"],
        "p50_ms": percentile(cdf, count, 0.5) / 1e3,
        "p99_ms": percentile(cdf, count, 0.99) / 1e3,
        "p999_ms": percentile(cdf, count, 0.999) / 1e3,
        "samples": count,
        "gbit_per_s": sum(rates) * 8 / 1e3,
        "slowest_mb_per_s": min(rates),
        "slowest_share": slowest_share(rates),
        "fdatasync2": fdatasync,
        "acknowledge_us": produced["acknowledge_us"],
        "server_cpu_s_per_gb": cpu / gb,
        "consumer_cpu_s_per_gb": sum(r["cpu_s"] for r in results) / gb,
        "producer_cpu_s": produced["cpu_s"],
        "gaps": sum(r["gaps"] for r in results),
        "repeats": sum(r["repeats"] for r in results),
        "foreign": sum(r["foreign"] for r in results),
        "complete": all(e["messages"] == produced["messages"] for e in each),
    }
    row["wrong"] = wrong_with(row, produced, results, each)
    row["ok"] = not row["wrong"]
    if "shadow_bytes" in produced:
        row |= {
            "roll_overs": produced["files"] - 1,
            # What partial chunks cost: bytes that the cache was given per byte produced (a chunk is
            # written again when it grows; once for all replicas), and bytes of remote memory that
            # were read per byte delivered (index, look-ups and lengths included).
            "cache_write_amplification": produced["shadow_bytes"] / max(1, produced["bytes"]),
            "remote_read_amplification":
                sum(r["remote_bytes_read"] for r in results) / max(1, delivered),
            "fallbacks": sum(r["fallbacks"] for r in results),
        }
    return row


def measure(system, stream, row, folder):
    system.begin(stream)
    row = summary(row, *load(system, stream, row, folder))
    system.end(stream)
    return row
