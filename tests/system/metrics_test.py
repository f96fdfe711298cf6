"""What processes of each role show to Prometheus: the form of the metrics, that docs/metrics.md has them all, and that
a cause that is provoked moves its counter and no other."""

import os
import pathlib
import re
import signal
import subprocess
import threading
import unittest
import urllib.request

from harness import BINARY, ONE_CELL, TIME_FACTOR, SystemTest, Up, main, run, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMPLE = re.compile(r'^([a-z_][a-z0-9_]*)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'([a-z_][a-z0-9_]*)="((?:[^"\\]|\\.)*)"')


class Page:
    """A page in the text format: families (type, help) and samples by (name, labels)."""

    def __init__(self, text):
        self.types, self.helps, self.samples, self.wrong = {}, {}, {}, []
        for line in text.splitlines():
            word = line.split(" ", 3)
            if line.startswith("# HELP "):
                self.helps[word[2]] = word[3] if len(word) > 3 else ""
            elif line.startswith("# TYPE "):
                self.types[word[2]] = word[3]
            elif line:
                found = SAMPLE.match(line)
                if not found:
                    self.wrong.append(line)
                    continue
                labels = tuple(sorted(LABEL.findall(found[2] or "")))
                self.samples[found[1], labels] = float(found[3])

    def family(self, name):
        """Of a sample's name: those of a histogram have a suffix more."""
        stem = re.sub(r"_(bucket|sum|count)$", "", name)
        return stem if self.types.get(stem) == "histogram" else name

    def value(self, name, **labels):
        return sum(v for (n, l), v in self.samples.items()
                   if n == name and set(labels.items()) <= set(l))

    def moved(self, before, prefix):
        """Counters that grew: {(name, labels): by how much}."""
        return {key: v - before.samples.get(key, 0) for key, v in self.samples.items()
                if key[0].startswith(prefix) and self.types.get(key[0]) == "counter" and
                v != before.samples.get(key, 0)}


def scrape(address):
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as page:
        return Page(page.read().decode())


class Client:
    """`tailcast produce` or `consume` with --metrics, until close()."""

    def __init__(self, *args):
        self.process = subprocess.Popen([BINARY, *args, "--metrics", "127.0.0.1:0"], stdin=subprocess.PIPE,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        line = self.process.stderr.readline()
        found = re.search(r"metrics at http://(\S+)/metrics", line)
        if not found:
            self.process.kill()
            raise AssertionError(line + self.process.stderr.read())
        self.address = found[1]
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def publish(self, text):
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def close(self):
        self.process.stdin.close()
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=60 * TIME_FACTOR)


