#!/usr/bin/env python3
"""The end-to-end benchmark's own logic, without the systems that it measures."""

import argparse
import json
import os
import pathlib
import sys
import tempfile
import time
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import kafka_system
import measure
import run


def consumed(messages, **more):
    return {"kind": "consume", "bytes": messages * 1000, "delay_cdf": [[10, messages]],
            "delay_us": {"count": messages}, "each": [{"messages": messages, "mb_per_s": 2.0, "p99_us": 10}],
            "began_us": 1000, "ended_us": 2000, "cpu_s": 1.0, "gaps": 0, "repeats": 0, "foreign": 0, "error": "", **more}


def produced(messages, **more):
    return {"kind": "produce", "messages": messages, "bytes": messages * 1000, "held_mb_per_s": 4.0,
            "acknowledge_us": {}, "cpu_s": 1.0, "error": "", **more}


class FakeSystem:
    """Its processes are shells that print what they are told."""
    name = "fake"

    def __init__(self, consume, produce=f"echo '{json.dumps(produced(5))}'"):
        self.commands = {"consume": consume, "produce": produce}
        self.streams, self.begun = [], 0

    def server_pids(self):
        return [os.getpid()]

    def begin(self, stream):
        self.streams.append(stream)
        self.begun += 1

    def end(self, stream):
        self.streams.remove(stream)

    def consume(self, stream, row):
        return ["sh", "-c", self.commands["consume"]]

    def produce(self, stream, row):
        return ["sh", "-c", self.commands["produce"]]


class Rows(unittest.TestCase):
    def measure(self, system, consumers=2):
        with tempfile.TemporaryDirectory() as folder:
            return measure.measure(system, "s", {"mode": "processes", "consumers": consumers}, folder)

    def consumer(self, *results):
        return "; ".join(["echo '{\"kind\": \"ready\"}'", *(f"echo '{json.dumps(r)}'" for r in results)])

    def test_a_row_adds_up_what_all_consumers_saw(self):
        row = self.measure(FakeSystem(self.consumer(consumed(5))), consumers=3)
        self.assertTrue(row["ok"])
        self.assertEqual((row["samples"], row["p50_ms"], row["consumer_cpu_s_per_gb"]), (15, 0.01, 3.0 / 15e-6))
        self.assertAlmostEqual(row["gbit_per_s"], 3 * 2.0 * 8 / 1e3)

    def test_servers_are_charged_from_the_first_message_to_the_last(self):
        sampler = measure.CpuSampler([os.getpid()], 1000)
        sampler.finish()
        sampler.samples = [(100, 1.0), (200, 1.5), (300, 4.0), (400, 4.5), (500, 9.0)]
        for begin, end, used in ((200, 400, 3.0), (250, 350, 3.0), (150, 301, 3.5), (0, 900, 8.0)):
            self.assertEqual(sampler.between(begin, end), used)

    def test_a_row_is_not_ok_when_a_message_is_missing_or_somebody_failed(self):
        for system, why in (
                (FakeSystem(self.consumer(consumed(4))), "2 of 2 consumers do not have 5 messages .one has 4"),
                (FakeSystem(self.consumer(consumed(5, error="broken"))), "2 of 2 .* failed: broken"),
                (FakeSystem(self.consumer(consumed(5)) + "; exit 1"), "2 of 2 .* failed: they say why above"),
                (FakeSystem(self.consumer(consumed(5, gaps=2))), "gaps: 4"),
                (FakeSystem(self.consumer(consumed(5)), f"echo '{json.dumps(produced(5, error='full'))}'"),
                 "the producer failed: full")):
            with self.subTest(system.commands):
                row = self.measure(system)
                self.assertFalse(row["ok"])
                self.assertEqual(len(row["wrong"]), 1)
                self.assertRegex(row["wrong"][0], why)

    def test_whoever_is_left_is_ended_when_a_consumer_does_not_start(self):
        # The first to come is ready and waits for ever, the second one is not.
        with tempfile.TemporaryDirectory() as folder:
            system = FakeSystem(f"mkdir {folder}/first 2>/dev/null || exit 1; echo '{{\"kind\": \"ready\"}}'; "
                                "exec sleep 1000")
            begun = time.monotonic()
            with self.assertRaisesRegex(measure.Failed, "did not become ready"):
                self.measure(system)
            self.assertLess(time.monotonic() - begun, 100)

    def test_the_stream_of_a_row_is_removed_after_it(self):
        system = FakeSystem(self.consumer(consumed(5)))
        self.measure(system)
        self.assertEqual((system.begun, system.streams), (1, []))

    def test_the_slowest_share_is_of_the_mean(self):
        self.assertEqual(measure.slowest_share([1.0, 3.0]), 0.5)
        self.assertEqual(measure.slowest_share([0.0]), 0)

    def test_percentiles_of_added_up_distributions(self):
        cdf = measure.add_cdfs([[[10, 90], [20, 100]], [[15, 100]]])
        self.assertEqual(cdf, [(10, 90), (15, 190), (20, 200)])
        self.assertEqual([measure.percentile(cdf, 200, q) for q in (0.4, 0.5, 0.99)], [10, 15, 20])
        self.assertEqual(measure.percentile([], 0, 0.5), 0)


