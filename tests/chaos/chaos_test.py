"""Real processes are killed (kill -9) and stopped (SIGSTOP) at random while a stream of two shards goes from its source
through two more cells: producers, consumers, readers, writers, schedulers, caches, whole cells. Files are small, so that
they roll over all the time; a stopped producer or writer meets its successor when it goes on. It ends after --kills kills
of producers, writers, schedulers and whole cells; the stops, and the kills of others, come besides.

What must hold: each cell has the same messages in the same order; each that was acknowledged as durable is there, where
its producer was told; none that was reported as failed is; none twice; consumers that were killed and go on from their
position files miss nothing.

usage: chaos_test.py --binary FILE --library FILE [--kills 100] [--seed 1] [--file-faults write:EIO:0.001,...]"""

import argparse
import collections
import itertools
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "bench"))
from live import CHAIN, CHAIN_TOPOLOGY, processes

SHARDS = 2
# What each turn does, with its weight.
TURNS = {"kill a producer": 20, "stop a producer": 8, "kill a consumer": 8, "kill a reader": 8, "kill a writer": 20,
         "kill a scheduler": 14, "stop a worker": 12, "kill a cache": 6, "kill a cell": 8}
# These are what --kills counts.
COUNTED = ("kill a producer", "kill a writer", "kill a scheduler", "kill a cell")
# After the last kill everything must be delivered within this: a restart of the longest-killed takes some seconds.
REST_S = 120


class Producers:
    """Those of one shard: one lives, those before it are dead or about to hear that they are."""

    def __init__(self, cell, shard, rate, env, errors):
        self.cell, self.shard, self.rate, self.env, self.errors = cell, shard, rate, env, errors
        self.lock = threading.Lock()
        self.durable = {}  # (name, n): number in the shard
        self.failed, self.unknown = set(), set()
        self.problems = []
        self.count = 0
        self.opened = threading.Event()
        self.threads, self.all = [], []
        self.live = None
        self.start()

    def start(self):
        name = f"p{self.shard}.{self.count}"
        self.count += 1
        self.opened = threading.Event()
        self.live = subprocess.Popen(
            [sys.executable, str(HERE / "producer.py"), self.cell, "s", str(self.shard), name, str(self.rate)],
            stdout=subprocess.PIPE, stderr=self.errors, text=True, env=self.env)
        self.all.append(self.live)
        thread = threading.Thread(target=self.listen, args=(self.live, name, self.opened), daemon=True)
        thread.start()
        self.threads.append(thread)

    def listen(self, process, name, opened):
        for line in process.stdout:
            if not line.endswith("\n"):
                break  # killed in the middle of it
            word, *numbers = line.split()
            with self.lock:
                if word == "open":
                    opened.set()
                elif word == "durable":
                    key = (name, int(numbers[0]))
                    if key in self.durable:
                        self.problems.append(f"{key} was acknowledged twice")
                    self.durable[key] = int(numbers[1])
                elif word in ("failed", "unknown"):
                    getattr(self, word).add((name, int(numbers[0])))
        opened.set()  # or it ended before

    def end(self):
        """The last one ends well, so that nothing is left open."""
        self.live.send_signal(signal.SIGTERM)
        code = self.live.wait(timeout=2 * REST_S)
        if code != 0:
            said = pathlib.Path(self.errors.name).read_text()[-500:]
            self.problems.append(f"the last producer of shard {self.shard} ended with {code}: {said}")
        end = time.monotonic() + REST_S
        for process, thread in zip(self.all, self.threads):
            thread.join(timeout=max(0, end - time.monotonic()))
            if thread.is_alive():
                self.problems.append(f"a producer of shard {self.shard} that was replaced never ended")
            process.kill()


class Consumer:
    """`tailcast consume` of all shards with a position file. Killed, it goes on in a further output file."""

    def __init__(self, binary, folder, directory, cell, name):
        self.path = folder / name
        self.args = [binary, "consume", "--dir", directory, "--cluster", cell, "--stream", "s", "--profile", "low-latency",
                     "--format", "{shard} {number} {payload}", "--position-file", str(self.path) + ".position"]
        self.name, self.lives, self.outputs, self.read = name, 0, [], {}
        self.last = {}  # (output, shard): message
        self.got = [{} for _ in range(SHARDS)]  # number: payload
        self.problems = []
        self.start()

    def start(self):
        path = pathlib.Path(f"{self.path}.{self.lives}")
        self.lives += 1
        self.outputs.append(path)
        with open(path, "wb") as out, open(f"{self.path}.err", "ab") as err:
            self.process = subprocess.Popen(self.args, stdout=out, stderr=err)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.start()

    def take(self):
        """What was written since the last time."""
        for path in self.outputs:
            with open(path, "rb") as f:
                f.seek(self.read.get(path, 0))
                data = f.read()
            whole = data[:data.rfind(b"\n") + 1]
            self.read[path] = self.read.get(path, 0) + len(whole)
            for line in whole.decode().splitlines():
                shard, number, payload = line.split(" ", 2)
                got = self.got[int(shard)]
                # In one life each message follows the one before.
                last = self.last.get((path, shard), int(number) - 1)
                if int(number) != last + 1:
                    self.problems.append(f"{self.name}: message {number} of shard {shard} comes after {last}")
                self.last[path, shard] = int(number)
                if got.setdefault(int(number), payload) != payload:
                    self.problems.append(f"{self.name}: message {number} of shard {shard} is first "
                                         f"{got[int(number)][:40]!r}, then {payload[:40]!r}")

    def counts(self):
        self.take()
        return [len(got) for got in self.got]


