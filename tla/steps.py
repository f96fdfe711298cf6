"""Splits the step logs of running processes (src/base/step_log.h) into traces of the models.

A log line is {"t": ..., "cell": ..., "process": ..., "event": ..., and the event's fields}. Logs of one
host, or of one simulation, are merged by t. DuelingWriters gets a trace for each (cell, file, part,
consumer): all events of the primary file and of the writers, and those of that consumer; a file that
nobody consumed gets one without. Locks gets one for each (cell, file, layer).

Names become small numbers, and fields that no model knows are dropped. What the log cannot tell is
added where it must have happened: Config, Begin; for Locks that an operation was scheduled, before its
first look, and that the cache was away around GoWithout.
"""

import json
from collections import defaultdict
from pathlib import Path

WRITER_EVENTS = {"WriterStart", "WriterJump", "ChunkWrite", "ChunkAck", "ChunkFail", "LengthPublish"}
CONSUMER_EVENTS = {"ConsumerStart", "PollCache", "PollPrimary", "ReadChunk", "ReadPrimary", "Deliver"}
LOCK_EVENTS = {"Look", "Await", "Seize", "Acquire", "GoWithout", "Check", "Release"}
FIELDS = ("at", "chunk", "len", "from", "to")
PARTS = {".data": 0, ".index": 1}
PART_NAMES = ("data", "index")
LAYER_NAMES = ("primary", "cache")
ATTEMPT_BITS = 24  # of a lock's term: stream::Term in src/stream/term.h


class LogError(Exception):
    """A log that is none."""


class Trace:
    """One trace: `events` as the trace spec wants them, `source` for each of them the line of the log."""

    def __init__(self, spec, name):
        self.spec, self.name = spec, name
        self.events, self.source = [], []
        self.group = ()      # traces of one group can be checked by one start of TLC
        self.interest = 0    # how much of what is rare it has

    def add(self, event, line=None):
        self.events.append(event)
        self.source.append(line)


def read_logs(paths):
    """All lines of the logs, in the order of their stamps; equal ones in the order of the files."""
    lines = []
    for path in sorted(str(p) for p in paths):
        with open(path, encoding="utf-8") as log:
            for number, text in enumerate(log, 1):
                # A process that was killed may have left half a line at the end.
                if not text.endswith("\n"):
                    break
                try:
                    line = json.loads(text)
                    lines.append((line["t"], line["event"], line["cell"], line))
                except (json.JSONDecodeError, KeyError, TypeError) as error:
                    raise LogError(f"{path}:{number}: no step: {error}") from error
    lines.sort(key=lambda item: item[0])
    return [item[3] for item in lines]


def split(lines):
    """The traces of all models, in a fixed order."""
    files = defaultdict(list)  # (cell, file, part) -> lines
    locks = defaultdict(list)  # (cell, file, layer) -> lines
    for line in lines:
        event = line["event"]
        if event == "PrimaryAppend":
            for suffix, part in PARTS.items():
                if line["name"].endswith(suffix):
                    files[line["cell"], f"{line['dir']}/{line['name'][:-len(suffix)]}", part].append(line)
        elif event in LOCK_EVENTS:
            locks[line["cell"], line["file"], line["layer"]].append(line)
        elif event in WRITER_EVENTS or event in CONSUMER_EVENTS:
            files[line["cell"], line["file"], line["part"]].append(line)
    traces = []
    for key in sorted(files):
        traces += dueling_traces(key, files[key])
    for key in sorted(locks):
        traces.append(lock_trace(key, locks[key]))
    return [trace for trace in traces if trace is not None]


def short_name(cell, file):
    stream, _, shard, stem = file.split("/")[1:5]
    return f"{cell}.{stream}-{int(shard)}-{int(stem.split('-')[0])}"


