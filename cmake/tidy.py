#!/usr/bin/env python3
"""clang-tidy over the sources of a configured build: ./dev check calls it.

  tidy.py BUILD FILE.cc...

One line per file as it ends; a finding of a header is shown once, though every source that includes it
meets it. Exit code 0: nothing found; 1: findings; 2: bad usage.

A file that passed is left out the next time: BUILD/tidy holds the names of passed inputs, each a hash of
the file, the project's headers below it, its flags, .clang-tidy and clang-tidy itself.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import threading

ROOT = pathlib.Path(__file__).resolve().parent.parent
# They have no flags in the build, and those of another source fit them: what is built against an installed copy,
# and what is built where there is no RDMA.
BORROWED = {"examples/": "src/app/main.cc", "src/fabric/verbs_absent.cc": "src/fabric/connect.cc"}


def run(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace")


def read_flags(build):
    """Source, relative to the root -> the flags that matter to a parser."""
    flags = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])[1:]
        at = words.index("-o")
        # What gcc says of warnings, code and debug lines is the build's matter.
        flags[os.path.relpath(entry["file"], ROOT)] = [
            word for word in words[:at] + words[at + 2:]
            if not word.startswith(("-W", "-g", "-O", "-f")) and word not in ("-c", entry["file"])]
    return flags


def flags_of(file, flags):
    for folder, source in BORROWED.items():
        if file.startswith(folder):
            return flags.get(source)
    return flags.get(file)


def inputs_hash(file, flags, config):
    """None if the file does not compile; clang-tidy will say why."""
    listed = run("c++", *flags, "-MM", file)
    if listed.returncode:
        return None
    parts = hashlib.sha256(config)
    parts.update(" ".join(flags).encode())
    for name in listed.stdout.replace("\\\n", " ").split()[1:]:
        parts.update(hashlib.sha256((ROOT / name).read_bytes()).digest())
    return parts.hexdigest()


def findings(text):
    """The diagnostics of one run, each with its notes and its excerpt."""
    starts = [match.start() for match in re.finditer(r"^\S+?:\d+:\d+: (error|warning): |^error: ", text, re.M)]
    return [text[a:b].rstrip() for a, b in zip(starts, starts[1:] + [len(text)])]


def main(build, files):
    build = pathlib.Path(build).resolve()
    flags = read_flags(build)
    files = [os.path.relpath(file, ROOT) for file in files]
    strangers = [file for file in files if flags_of(file, flags) is None]
    if strangers:
        print("tidy.py: no target compiles", " ".join(strangers), file=sys.stderr)
        return 2
    passed = build / "tidy"
    passed.mkdir(exist_ok=True)
    config = (ROOT / ".clang-tidy").read_bytes() + run("clang-tidy", "--version").stdout.encode()
    lock = threading.Lock()
    shown, bad, done = set(), [], 0

    def check(file):
        nonlocal done
        own = flags_of(file, flags)
        key = inputs_hash(file, own, config)
        known = key is not None and (passed / key).exists()
        if not known:
            result = run("clang-tidy", "--quiet", file, "--", *own)
            found = findings(result.stdout)
            if result.returncode == 0 and key is not None:
                (passed / key).touch()
        with lock:
            done += 1
            ok = known or (result.returncode == 0 and key is not None)
            print(f"[{done}/{len(files)}] {file}{'' if ok else ': FINDINGS'}", flush=True)
            if ok:
                return
            bad.append(file)
            for text in found or [result.stdout + result.stderr or f"clang-tidy ended with {result.returncode}"]:
                place = text.replace(f"{ROOT}/include/tailcast/", "src/").replace(f"{ROOT}/", "")
                if place not in shown:
                    shown.add(place)
                    print(place, flush=True)

    # The largest first, so that none of them is alone at the end.
    order = sorted(files, key=lambda file: -(ROOT / file).stat().st_size)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for future in [pool.submit(check, file) for file in order]:
            future.result()
    if bad:
        print(f"clang-tidy: {len(shown)} findings, met in {len(bad)} of {len(files)} sources", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else 2)
    except KeyboardInterrupt:
        os._exit(130)