class Plan(unittest.TestCase):
    def args(self, **given):
        return argparse.Namespace(**({"quick": False, "peers": [], "modes": None, "rates": None, "consumers": None,
                                      "seconds": 8, "warmup": 2} | given))

    def test_beside_a_peer_the_rows_are_those_that_compare_unless_others_are_asked_for(self):
        self.assertEqual(run.plan(self.args(peers=["kafka"])), run.BESIDE_PEERS)
        self.assertEqual(run.plan(self.args(peers=["kafka"], consumers="4", rates="max", modes="processes")),
                         [("processes", "max", 4)])
        self.assertEqual(len(run.plan(self.args())), 2 * 3 * 4)

    def test_each_load_meets_all_systems_before_the_next_load(self):
        a, b = FakeSystem(""), FakeSystem("")
        a.durability = "durable"
        rows = run.rows_of([("processes", 4.0, 1), ("processes", "max", 128)], [(a, ["shm", "tcp"]), (b, ["tcp"])],
                           self.args())
        self.assertEqual([(system is a, row["via"], row["consumers"]) for system, row in rows],
                         [(True, "shm", 1), (True, "tcp", 1), (False, "tcp", 1),
                          (True, "shm", 128), (True, "tcp", 128), (False, "tcp", 128)])
        self.assertEqual(rows[0][1]["durability"], "durable")
        self.assertGreater(rows[3][1]["idle"], rows[0][1]["idle"])


class Jars(unittest.TestCase):
    def test_the_digest_is_of_names_and_bytes(self):
        digests = set()
        for files in ({"a.jar": b"1"}, {"a.jar": b"2"}, {"b.jar": b"1"}, {"a.jar": b"1", "b.jar": b""}):
            with tempfile.TemporaryDirectory() as folder:
                for name, data in files.items():
                    pathlib.Path(folder, name).write_bytes(data)
                digests.add(kafka_system.digest(folder))
                pathlib.Path(folder, "notes.txt").write_text("not a jar")
                digests.add(kafka_system.digest(folder))
        self.assertEqual(len(digests), 4)

    def test_jars_that_are_not_those_are_refused_with_what_to_do(self):
        with tempfile.TemporaryDirectory() as cache:
            folder = pathlib.Path(cache, f"kafka-{kafka_system.VERSION}")
            folder.mkdir()
            with self.assertRaisesRegex(measure.Failed, f"{folder} .*delete the folder.*--kafka FOLDER"):
                kafka_system.fetch(cache)

    def test_without_mvn_it_says_what_is_missing_and_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as cache, mock.patch.dict(os.environ, {"PATH": cache}):
            with self.assertRaisesRegex(measure.Failed, "install maven.*--kafka FOLDER"):
                kafka_system.fetch(cache)
            self.assertEqual(os.listdir(cache), [])

    def test_a_fetch_that_fails_says_why_and_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as base:
            programs, cache = pathlib.Path(base, "bin"), pathlib.Path(base, "cache")
            programs.mkdir()
            mvn = programs / "mvn"
            mvn.write_text("#!/bin/sh\necho no route to the repository\nexit 1\n")
            mvn.chmod(0o755)
            with mock.patch.dict(os.environ, {"PATH": f"{programs}:{os.environ['PATH']}"}):
                with self.assertRaisesRegex(measure.Failed, "no route to the repository"):
                    kafka_system.fetch(cache)
            self.assertEqual(os.listdir(cache), [])


if __name__ == "__main__":
    unittest.main()