def send(pid, what):
    try:
        os.kill(pid, what)
    except ProcessLookupError:
        pass


class Chaos:
    def __init__(self, args, up, producers, consumers):
        self.rng = random.Random(args.seed)
        self.up, self.producers, self.consumers = up, producers, consumers
        self.stopped = []  # (when it goes on, pid)
        self.done = collections.Counter()

    def kills(self):
        return sum(self.done[what] for what in COUNTED)

    def turn(self):
        """What was done; a turn that finds nobody is none."""
        for _ in range(100):
            what = self.rng.choices(list(TURNS), TURNS.values())[0]
            if getattr(self, what.replace(" ", "_"))():
                self.done[what] += 1
                return what
            time.sleep(0.1)
        raise AssertionError(f"nobody is there to be killed: {processes(self.up.process.pid)}")

    def pick(self, *roles):
        names = {n: pid for n, pid in processes(self.up.process.pid).items() if any(r in n for r in roles)}
        return names[self.rng.choice(sorted(names))] if names else None

    def kill(self, pid):
        if pid is not None:
            send(pid, signal.SIGKILL)
        return pid is not None

    def stop(self, pid):
        send(pid, signal.SIGSTOP)
        self.stopped.append((time.monotonic() + self.rng.choice((0.3, 1, 3, 8)), pid))

    def wake(self, all_of_them=False):
        for entry in list(self.stopped):
            if all_of_them or entry[0] < time.monotonic():
                send(entry[1], signal.SIGCONT)
                self.stopped.remove(entry)

    def kill_a_producer(self):
        producers = self.rng.choice(self.producers)
        producers.live.kill()
        producers.start()
        return True

    # Its successor takes over meanwhile, and then it goes on.
    def stop_a_producer(self):
        producers = self.rng.choice(self.producers)
        self.stop(producers.live.pid)
        producers.start()
        return True

    def kill_a_consumer(self):
        self.rng.choice([c for c in self.consumers if c.name.endswith("killed")]).kill()
        return True

    def kill_a_reader(self):
        return self.kill(self.pick("reader"))

    def kill_a_writer(self):
        return self.kill(self.pick("writer"))

    def kill_a_scheduler(self):
        return self.kill(self.pick("scheduler"))

    def stop_a_worker(self):
        pid = self.pick("reader", "writer", "scheduler", "cache")
        if pid is not None:
            self.stop(pid)
        return pid is not None

    def kill_a_cache(self):
        return self.kill(self.pick("cache"))

    def kill_a_cell(self):
        cell = self.rng.choice(CHAIN)
        return any([self.kill(pid) for name, pid in processes(self.up.process.pid).items() if name.startswith(cell + "/")])


