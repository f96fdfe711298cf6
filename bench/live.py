"""What the benchmarks and tests share that do something to a running deployment: the deployment, and consumers
whose delays come in windows of half a second, to be put together for the stretches between."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading


# A source, and two cells below each other.
CHAIN = ["one", "two", "three"]
CHAIN_TOPOLOGY = """version: 1
clusters:
  - {name: one}
  - {name: two}
  - {name: three}
links:
  - {from: one, to: two, usd_per_gb: 0.02, rtt_ms: 2, both: true}
  - {from: two, to: three, usd_per_gb: 0.02, rtt_ms: 2, both: true}
"""


def processes(up):
    """{CELL/NAME: pid} of the children of the process `up`, each of which was given CELL/config/NAME.yaml."""
    found = {}
    for folder in pathlib.Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            config = next(a for a in (folder / "cmdline").read_text().split("\0") if a.endswith(".yaml"))
        except (FileNotFoundError, ProcessLookupError, StopIteration):
            continue
        if parent == up:
            path = pathlib.Path(config)
            found[f"{path.parent.parent.name}/{path.stem}"] = int(folder.name)
    return found


def own_bytes(pid):
    """Memory of a process that is its own (anonymous: neither mapped files nor the caches' regions). None: it is gone."""
    try:
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Anonymous:"):
                return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return None


class Deployment:
    """One that runs while something is done to it: of this topology in the low-latency profile, or, None, as `up` makes
    it. Ends the program if it does not start."""

    def __init__(self, binary, folder, topology, *options):
        self.binary = binary
        # A folder of its own: what an earlier one published is not read again.
        self.dir = tempfile.mkdtemp(prefix="d-", dir=folder)
        if topology is not None:
            path = os.path.join(folder, "topology.yaml")
            pathlib.Path(path).write_text(topology)
            options = ("--topology", path, "--profile", "low-latency", *options)
        self.log = open(os.path.join(self.dir, "up.log"), "w+")
        self.process = subprocess.Popen([binary, "up", "--dir", self.dir, *options],
                                        stdout=subprocess.PIPE, stderr=self.log, text=True)
        for line in self.process.stdout:
            if line.strip() == "ready":
                return
        self.log.seek(0)
        sys.exit(f"the deployment did not start:\n{self.log.read()}")

    def run(self, *args):
        """The output of `tailcast ARGS --dir ...`. Ends the program if that fails."""
        done = subprocess.run([self.binary, *args, "--dir", self.dir], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"tailcast {' '.join(args)}: {done.stderr}")
        return done.stdout

    def produce(self, stream, mb_per_s, *options, seconds=600):
        """Longer than it takes: `finish` ends it."""
        return subprocess.Popen(
            [self.binary, "load", "produce", "--dir", self.dir, "--stream", stream, "--mb-per-s",
             str(mb_per_s), "--seconds", str(seconds), *options], stdout=subprocess.PIPE, text=True)

    def finish(self, producer):
        producer.send_signal(signal.SIGINT)
        return json.loads(producer.communicate()[0])

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=30)


class Consumers:
    """Several processes, each with some of the consumers; their windows, as they come."""

    def __init__(self, deployment, stream, consumers, processes, *options, window=0.5):
        self.window = window  # seconds
        self.windows = []  # (wall seconds of its end, cdf)
        self.results = []
        self.lock = threading.Lock()
        self.processes = [subprocess.Popen(
            [deployment.binary, "load", "consume", "--dir", deployment.dir, "--stream", stream, "--threads",
             str(consumers // processes), "--window", str(window), "--until-idle", "3", "--from", "beginning", *options],
            stdout=subprocess.PIPE, text=True) for _ in range(processes)]
        for process in self.processes:
            if json.loads(process.stdout.readline() or "{}").get("kind") != "ready":
                sys.exit("the consumers did not become ready")
        self.threads = [threading.Thread(target=self.read, args=(p,)) for p in self.processes]
        for thread in self.threads:
            thread.start()

    def read(self, process):
        for line in process.stdout:
            value = json.loads(line)
            with self.lock:
                if value["kind"] == "window":
                    self.windows.append((value["at_us"] / 1e6, value["delay_cdf"]))
                else:
                    self.results.append(value)

    def finish(self):
        for thread in self.threads:
            thread.join()
        return [process.wait() for process in self.processes]

    def percentiles(self, begin, end):
        """Of the windows that lie between, p50, p99 and the greatest, in ms."""
        late = {}
        for at, cdf in self.windows:
            if not begin + self.window <= at <= end:
                continue
            before = 0
            for us, at_most in cdf:
                late[us] = late.get(us, 0) + at_most - before
                before = at_most
        total = sum(late.values())
        result, seen = {}, 0
        for us in sorted(late):
            seen += late[us]
            for name, share in (("p50_ms", 0.5), ("p99_ms", 0.99), ("max_ms", 1.0)):
                if seen >= share * total:
                    result.setdefault(name, us / 1e3)
        result["messages"] = total
        return result

    def verdict(self, codes, produced):
        """What all of them say of the whole run; `ok`: nothing was lost, repeated or foreign."""
        each = [e for r in self.results for e in r["each"]]
        whole = {
            "consumers": len(each),
            "messages": produced["messages"],
            "held_mb_per_s": produced["held_mb_per_s"],
            "not_durable": produced["not_durable"],
            **{key: sum(r[key] for r in self.results) for key in ("fallbacks", "gaps", "repeats", "foreign")},
            "complete": all(e["messages"] == produced["messages"] for e in each),
            "errors": [r["error"] for r in self.results + [produced] if r["error"]],
        }
        whole["ok"] = all(code == 0 for code in codes) and whole["complete"] and not whole["errors"]
        print(f"  {whole['consumers']} consumers, {whole['messages']} messages, "
              f"{whole['held_mb_per_s']:.1f} MB/s held: {whole['gaps']} gaps, {whole['repeats']} repeats, "
              f"{whole['foreign']} foreign, {whole['fallbacks']} fallbacks, "
              f"{'complete' if whole['complete'] else 'NOT COMPLETE'}"
              f"{'' if whole['ok'] else '  NOT OK ' + '; '.join(whole['errors'])}", flush=True)
        return whole