def dueling_traces(key, lines):
    cell, file, part = key
    starts = [line for line in lines if line["event"] == "WriterStart"]
    consumers = sorted({line["consumer"] for line in lines if "consumer" in line})
    sizes = {line["chunkSize"] for line in starts or lines if "chunkSize" in line}
    if not starts and not consumers:
        return  # nobody cached it and nobody read it: nothing to check
    if len(sizes) != 1:
        raise LogError(f"{cell} {file} part {part}: chunk sizes {sorted(sizes)}; there must be one")
    config = {"event": "Config", "chunkSize": sizes.pop(),
              "source": any(line.get("source", False) for line in starts)}
    for number, consumer in enumerate(consumers or [None], 1):
        trace = Trace("DuelingWriters", f"{short_name(cell, file)}.{PART_NAMES[part]}.{number}")
        trace.group = (config["chunkSize"], config["source"])
        trace.add(config)
        writers, kinds = {}, defaultdict(int)
        for line in lines:
            if line.get("consumer", consumer) != consumer:
                continue
            event = {"event": line["event"]}
            if "writer" in line:
                event["writer"] = writers.setdefault(line["writer"], len(writers) + 1)
            event.update((field, line[field]) for field in FIELDS if field in line)
            kinds[line["event"]] += 1
            trace.add(event, line)
        missed = any(event["event"] == "ReadChunk" and event["len"] == 0 for event in trace.events)
        uncached = kinds["Deliver"] > 0 and kinds["ReadChunk"] == 0
        trace.interest = (10 * max(0, len(writers) - 1) + 20 * bool(kinds["ChunkFail"] + kinds["WriterJump"])
                          + 15 * missed + 12 * uncached + 5 * bool(kinds["ReadPrimary"])
                          + 2 * bool(kinds["ReadChunk"]))
        yield trace


def lock_trace(key, lines):
    cell, file, layer = key

    def name(term):
        return term >> ATTEMPT_BITS, term & ((1 << ATTEMPT_BITS) - 1)

    terms = {name(line["term"]) for line in lines} | {name(line["sawTerm"]) for line in lines if line.get("sawTerm")}
    schedulers = sorted({s for s, _ in terms})
    counts = {s: sorted(k for t, k in terms if t == s) for s in schedulers}

    def rank(term):
        s, k = name(term)
        return schedulers.index(s) + 1, counts[s].index(k) + 1

    trace = Trace("Locks", f"{short_name(cell, file)}.{LAYER_NAMES[layer]}-lock")
    trace.add({"event": "Begin"})
    started, scheduled = 1, defaultdict(int)
    for line in lines:
        s, k = rank(line["term"])
        while started < s:
            started += 1
            trace.add({"event": "StartScheduler", "s": started}, line)
        while scheduled[s] < k:
            scheduled[s] += 1
            trace.add({"event": "Schedule", "s": s, "k": scheduled[s]}, line)
        event = {"event": line["event"], "s": s, "k": k}
        if "sawTerm" in line:
            event["saw"] = [*rank(line["sawTerm"]), line["sawState"]] if line["sawTerm"] else [0, 0, 0]
        if "next" in line and line["event"] != "Seize":
            event["next"] = line["next"]
        if line["event"] == "GoWithout":
            trace.add({"event": "CacheAway"}, line)
        trace.add(event, line)
        if line["event"] == "GoWithout":
            trace.add({"event": "CacheBack"}, line)
    trace.interest = len(terms) + 3 * sum(line["event"] in ("Await", "Seize", "GoWithout") for line in lines)
    return trace


def write(trace, folder):
    """The trace as a file for `run.py trace`."""
    path = Path(folder) / f"{trace.name}.jsonl"
    with open(path, "w", encoding="utf-8") as out:
        for event in trace.events:
            out.write(json.dumps(event) + "\n")
    return path


def batches(traces, events_max):
    """Groups the traces so that each group is checked by one start of TLC."""
    groups = defaultdict(list)
    for trace in traces:
        groups[trace.spec, trace.group].append(trace)
    for group in groups.values():
        # Small files with small ones: a state is as large as the largest file of the batch.
        batch, size = [], 0
        for trace in sorted(group, key=lambda t: (len(t.events), t.name)):
            if batch and size + len(trace.events) > events_max:
                yield batch
                batch, size = [], 0
            batch.append(trace)
            size += len(trace.events)
        yield batch


def sample(traces, events_max):
    """Traces of about `events_max` events together, of each spec: the rare ones first, then others."""
    chosen = []
    for spec in sorted({trace.spec for trace in traces}):
        size = 0
        for trace in sorted((t for t in traces if t.spec == spec), key=lambda t: (-t.interest, t.name)):
            if size + len(trace.events) <= events_max:
                chosen.append(trace)
                size += len(trace.events)
    return chosen