def verdict(producers, consumers):
    """All that is wrong."""
    problems = [p for x in [*producers, *consumers] for p in x.problems]
    from producer import message
    for shard, by in enumerate(producers):
        truth = consumers[0].got[shard]
        if sorted(truth) != list(range(len(truth))):
            problems.append(f"{consumers[0].name}: the numbers of shard {shard} have gaps")
        for consumer in consumers[1:]:
            got = consumer.got[shard]
            wrong = [n for n in sorted(set(truth) | set(got)) if truth.get(n) != got.get(n)]
            if wrong:
                problems.append(f"{consumer.name} and {consumers[0].name} differ in {len(wrong)} messages of shard {shard}, "
                                f"the first is {wrong[0]}: {str(got.get(wrong[0]))[:40]!r}, {str(truth.get(wrong[0]))[:40]!r}")
        where, last = {}, {}
        for number in sorted(truth):
            name, n, _ = truth[number].split(":", 2)
            key = (name, int(n))
            if truth[number] != message(*key):
                problems.append(f"shard {shard}: the bytes of message {number} are not those that {name} published as {n}")
            if key in where:
                problems.append(f"shard {shard}: {key} is there twice, as {where[key]} and {number}")
            if last.get(name, -1) > key[1]:
                problems.append(f"shard {shard}: {key} comes after {last[name]}")
            where[key], last[name] = number, key[1]
        for key, number in by.durable.items():
            if where.get(key) != number:
                problems.append(f"shard {shard}: {key} was acknowledged as message {number} and is {where.get(key)}")
        for key in by.failed & set(where):
            problems.append(f"shard {shard}: {key} was reported as failed and is message {where[key]}")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--library", required=True, help="libtailcast.so")
    parser.add_argument("--kills", type=int, default=100,
                        help="of producers, writers, schedulers and cells: " + ", ".join(COUNTED))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mb-per-s", type=float, default=0.5, help="of each shard")
    parser.add_argument("--durability", default="page-cache", help="of the disks: durable flushes, page-cache does not")
    parser.add_argument("--file-faults", default="", help="system calls that fail in all of them: src/storage/file_faults.h")
    args = parser.parse_args()
    os.environ["TAILCAST_FILE_FAULTS"] = args.file_faults
    binary = os.path.abspath(args.binary)
    os.environ["TAILCAST_BINARY"] = binary
    os.environ["TAILCAST_LIBRARY"] = os.path.abspath(args.library)
    sys.path[:0] = [str(ROOT / "tests/system"), str(ROOT / "clients/python")]
    from harness import Up, run
    env = dict(os.environ, PYTHONPATH=str(ROOT / "clients/python"), PYTHONDONTWRITEBYTECODE="1")

    up = Up(CHAIN_TOPOLOGY, "--profile", "low-latency", "--durability", args.durability)
    problems = []
    try:
        create = ["stream", "create", "--dir", up.dir, "--cluster", "one", "--stream", "s", "--shards", str(SHARDS),
                  "--file-bytes", str(1 << 20)]
        code, _, err = run(*create)
        for _ in range(10 if args.file_faults else 0):  # the disk that fails is the registry's, too
            if code == 0 or "exists" in err:
                break
            code, _, err = run(*create)
        assert code == 0 or "exists" in err, err
        source = next(c for c in up.status()["cells"] if c["name"] == "one")["scheduler"]
        folder = pathlib.Path(up.root)
        consumers = [Consumer(binary, folder, up.dir, cell, f"{cell}-{kind}") for cell in CHAIN for kind in ("lives", "killed")]
        producers = [Producers(source, shard, args.mb_per_s * 1e6, env, open(folder / f"producers-{shard}.err", "w")) for shard in range(SHARDS)]
        chaos = Chaos(args, up, producers, consumers)
        for turn in itertools.count(1):
            if chaos.kills() >= args.kills:
                break
            until = time.monotonic() + chaos.rng.uniform(0.2, 3)
            while time.monotonic() < until:
                time.sleep(0.05)
                chaos.wake()
            what = chaos.turn()
            if turn % 20 == 0:
                print(f"turn {turn}, {chaos.kills()} of {args.kills} kills, the last: {what}; acknowledged "
                      f"{[len(p.durable) for p in producers]}, seen {[sum(c.counts()) for c in consumers]}", flush=True)
        chaos.wake(all_of_them=True)
        for by in producers:
            if not by.opened.wait(REST_S):
                problems.append(f"the last producer of shard {by.shard} did not open within {REST_S} s")
            by.end()
        due = [max(by.durable.values(), default=-1) + 1 for by in producers]
        end = time.monotonic() + REST_S
        while time.monotonic() < end and any(c < d for x in consumers for c, d in zip(x.counts(), due)):
            time.sleep(0.2)
        for consumer in consumers:
            consumer.process.send_signal(signal.SIGINT)
            if consumer.process.wait(timeout=60) != 0:
                problems.append(f"{consumer.name} ended with {consumer.process.returncode}")
            consumer.take()
        problems += verdict(producers, consumers)
        # Else nothing was shown.
        problems += [f"only {len(by.durable)} messages of shard {by.shard} were acknowledged"
                     for by in producers if len(by.durable) < 20 * args.kills]
        print(f"\n{chaos.kills()} kills in {chaos.done.total()} turns: " + ", ".join(f"{n} times {what}" for what, n in sorted(chaos.done.items())))
        for by in producers:
            print(f"shard {by.shard}: {by.count} producers; acknowledged {len(by.durable)}, failed {len(by.failed)}, unknown "
                  f"{len(by.unknown)}; in the stream {len(consumers[0].got[by.shard])}")
        for c in consumers:
            print(f"{c.name:<14} {c.lives:3d} lives, {sum(c.counts())} messages")
    finally:
        code = up.close()
        for by in locals().get("producers", []):
            for process in by.all:
                process.kill()
        for c in locals().get("consumers", []):
            c.process.kill()
    if code != 0:
        problems.append(f"up ended with {code}")
    for problem in problems[:20]:
        print("WRONG: " + problem)
    print(f"seed {args.seed}: " + ("ok" if not problems else f"NOT ok, {len(problems)} problems"))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
