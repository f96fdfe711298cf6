"""docs/ops: the alerts and the dashboard are what Prometheus takes (promtool says so), and every metric and label that
they name is one that a running deployment with a producer and consumers shows."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest

from demo_test import Memcached
from harness import ONE_CELL, TIME_FACTOR, SystemTest, Up, main, run
from metrics_test import Client, scrape

OPS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "ops"
TWO_CELLS = """version: 1
clusters:
  - {name: a}
  - {name: b}
links:
  - {from: a, to: b}
  - {from: b, to: a}
"""
PROMTOOL = shutil.which("promtool")


def promtool(*args):
    done = subprocess.run([PROMTOOL, *args], cwd=OPS, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def dashboard():
    """[(panel, expression)], variables replaced by what takes all."""
    found = []
    for panel in json.loads((OPS / "dashboard.json").read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", []):
            found.append((panel["title"], target["expr"].replace("$__rate_interval", "5m").replace("$cell", ".+")
                          .replace("$stream", ".+")))
    return found


def alerts():
    """[(alert, expression)]"""
    text = re.sub(r"\n\s+#.*", "", (OPS / "tailcast.rules.yml").read_text(encoding="utf-8"))
    return [(name, expression) for name, expression in
            re.findall(r"- alert: (\w+)\n\s+expr: (?:>\n)?(.*?)\n\s+(?:for|labels):", text, re.S)]


class Files(unittest.TestCase):
    @unittest.skipUnless(PROMTOOL, "promtool is not installed (Debian's package prometheus): alerts are not checked by it")
    def test_promtool_takes_the_alerts_their_tests_and_the_configuration(self):
        for args in (("check", "rules", "tailcast.rules.yml"), ("test", "rules", "tailcast.rules_test.yml"),
                     ("check", "config", "prometheus.yml")):
            code, said = promtool(*args)
            self.assertEqual(code, 0, said)

    @unittest.skipUnless(PROMTOOL, "promtool is not installed (Debian's package prometheus): the dashboard is not checked by it")
    def test_promtool_takes_each_expression_of_the_dashboard(self):
        rules = [{"record": f"panel:{i}", "expr": expression} for i, (_, expression) in enumerate(dashboard())]
        self.assertGreater(len(rules), 15)
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
            json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)  # JSON is YAML
            file.flush()
            code, said = promtool("check", "rules", file.name)
        self.assertEqual(code, 0, said)

    def test_each_alert_is_explained(self):
        explained = (OPS / "monitoring.md").read_text(encoding="utf-8")
        self.assertGreater(len(alerts()), 12)
        for name, _ in alerts():
            self.assertIn(f"| `{name}` |", explained)


class Monitoring(SystemTest):
    @classmethod
    def setUpClass(cls):
        cls.up = Up(TWO_CELLS)
        code, _, err = run("stream", "create", "--dir", cls.up.dir, "--cluster", "a", "--stream", "s")
        assert code == 0, err
        # Who begins at the end of a shard without a file begins where its first file is when it comes.
        code, _, err = run("produce", "--dir", cls.up.dir, "--stream", "s", stdin=b"first\n")
        assert code == 0, err
        code, _, err = run("consume", "--dir", cls.up.dir, "--cluster", "b", "--stream", "s", "--count", "1")
        assert code == 0, err
        cls.producer = Client("produce", "--dir", cls.up.dir, "--stream", "s")
        cls.consumer = Client("consume", "--dir", cls.up.dir, "--cluster", "b", "--stream", "s")
        cls.monitor = Client("monitor", "--dir", cls.up.dir, "--cluster", "b", "--stream", "s")

    @classmethod
    def tearDownClass(cls):
        cls.producer.close()
        cls.consumer.close()
        cls.monitor.close()
        assert cls.up.close() == 0

    def targets(self, up=None):
        up = up or self.up
        file = os.path.join(up.root, "targets.json")
        code, out, err = run("status", "--dir", up.dir, "--targets", file)
        self.assertEqual((code, out), (0, b""), err)
        return json.loads(pathlib.Path(file).read_text())

    def samples(self, up=None):
        """[(name, labels)] of all processes, those of the cells with what the targets say of them."""
        found = []
        for one in self.targets(up):
            page = scrape(one["targets"][0])
            found += [(name, {**dict(labels), **one["labels"], "instance": one["targets"][0], "job": "tailcast"})
                      for name, labels in page.samples]
            found.append(("up", {**one["labels"], "instance": one["targets"][0], "job": "tailcast"}))
        for address in (self.producer.address, self.consumer.address, self.monitor.address):
            found += [(name, {**dict(labels), "instance": address, "job": "tailcast-users"})
                      for name, labels in scrape(address).samples]
        return found

    def test_each_process_is_a_target_and_a_cell_that_is_away_stays_one(self):
        targets = self.targets()
        names = {(one["labels"]["cell"], one["labels"]["process"]) for one in targets}
        for cell in self.up.status()["cells"]:
            for process in cell["processes"]:
                self.assertIn((cell["name"], process["name"]), names)
        self.assertEqual({one["labels"]["role"] for one in targets}, {"cache", "reader", "scheduler", "writer"})
        self.check_fails(1, ["--targets", "/nowhere/targets.json"], "status", "--dir", self.up.dir, "--targets",
                         "/nowhere/targets.json")

    def test_a_running_deployment_shows_every_metric_and_label_that_an_alert_or_the_dashboard_names(self):
        for client in (self.consumer, self.monitor):  # what is published from now on has a delay
            self.until(client, "tailcast_consumer_shards", 1)
            self.until(client, "tailcast_consumer_shards", 0, state="locating")
        self.producer.publish("message\n" * 1000)
        self.until(self.consumer, "tailcast_consumer_delay_seconds_count", 1000)
        self.until(self.producer, "tailcast_producer_commit_seconds_count", 1000)
        # It compares with the source, which counts in nothing else.
        self.until(self.monitor, "tailcast_consumer_delay_seconds_count", 1000)
        self.until(self.monitor, "tailcast_consumer_messages_total", 1000)
        self.until(self.monitor, "tailcast_monitor_messages_total", 1000, result="compared")
        self.assertEqual(scrape(self.monitor.address).value("tailcast_monitor_messages_total"), 1000)
        samples = self.samples()
        with Memcached(3) as servers:
            up = Up(ONE_CELL, "--cache", servers.address(), "--readers", "1", "--writers", "1")
            self.addCleanup(up.close)
            memcached = self.samples(up)
            names = {name for name, _ in memcached}
            self.assertIn("tailcast_cache_replicas", names)
            self.assertNotIn("tailcast_cache_whole_replicas", names, "nobody knows, and an alert would be false")
            samples += [(name, labels) for name, labels in memcached if "memcached" in name]
            servers.processes[0].kill()
            run("stream", "create", "--dir", up.dir, "--stream", "s", "--cluster", "here")
            code, _, err = run("produce", "--dir", up.dir, "--stream", "s", stdin=b"message\n" * 1000)
            self.assertEqual(code, 0, err)
            self.assertRegex(err, re.escape(servers.paths[0]) + ".* refuses, breaks off or does not answer")
        hops = {(labels["cell"], labels["to"], labels["layer"]) for name, labels in samples
                if name == "tailcast_reader_hop_seconds_count"}
        self.assertEqual(hops, {("a", "b", "primary"), ("a", "b", "cache")})
        by_name = {}
        for name, labels in samples:
            by_name.setdefault(name, []).append(labels)
        for title, expression in [*alerts(), *dashboard()]:
            selected = re.findall(r"\b(up|tailcast_\w+)(?:\{([^}]*)\})?", expression)
            self.assertTrue(selected, title)
            everywhere = None
            for name, matchers in selected:
                with self.subTest(of=title, metric=name):
                    series = by_name.get(name, [])
                    self.assertTrue(series, "nobody shows it")
                    matching = [labels for labels in series if self.matches(labels, matchers)]
                    # What is only shown once it has happened is none of these.
                    self.assertTrue(matching, f"{matchers} is of none of {series[:3]}")
                    have = set.intersection(*map(set, matching))
                    everywhere = have if everywhere is None else everywhere | have
            for by in re.findall(r"\bby \(([^)]*)\)", expression):
                with self.subTest(of=title, by=by):
                    self.assertLessEqual({label.strip() for label in by.split(",")}, everywhere or set())

    def until(self, client, name, value, **labels):
        end = time.monotonic() + 30 * TIME_FACTOR
        while scrape(client.address).value(name, stream="s", **labels) != value:
            self.assertLess(time.monotonic(), end, f"{name} came to {value}")
            time.sleep(0.05)

    def test_a_monitor_of_no_stream_or_of_one_that_is_deleted_ends_and_says_so(self):
        stream = "Orders.EU"  # capitals and dots are letters as others
        code, _, err = run("stream", "create", "--dir", self.up.dir, "--cluster", "a", "--stream", stream)
        self.assertEqual(code, 0, err)
        for cluster in ("a", "b"):
            self.check_fails(1, [f"did you mean '{stream}'"], "monitor", "--dir", self.up.dir, "--cluster", cluster,
                             "--stream", "orders.eu")
        monitor = Client("monitor", "--dir", self.up.dir, "--cluster", "a", "--stream", stream)
        end = time.monotonic() + 30 * TIME_FACTOR
        while scrape(monitor.address).value("tailcast_consumer_shards", stream=stream) != 1:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        code, _, err = run("stream", "delete", "--dir", self.up.dir, "--stream", stream, "--yes")
        self.assertEqual(code, 0, err)
        self.assertEqual(monitor.process.wait(timeout=20 * TIME_FACTOR), 1)

    def matches(self, labels, matchers):
        for label, how, value in re.findall(r'(\w+)(=~|!=|=)"([^"]*)"', matchers):
            has = labels.get(label, "")
            if {"=": has == value, "!=": has != value, "=~": re.fullmatch(value, has) is not None}[how] is False:
                return False
        return True


if __name__ == "__main__":
    main()
