#!/usr/bin/env bash
# Two cells over five hosts, on one machine: a host is a network namespace with an address, a loopback, processes and a
# /tmp of its own, and sees of the others' folders nothing. Ceph, on a sixth one, is between the hosts of a cell. What is
# done to each host here is what docs/ops/cluster.md says for a real one: folders, key, configuration, processes.
#
#   hosts.sh start DIR             make all of it in DIR, which must not be there; returns when all processes serve
#   hosts.sh on DIR HOST CMD...    run a command on a host
#   hosts.sh kill DIR HOST         kill -9 of everything on it; the network tells the others that it is gone
#   hosts.sh cut DIR HOST          pull its cable, then kill -9: nobody is told anything, as when its power fails
#   hosts.sh boot DIR HOST         it comes back, and its processes are started again
#   hosts.sh stop DIR              end all of it; DIR stays
#
#   hosts.sh start /tmp/five && hosts.sh on /tmp/five us-1 tailcast status --cell 10.77.1.1:7400
#
# Needs root, iproute2, util-linux, and Debian's ceph-mon ceph-mgr ceph-osd ceph-common. TAILCAST: the binary
# (build/tailcast). DIR/HOST is the host's disk, which it has as /srv.
set -euo pipefail

# host, address, cell, its processes: the first part of a name is its role. A cell's caches are on three hosts where it
# has them, so that one that dies takes one of three replicas with it.
HOSTS='
us-1   10.77.1.1  us  scheduler cache-1
us-2   10.77.1.2  us  cache-2 reader-1
us-3   10.77.1.3  us  cache-3 reader-2
eu-1   10.77.2.1  eu  scheduler cache-1 writer-1
eu-2   10.77.2.2  eu  cache-2 cache-3 writer-2
store  10.77.9.1  -
'
declare -rA SCHEDULER=([us]=10.77.1.1:7400 [eu]=10.77.2.1:7400)
readonly CACHES='[cache-1, cache-2, cache-3]'

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
die() { printf 'hosts.sh: %s\n' "$*" >&2; exit 1; }
(($# >= 2)) || usage
readonly COMMAND=$1 DIR=$(realpath -m "$2")
shift 2
ROOT=$(realpath "$(dirname "$0")/../..")
readonly ROOT
TAILCAST=$(realpath "${TAILCAST:-$ROOT/build/tailcast}")
readonly TAILCAST
((EUID == 0)) || die "network namespaces need root"
for program in ip unshare nsenter ceph-mon ceph-osd; do
  command -v "$program" >/dev/null || die "no $program on this machine"
done

# field HOST N: of the table above; processes_of HOST.
field() { awk -v host="$1" -v n="$2" '$1 == host { print $n }' <<<"$HOSTS"; }
processes_of() { awk -v host="$1" '$1 == host { for (i = 4; i <= NF; i++) print $i }' <<<"$HOSTS"; }
all_hosts() { awk 'NF { print $1 }' <<<"$HOSTS"; }

# ---------------------------------------------------------------------------------------- hosts

# A host, and the switch, is as long as its first process is; with it all others end.
pid_of() { cat "$DIR/$1.pid" 2>/dev/null || die "no host $1 in $DIR"; }
on() { nsenter --target "$(pid_of "$1")" --all --wd=/ -- "${@:2}"; }

# power_on NAME [FOLDER]: namespaces of its own; FOLDER is its /srv, and DIR is hidden from it.
power_on() {
  local name=$1 folder=${2:-}
  rm -f "$DIR/$name.up"
  mkfifo "$DIR/$name.up"
  # shellcheck disable=SC2016
  setsid unshare --net --mount --pid --uts --ipc --fork --kill-child --mount-proc bash -c '
    exec 9>"$2/$1.up"
    hostname "$1"
    ip link set lo up
    [[ -z $3 ]] || mount --bind "$3" /srv
    mount -t tmpfs tmpfs /tmp
    [[ $2 == /tmp/* ]] || mount -t tmpfs tmpfs "$2"
    echo up >&9
    exec sleep infinity 9>&-' host "$name" "$DIR" "$folder" </dev/null >>"$DIR/$name.log" 2>&1 &
  local unshare_pid=$!
  read -r _ <"$DIR/$name.up" || die "$name does not start: $(cat "$DIR/$name.log")"
  rm "$DIR/$name.up"
  tr -d ' ' <"/proc/$unshare_pid/task/$unshare_pid/children" >"$DIR/$name.pid"
}

# A cable from a host to the switch.
plug_in() {
  local host=$1
  nsenter --target "$(pid_of switch)" --net ip link add "$host" type veth peer name eth0 netns "$(pid_of "$host")"
  nsenter --target "$(pid_of switch)" --net ip link set "$host" master bridge up
  on "$host" ip addr add "$(field "$host" 2)/16" dev eth0
  on "$host" ip link set eth0 up
}
pull_cable() { nsenter --target "$(pid_of switch)" --net ip link set "$1" down; }

power_off() {
  local pid
  pid=$(pid_of "$1")
  kill -9 "$pid" 2>/dev/null || true
  while [[ -e /proc/$pid ]]; do sleep 0.02; done
  rm -f "$DIR/$1.pid"
}

# ------------------------------------------------------------------------------- what a host has

# Each cell has a pool, and a cephx key that is good for it alone; readers have one that may only read.
start_ceph() {
  local cell
  cp "$ROOT/src/app/ceph_cluster.sh" "$DIR/store/"
  on store bash /srv/ceph_cluster.sh start /srv/ceph 10.77.9.1 3
  for cell in "${!SCHEDULER[@]}"; do
    on store bash /srv/ceph_cluster.sh pool /srv/ceph "tailcast-$cell"
    on store bash /srv/ceph_cluster.sh key /srv/ceph "$cell" "tailcast-$cell" rw
    on store bash /srv/ceph_cluster.sh key /srv/ceph "$cell-readers" "tailcast-$cell" r
  done
}

topology() {
  cat <<YAML
version: 1
clusters:
  - {name: us, scheduler: "${SCHEDULER[us]}", cell_key: /srv/etc/cell.key}
  - {name: eu, scheduler: "${SCHEDULER[eu]}", cell_key: /srv/etc/cell.key}
links:
  - {from: us, to: eu, usd_per_gb: 0.02, rtt_ms: 1, both: true}
YAML
}

# A process' configuration. Its ports are fixed, so that a firewall can know them: docs/ops/cluster.md has the table.
config() {
  local host=$1 name=$2 at=$3 cell address
  cell=$(field "$host" 3)
  address=$(field "$host" 2)
  cat <<YAML
version: 1
cell: $cell
name: $name
store: "ceph:/srv/etc/ceph.conf?pool=tailcast-$cell&user=$cell"
scheduler: "${SCHEDULER[$cell]}"
cell_key: /srv/etc/cell.key
listen: "$address:$((7400 + at))"
metrics: "$address:$((9400 + at))"
topology: /srv/etc/topology.yaml
profile: low-latency
caches: $CACHES
cache: {data_bytes: 64MB, fabric_listen: "$address:$((7500 + 10 * at))", run_dir: /srv/run}
YAML
}

# A host's disk, as made by hand or by your tool of configuration.
furnish() {
  local host=$1 cell etc=$DIR/$1/etc name at=0
  cell=$(field "$host" 3)
  mkdir -p "$etc" "$DIR/$host"/{run,log}
  cp "$DIR/$cell.key" "$etc/cell.key"
  cp "$DIR/store/ceph/client.$cell.keyring" "$etc/ceph.client.$cell.keyring"
  cp "$DIR/store/ceph/client.$cell-readers.keyring" "$etc/ceph.client.$cell-readers.keyring"
  {
    printf '[global]\n'
    grep -E '^(fsid|mon host) =' "$DIR/store/ceph/ceph.conf"
    # shellcheck disable=SC2016
    printf 'keyring = /srv/etc/ceph.$name.keyring\n'
  } >"$etc/ceph.conf"
  topology >"$etc/topology.yaml"
  for name in $(processes_of "$host"); do config "$host" "$name" $((++at)) >"$etc/$name.yaml"; done
}

# What systemd does on a real host (docs/ops/tailcast@.service), except that nothing is started again here.
start_processes() {
  local host=$1 name
  for name in $(processes_of "$host"); do
    setsid nsenter --target "$(pid_of "$host")" --all --wd=/ -- \
      "$TAILCAST" run --role "${name%%-*}" --config "/srv/etc/$name.yaml" \
      </dev/null >>"$DIR/$host/log/$name.log" 2>&1 &
  done
}

# Until all processes of a cell have registered and answer.
wait_until_ready() {
  local cell=$1 wanted i
  wanted=$(awk -v cell="$cell" '$3 == cell { n += NF - 3 } END { print n }' <<<"$HOSTS")
  for ((i = 0; i < 150; i++)); do
    if (($(on "$cell-1" "$TAILCAST" status --cell "${SCHEDULER[$cell]}" --json 2>/dev/null |
      python3 -c 'import json, sys
cell = json.load(sys.stdin)["cells"][0]
print(sum(p["state"] == "up" for p in cell["processes"]))' 2>/dev/null || echo 0) >= wanted)); then return; fi
    sleep 0.2
  done
  die "the cell $cell is not ready: $(tail -n 3 "$DIR/$cell"-*/log/*.log)"
}

# -------------------------------------------------------------------------------------- commands

start() {
  local host cell
  [[ ! -e $DIR ]] || die "$DIR is there already"
  mkdir -p "$DIR"
  trap 'stop' ERR
  power_on switch
  nsenter --target "$(pid_of switch)" --net ip link add bridge type bridge
  nsenter --target "$(pid_of switch)" --net ip link set bridge up
  for host in $(all_hosts); do
    mkdir "$DIR/$host"
    power_on "$host" "$DIR/$host"
    plug_in "$host"
  done
  start_ceph
  for cell in "${!SCHEDULER[@]}"; do "$TAILCAST" key "$DIR/$cell.key" >/dev/null; done
  for host in $(all_hosts); do
    [[ $host == store ]] && continue
    furnish "$host"
    start_processes "$host"
  done
  for cell in "${!SCHEDULER[@]}"; do wait_until_ready "$cell"; done
}

stop() {
  local file
  for file in "$DIR"/*.pid; do
    [[ -e $file ]] || continue
    power_off "$(basename "$file" .pid)"
  done
}

case $COMMAND in
  start) start ;;
  on)
    (($# >= 2)) || usage
    host=$1
    shift
    [[ $1 != tailcast ]] || set -- "$TAILCAST" "${@:2}"
    pid=$(pid_of "$host")
    exec nsenter --target "$pid" --all --wd=/ -- "$@" ;;
  kill)
    (($# == 1)) || usage
    power_off "$1" ;;
  cut)
    (($# == 1)) || usage
    pull_cable "$1"
    power_off "$1" ;;
  boot)
    (($# == 1)) || usage
    nsenter --target "$(pid_of switch)" --net ip link del "$1" 2>/dev/null || true
    power_on "$1" "$DIR/$1"
    plug_in "$1"
    start_processes "$1" ;;
  stop) stop ;;
  *) usage ;;
esac