class Metrics(SystemTest):
    @classmethod
    def setUpClass(cls):
        cls.up = Up(ONE_CELL)
        code, _, err = run("stream", "create", "--dir", cls.up.dir, "--stream", "s")
        assert code == 0, err
        where = ["--dir", cls.up.dir, "--stream", "s"]
        cls.producer = Client("produce", *where)
        cls.consumer = Client("consume", *where, "--profile", "low-latency")

    @classmethod
    def tearDownClass(cls):
        cls.producer.close()
        cls.consumer.close()
        assert cls.up.close() == 0

    def processes(self):
        """Addresses by name: the cell's processes, a producer and a consumer."""
        seen = {}

        def all_answer():  # one that does not, at that moment, has no address there
            seen["all"] = self.up.status()["cells"][0]["processes"]
            return all("metrics" in p for p in seen["all"])

        self.until(all_answer)
        all_ = {p["name"]: p["metrics"] for p in seen["all"]}
        return {**all_, "producer": self.producer.address, "consumer": self.consumer.address}

    def until(self, what):
        self.assertTrue(wait_until(what))

    def test_names_units_types_and_help_texts_are_as_prometheus_wants_them(self):
        documented = (ROOT / "docs" / "metrics.md").read_text()
        for process, address in self.processes().items():
            page = scrape(address)
            self.assertEqual(page.wrong, [], process)
            names = {page.family(name) for name, _ in page.samples if not name.startswith("exposer_")}
            self.assertTrue(names, process)
            for name in names:
                with self.subTest(process=process, name=name):
                    self.assertRegex(name, r"^tailcast_[a-z][a-z0-9_]*$")
                    self.assertNotIn("__", name)
                    self.assertIn(page.types.get(name), ("counter", "gauge", "histogram"))
                    self.assertTrue(page.helps.get(name), "a help text")
                    self.assertEqual(name.endswith("_total"), page.types[name] == "counter")
                    stem = name.removesuffix("_total")
                    if page.types[name] == "histogram":
                        self.assertRegex(name, "_(seconds|ratio)$")
                    for unit in ("seconds", "bytes", "ratio"):
                        if unit in stem.split("_"):
                            self.assertTrue(stem.endswith("_" + unit), "the unit comes last")
                    self.assertFalse(set(stem.split("_")) &
                                     {"ms", "us", "ns", "millis", "micros", "milliseconds", "microseconds",
                                      "kb", "mb", "gb", "kilobytes", "megabytes", "percent", "minutes", "hours"},
                                     "seconds and bytes are the units")
                    self.assertIn(f"`{name}`", documented, "docs/metrics.md has each metric")
            for name, labels in page.samples:
                kept = {"job", "instance"} | ({"le"} if page.family(name) == name else set())
                self.assertFalse({label for label, _ in labels} & kept, name)

    def test_the_page_of_metrics_names_none_that_is_gone(self):
        sources = "".join(p.read_text() for p in (ROOT / "src").glob("*/*.cc"))
        prefixes = ("tailcast_cache_client_", "tailcast_cache_server_")
        for name in set(re.findall(r"`(tailcast_[a-z0-9_]+)`", (ROOT / "docs" / "metrics.md").read_text())):
            known = f'"{name}"' in sources or any(
                name.startswith(p) and f'"{name[len(p):]}"' in sources for p in prefixes)
            self.assertTrue(known, f"docs/metrics.md: no source has {name}")

    def test_each_role_shows_the_state_and_the_use_of_the_caches(self):
        self.producer.publish("a\n" * 1000)
        for name, address in self.processes().items():
            if name in ("producer", "consumer") or name.startswith(("reader", "writer")):
                for cache in ("data", "metadata"):
                    self.until(lambda: scrape(address).value("tailcast_cache_client_ready_replicas",
                                                             cache=cache) == 4)
        producer, consumer = self.producer.address, self.consumer.address
        self.until(lambda: scrape(producer).value("tailcast_cache_client_mutations_total", cache="data") > 0)
        self.until(lambda: scrape(consumer).value("tailcast_cache_client_value_reads_total",
                                                  cache="metadata") > 0)
        caches = {n: a for n, a in self.processes().items() if n.startswith("cache-")}
        self.assertEqual(len(caches), 4)
        for name, address in caches.items():
            self.until(lambda: scrape(address).value("tailcast_cache_server_whole", cache="metadata",
                                                     replica=name) == 1)
            page = scrape(address)
            self.assertEqual(page.value("tailcast_cache_server_repair_state", cache="metadata"), 1)
            self.assertEqual(page.value("tailcast_cache_server_repair_state", cache="metadata", state="copied"), 1)
            self.assertEqual(page.value("tailcast_cache_server_epoch", cache="metadata"), 1)
            used = page.value("tailcast_cache_server_used_memory_bytes", cache="data")
            self.assertTrue(0 < used <= page.value("tailcast_cache_server_memory_bytes", cache="data"))
        scheduler = scrape(self.processes()["scheduler"])
        self.assertEqual(scheduler.value("tailcast_cache_epoch"), 1)
        self.assertEqual(scheduler.value("tailcast_cache_epochs_total", cause="ring"), 1)
        self.assertEqual(scheduler.value("tailcast_cache_replicas"), 4)
        self.assertEqual(scheduler.value("tailcast_cache_whole_replicas"), 4)
        self.assertGreaterEqual(scheduler.value("tailcast_cache_admissions_total"), 4)
        log = pathlib.Path(self.up.dir, "here", "log", "scheduler.log").read_text()
        for i in range(1, 5):
            self.assertIn(f"cache-{i} is whole in epoch 1", log)

    def test_a_call_moves_its_counter_and_no_other(self):
        [address] = [a for n, a in self.processes().items() if n == "cache-1"]
        prefix = "tailcast_cache_server_"
        stat = (prefix + "calls_total", (("cache", "metadata"), ("method", "stat"), ("replica", "cache-1")))
        # Nobody copies any more.
        for replica, where in self.processes().items():
            if replica.startswith("cache-"):
                self.until(lambda: scrape(where).value("tailcast_cache_server_repair_state", state="copied") == 2)
        # Values are written in the background: only refusals and calls that nobody makes are still.
        still = lambda page, before: {k: v for k, v in page.moved(before, prefix).items()
                                      if "refused" in k[0] or dict(k[1]).get("method") in ("stat", "locate", "scan")}
        # Another replica may ask for a page meanwhile: then that look says nothing of this call.
        for _ in range(5):
            before = scrape(address)
            code, _, err = run("cache", "stat", "--dir", self.up.dir, "--instance", "metadata")
            self.assertEqual(code, 0, err)
            self.until(lambda: stat in scrape(address).moved(before, prefix))
            moved = still(scrape(address), before)
            if moved == {stat: 1}:
                break
        self.assertEqual(moved, {stat: 1})

    def test_a_replica_that_stands_still_is_counted_under_its_causes(self):
        failures = "tailcast_cache_client_failures_total"
        before = scrape(self.producer.address)
        pid = self.up.pids("here", "cache")["cache-2"]
        os.kill(pid, signal.SIGSTOP)
        try:
            def timeouts():
                self.producer.publish("b\n" * 2000)
                return sum(v for (_, labels), v in
                           scrape(self.producer.address).moved(before, failures).items()
                           if dict(labels)["cause"] == "timeout") > 0
            self.until(timeouts)
            moved = scrape(self.producer.address).moved(before, failures)
        finally:
            os.kill(pid, signal.SIGCONT)
        causes = {(dict(labels)["operation"], dict(labels)["cause"]) for _, labels in moved}
        # After a while its connection counts as broken, and when its lease has run out the ring has no address of it.
        self.assertIn(("write", "timeout"), causes)
        self.assertLessEqual(causes, {("write", cause)
                                      for cause in ("timeout", "channel_broken", "unreachable", "no_address")})
        self.until(lambda: scrape(self.processes()["scheduler"]).value("tailcast_cache_whole_replicas") == 4)


if __name__ == "__main__":
    main()
