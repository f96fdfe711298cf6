#!/usr/bin/env python3
"""Runs programs of this build in a User Mode Linux kernel that has soft RDMA devices, since hosts that build
and test have none. The kernel is a process; it sees the host's files read-only, so the programs run as they are.

  run.py kernel                                builds the kernel unless the cache folder has it; prints its path
  run.py test --device siw|rxe [--seconds N] [--memory 2G] [--built] -- COMMAND [ARGS] [+ COMMAND [ARGS]...]
                                               runs the commands in it as root, one after the other, in a network of
                                               its own with one RDMA device at 10.0.0.1 (TAILCAST_TEST_VERBS_HOST);
                                               exit code: of the first one that failed, 124 when they took too long,
                                               125 when the kernel failed; --built: builds no kernel

Exit code 77, with the reason: there is no kernel, and none can be made here, because its source can't be fetched or
programs that it is made with are missing. (What it is made of does not build: that is 1.)

Writable in it: /run (TMPDIR), /dev/shm, /mnt. The kernel lies in $XDG_CACHE_HOME/tailcast (~/.cache/tailcast) in a
folder named by its version and its configuration (kernel.config); it is made of Debian's package of the source, which
takes six minutes of one core once, and 2 GB beside it until it is done. siw is iWARP, rxe is RoCEv2.
"""
import argparse
import fcntl
import hashlib
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from itertools import pairwise

SOURCE = "linux-source-6.12"
CONFIG = pathlib.Path(__file__).with_name("kernel.config")
HOST = "10.0.0.1"
SKIPPED = 77
# What a kernel is made with, and what makes devices in it; by the Debian package that brings it.
BUILD_PROGRAMS = {"gcc": "build-essential", "make": "build-essential", "flex": "flex", "bison": "bison", "bc": "bc",
                  "xz": "xz-utils", "apt-get": "apt", "apt-cache": "apt", "dpkg-deb": "dpkg"}
DEVICE_PROGRAMS = {"ip": "iproute2", "rdma": "iproute2"}
BUILD_FILES = {"libelf.h": "libelf-dev"}


def say(text):
    print(f"== {text}", file=sys.stderr, flush=True)


def skip(reason):
    print(f"skipped: {reason}", file=sys.stderr, flush=True)
    sys.exit(SKIPPED)


def need(programs, files=()):
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = {package for program, package in programs.items() if shutil.which(program, path=path) is None}
    missing |= {package for name, package in dict(files).items() if not pathlib.Path("/usr/include", name).exists()}
    if missing:
        skip(f"RDMA tests in a kernel of their own need these Debian packages: {' '.join(sorted(missing))}")


def run(*command, folder=None, log=None, or_skip=False):
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log or subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode != 0:
        text = pathlib.Path(log.name).read_text(errors="replace") if log else done.stdout.decode(errors="replace")
        if or_skip:
            skip(f"{shlex.join(command)} failed: {text.strip()[-500:]}")
        sys.exit(f"run.py: {shlex.join(command)} failed:\n{text[-3000:]}")
    return "" if log else done.stdout.decode(errors="replace")


