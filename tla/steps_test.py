#!/usr/bin/env python3
"""How step logs become traces of the models."""

import json
import tempfile
import unittest
from pathlib import Path

import steps

DIR = "streams/flights/00000000000000ab/00003"
STEM = "0000000007-0000000000000001-0000000000000000-00000000000000"
FILE = f"{DIR}/{STEM}"


def line(t, event, cell="asia-east", **fields):
    return {"t": t, "cell": cell, "process": "p", "event": event, **fields}


def of_file(t, event, **fields):
    return line(t, event, file=FILE, part=0, **fields)


def lock(t, event, s, k, saw=None, **fields):
    term = (s << steps.ATTEMPT_BITS) + k
    if saw is not None:
        fields |= {"sawTerm": (saw[0] << steps.ATTEMPT_BITS) + saw[1] if saw[0] else 0, "sawState": saw[2]}
    return line(t, event, file=FILE, layer=1, term=term, **fields)


class Logs(unittest.TestCase):
    def read(self, *texts):
        with tempfile.TemporaryDirectory() as folder:
            for number, text in enumerate(texts):
                (Path(folder) / f"{number}.jsonl").write_text(text)
            return steps.read_logs(Path(folder).glob("*.jsonl"))

    def test_logs_are_merged_by_their_stamps(self):
        one = "".join(json.dumps(line(t, "E", n=t)) + "\n" for t in (5, 2, 9))
        two = "".join(json.dumps(line(t, "E", n=t)) + "\n" for t in (1, 7))
        self.assertEqual([item["n"] for item in self.read(one, two)], [1, 2, 5, 7, 9])

    def test_half_a_line_of_a_killed_process_is_left_out(self):
        self.assertEqual(len(self.read(json.dumps(line(1, "E")) + "\n{\"t\":2,\"ce")), 1)

    def test_what_is_no_step_is_named_with_its_line(self):
        with self.assertRaisesRegex(steps.LogError, r"0\.jsonl:2: no step"):
            self.read(json.dumps(line(1, "E")) + "\n{\"t\":2}\n")


class DuelingWriters(unittest.TestCase):
    LINES = [
        of_file(1, "WriterStart", writer="a-1", at=0, chunkSize=4096),
        line(2, "PrimaryAppend", dir=DIR, name=f"{STEM}.data", len=10),
        line(2, "PrimaryAppend", dir=DIR, name=f"{STEM}.index", len=32),
        line(2, "PrimaryAppend", dir="registry", name="0000000001.log", len=32),
        line(2, "PrimaryAppend", cell="us-central", dir=DIR, name=f"{STEM}.data", len=99),
        of_file(3, "ChunkWrite", writer="a-1", chunk=0, len=10),
        of_file(4, "ConsumerStart", consumer="x", at=0, chunkSize=512),
        of_file(5, "ConsumerStart", consumer="y", at=7, chunkSize=512),
        of_file(6, "WriterStart", writer="b-9", at=0, chunkSize=4096),
        of_file(7, "Deliver", consumer="x", to=10),
    ]

    def traces(self, lines=None):
        return {trace.name: trace for trace in steps.split(lines or self.LINES)}

    def test_a_trace_is_of_one_cell_file_part_and_consumer(self):
        traces = self.traces()
        self.assertEqual(sorted(traces), ["asia-east.flights-3-7.data.1", "asia-east.flights-3-7.data.2"])
        self.assertEqual(traces["asia-east.flights-3-7.data.1"].events, [
            {"event": "Config", "chunkSize": 4096, "source": False},
            {"event": "WriterStart", "writer": 1, "at": 0},
            {"event": "PrimaryAppend", "len": 10},
            {"event": "ChunkWrite", "writer": 1, "chunk": 0, "len": 10},
            {"event": "ConsumerStart", "at": 0},
            {"event": "WriterStart", "writer": 2, "at": 0},
            {"event": "Deliver", "to": 10}])
        other = traces["asia-east.flights-3-7.data.2"].events
        self.assertIn({"event": "ConsumerStart", "at": 7}, other)
        self.assertNotIn({"event": "Deliver", "to": 10}, other)

    def test_the_source_is_the_cell_whose_writer_says_so(self):
        lines = [of_file(1, "WriterStart", writer="a-1", at=0, chunkSize=4096, source=True), *self.LINES[1:]]
        self.assertTrue(all(trace.events[0]["source"] for trace in self.traces(lines).values()))

    def test_two_chunk_sizes_are_an_error(self):
        with self.assertRaisesRegex(steps.LogError, r"chunk sizes \[512, 4096\]"):
            self.traces([*self.LINES, of_file(9, "WriterStart", writer="c", at=0, chunkSize=512)])

    def test_each_event_knows_its_line_of_the_log(self):
        trace = self.traces()["asia-east.flights-3-7.data.1"]
        self.assertEqual(trace.source[-1]["process"], "p")
        self.assertEqual(len(trace.source), len(trace.events))


class Locks(unittest.TestCase):
    def test_operations_are_numbered_and_scheduled_before_their_first_look(self):
        traces = steps.split([
            lock(1, "Look", 70, 30, saw=(0, 0, 0), next="take"), lock(2, "Acquire", 70, 30),
            lock(3, "Look", 90, 4, saw=(70, 30, 1), next="wait"),
            lock(4, "GoWithout", 70, 31), lock(5, "Seize", 90, 4, saw=(70, 30, 2), next="take")])
        self.assertEqual([trace.name for trace in traces], ["asia-east.flights-3-7.cache-lock"])
        self.assertEqual(traces[0].events, [
            {"event": "Begin"},
            {"event": "Schedule", "s": 1, "k": 1},
            {"event": "Look", "s": 1, "k": 1, "saw": [0, 0, 0], "next": "take"},
            {"event": "Acquire", "s": 1, "k": 1},
            {"event": "StartScheduler", "s": 2},
            {"event": "Schedule", "s": 2, "k": 1},
            {"event": "Look", "s": 2, "k": 1, "saw": [1, 1, 1], "next": "wait"},
            {"event": "Schedule", "s": 1, "k": 2},
            {"event": "CacheAway"}, {"event": "GoWithout", "s": 1, "k": 2}, {"event": "CacheBack"},
            {"event": "Seize", "s": 2, "k": 1, "saw": [1, 1, 2]}])


class Batches(unittest.TestCase):
    def make(self, size, group=(), interest=0, spec="Locks"):
        trace = steps.Trace(spec, f"{spec}-{size}-{interest}")
        trace.group, trace.interest = group, interest
        for number in range(size):
            trace.add({"event": str(number)})
        return trace

    def test_a_batch_is_of_one_group_and_bounded(self):
        traces = [self.make(n, group) for n in (3, 4, 5, 20) for group in ((1,), (2,))]
        batches = list(steps.batches(traces, 10))
        self.assertEqual(sorted(len(t.events) for b in batches for t in b), [3, 3, 4, 4, 5, 5, 20, 20])
        for batch in batches:
            self.assertEqual(len({t.group for t in batch}), 1)
            self.assertTrue(len(batch) == 1 or sum(len(t.events) for t in batch) <= 10)

    def test_a_sample_has_the_rare_first_and_of_each_spec(self):
        traces = [self.make(5, interest=1), self.make(6, interest=9), self.make(4),
                  self.make(5, spec="DuelingWriters")]
        self.assertEqual([t.name for t in steps.sample(traces, 10)],
                         ["DuelingWriters-5-0", "Locks-6-9", "Locks-4-0"])


if __name__ == "__main__":
    unittest.main()