def kernel(built=False):
    """The kernel's path; builds it first if need be (`built`: it must be there). Of several that ask at a time, one
    builds."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "tailcast"
    cache.mkdir(parents=True, exist_ok=True)
    config = hashlib.sha256(CONFIG.read_bytes()).hexdigest()[:12]
    with open(cache / "uml.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ready = sorted(cache.glob(f"uml-{SOURCE.rpartition('-')[2]}.*-{config}/linux"))
        if ready:
            return ready[-1]
        if built:
            skip(f"no kernel in {cache}; {pathlib.Path(__file__).name} kernel builds it")
        need(BUILD_PROGRAMS, BUILD_FILES)
        version = next((line.split()[1] for line in run("apt-cache", "policy", SOURCE).splitlines()
                        if line.strip().startswith("Candidate:")), "(none)")
        if version == "(none)":
            skip(f"no package {SOURCE}: apt-get update, or add the security archive of Debian 12")
        target = cache / f"uml-{version.partition('-')[0]}-{config}"
        say(f"building a kernel for the RDMA tests, once: {target}")
        with tempfile.TemporaryDirectory(dir=cache, prefix="uml-build-") as scratch:
            build(pathlib.Path(scratch), version)
            target.mkdir(exist_ok=True)
            # Complete or not there.
            shutil.copy2(f"{scratch}/src/linux", target / "linux.part")
            os.rename(target / "linux.part", target / "linux")
        return target / "linux"


def build(scratch, version):
    run("apt-get", "-o", "APT::Sandbox::User=root", "download", f"{SOURCE}={version}", folder=scratch,
        or_skip=True)
    run("dpkg-deb", "-x", str(next(scratch.glob("*.deb"))), str(scratch / "deb"))
    source = scratch / "src"
    source.mkdir()
    run("tar", "-xf", str(next((scratch / "deb/usr/src").glob("*.tar.xz"))), "-C", str(source), "--strip-components=1",
        "--exclude=*/drivers/gpu/drm/amd/include/*")
    make = ("nice", "-n", "10", "make", "ARCH=um", f"-j{os.cpu_count()}")
    run(*make, "allnoconfig", folder=source)
    run("scripts/kconfig/merge_config.sh", "-m", ".config", str(CONFIG), folder=source)
    run(*make, "olddefconfig", folder=source)
    have = (source / ".config").read_text().splitlines()
    lost = [line for line in CONFIG.read_text().splitlines()
            if line and not line.endswith("=n") and line not in have]
    if lost:
        sys.exit(f"run.py: {SOURCE} {version} does not take these lines of {CONFIG}: {' '.join(lost)}")
    with open(scratch / "make.log", "w") as log:
        run(*make, "linux", folder=source, log=log)


INIT = """#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sysfs /sys
for folder in /dev/shm /run; do mkdir -p $folder; mount -t tmpfs tmpfs $folder; done
mount -t hostfs -o {output} hostfs /mnt
(
  set -e
  ip link set lo up
  ip link add net0 type dummy
  ip link set net0 mtu 9000 up
  ip address add {host}/24 dev net0
  rdma link add {device}0 type {device} netdev net0
) || echo 125 >/mnt/status
if [ ! -e /mnt/status ]; then
  cd {folder}
  ulimit -n 65536
  ulimit -l unlimited
  export PATH={path} HOME=/run TMPDIR=/run {environment}
  status=0
  run() {{ "$@" || {{ code=$?; [ $status != 0 ] || status=$code; }}; }}
{commands}
  echo $status >/mnt/status
fi
exec {python} -c 'import ctypes; ctypes.CDLL(None).reboot(0x4321fedc)'
"""


def test(device, seconds, memory, built, words):
    need(DEVICE_PROGRAMS)
    linux = kernel(built)
    with tempfile.TemporaryDirectory(prefix="uml-") as output:
        environment = {name: value for name, value in os.environ.items() if name.startswith(("TAILCAST_", "GTEST_"))}
        environment["TAILCAST_TEST_VERBS_HOST"] = HOST
        init = pathlib.Path(output, "init")
        commands = [shlex.join(words[begin + 1:end]) for begin, end in pairwise(
            [-1, *(i for i, word in enumerate(words) if word == "+"), len(words)])]
        init.write_text(INIT.format(
            output=output, host=HOST, device=device, folder=shlex.quote(os.getcwd()),
            path=shlex.quote(os.environ["PATH"]), python=sys.executable,
            commands="\n".join(f"  run {command}" for command in commands),
            environment=" ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())))
        init.chmod(0o755)
        processors = sorted(os.sched_getaffinity(0))
        processor = processors[0] if device == "siw" else processors[-1]
        process = subprocess.Popen(
            [linux, f"mem={memory}", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", f"init={init}",
             "con=null", "con0=fd:0,fd:1", "ssl=null", "quiet"],
            stdin=subprocess.DEVNULL, start_new_session=True, env={**os.environ, "TMPDIR": "/dev/shm"},
            # This kernel and its processes take turns, each of them a process here: on one processor
            # none has to be woken on another, which takes several times as long.
            preexec_fn=lambda: os.sched_setaffinity(0, {processor}))
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            say(f"not done within {seconds} s: {shlex.join(words)}")
            return 124
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        status = pathlib.Path(output, "status")
        if not status.exists():
            say("the kernel ended before the command did")
            return 125
        return int(status.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_subparsers(dest="what", required=True)
    what.add_parser("kernel")
    tests = what.add_parser("test")
    tests.add_argument("--device", choices=("siw", "rxe"), required=True)
    tests.add_argument("--seconds", type=float, default=300)
    tests.add_argument("--memory", default="2G")
    tests.add_argument("--built", action="store_true")
    tests.add_argument("command", nargs="+")
    options = parser.parse_args()
    if options.what == "kernel":
        print(kernel())
        return 0
    return test(options.device, options.seconds, options.memory, options.built, options.command)


if __name__ == "__main__":
    sys.exit(main())
