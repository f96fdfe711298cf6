#!/usr/bin/env bash
# A small Ceph cluster on one host, for demos and tests: one monitor, one manager, OSDs on files, cephx on.
#
#   ceph_cluster.sh start DIR [ADDRESS] [OSDS]   make it, or start again what is not running; waits until all OSDs are up
#   ceph_cluster.sh pool DIR NAME...             make these pools where they are not there
#   ceph_cluster.sh key DIR USER POOL rwx|r      a key that is good for one pool: a cell's processes', or readers'
#   ceph_cluster.sh kill DIR                     kill -9 of every daemon
#   ceph_cluster.sh stop DIR                     end every daemon
#
# ADDRESS: 127.0.0.1 unless told; OSDS: 3. CEPH_OSD_BYTES: room of each OSD (8 GB; its file is sparse).
# Clients use DIR/ceph.conf. The daemons are those of Debian's ceph-mon, ceph-mgr, ceph-osd and ceph-common.
set -euo pipefail

usage() { printf 'usage: ceph_cluster.sh start|pool|key|kill|stop DIR ...\n' >&2; exit 2; }
die() { printf 'ceph_cluster.sh: %s\n' "$*" >&2; exit 1; }
(($# >= 2)) || usage
command=$1
dir=$(realpath -m "$2")
shift 2
conf=$dir/ceph.conf
for program in ceph-mon ceph-mgr ceph-osd ceph ceph-authtool monmaptool; do
  command -v "$program" >/dev/null ||
    die "no $program on this host; install Debian's ceph-mon ceph-mgr ceph-osd ceph-common"
done

# admin SECONDS ARGS...: the ceph program, bounded.
admin() { timeout "$1" ceph -c "$conf" --connect-timeout "$1" "${@:2}"; }

# Whether the daemon of this pid file runs.
runs() { [[ -e $1 ]] && kill -0 "$(cat "$1")" 2>/dev/null; }

free_port() {
  local port
  for port in $(shuf -i 10000-19000 -n 50); do
    (exec 3<>"/dev/tcp/$1/$port") 2>/dev/null || { echo "$port"; return; }
  done
  die "no free port on $1"
}

new_key() { ceph-authtool "$dir/keyring" --gen-key -n "$@" >/dev/null; }

make() {
  local address=$1 osds=$2 port fsid i
  port=$(free_port "$address")
  fsid=$(cat /proc/sys/kernel/random/uuid)
  mkdir -p "$dir"/{mon.a,mgr.x,run,log}
  chmod 700 "$dir"
  cat >"$conf.new" <<CONF
[global]
fsid = $fsid
mon host = [v2:$address:$port,v1:$address:$((port + 1))]
public addr = $address
cluster addr = $address
ms bind ipv6 = false
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
auth allow insecure global id reclaim = false
osd pool default size = $((osds < 3 ? osds : 3))
osd pool default min size = $((osds > 1 ? 2 : 1))
osd pool default pg num = 8
osd pool default pg autoscale mode = off
mon allow pool size one = true
mon allow pool delete = true
mon data avail crit = 1
paxos propose interval = 0.1
paxos min wait = 0.01
osd crush chooseleaf type = 0
run dir = $dir/run
admin socket = $dir/run/\$name.\$pid.asok
log file = $dir/log/\$name.log
pid file = $dir/run/\$name.pid
keyring = $dir/keyring
crash dir = $dir/crash
[mon.a]
mon data = $dir/mon.a
[mgr]
mgr data = $dir/mgr.x
mgr initial modules =
[osd]
osd data = $dir/\$name
osd objectstore = bluestore
bluestore block create = true
bluestore block size = ${CEPH_OSD_BYTES:-8589934592}
bluestore block db create = false
bluestore block wal create = false
osd memory target = 939524096
osd class dir = /usr/lib/$(uname -m)-linux-gnu/rados-classes
[client]
keyring = $dir/\$name.keyring,$dir/keyring
log file =
pid file =
admin socket =
CONF
  ceph-authtool --create-keyring "$dir/keyring" --gen-key -n mon. --cap mon 'allow *' >/dev/null
  new_key client.admin --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *'
  new_key mgr.x --cap mon 'allow profile mgr' --cap osd 'allow *'
  for ((i = 0; i < osds; i++)); do
    new_key "osd.$i" --cap mon 'allow profile osd' --cap mgr 'allow profile osd' --cap osd 'allow *'
  done
  chmod 600 "$dir/keyring"
  monmaptool --create --clobber --addv a "[v2:$address:$port,v1:$address:$((port + 1))]" \
    --fsid "$fsid" "$dir/monmap" >/dev/null
  ceph-mon -c "$conf.new" --mkfs -i a --monmap "$dir/monmap" --keyring "$dir/keyring"
  echo "$osds" >"$dir/osds"
  mv "$conf.new" "$conf"  # from here on it is made
}

start() {
  local address=${1:-127.0.0.1} osds=${2:-3} i uuid up
  [[ -e $conf ]] || { rm -rf "$dir"; make "$address" "$osds"; }
  osds=$(cat "$dir/osds")
  runs "$dir/run/mon.a.pid" || ceph-mon -c "$conf" -i a
  runs "$dir/run/mgr.x.pid" || ceph-mgr -c "$conf" -i x
  for ((i = 0; i < osds; i++)); do
    if [[ ! -e $dir/osd.$i/made ]]; then
      rm -rf "$dir/osd.$i"
      mkdir "$dir/osd.$i"
      uuid=$(cat /proc/sys/kernel/random/uuid)
      admin 30 osd new "$uuid" "$i" >/dev/null
      ceph-osd -c "$conf" -i "$i" --mkfs --osd-uuid "$uuid" 2>>"$dir/log/mkfs.log"
      touch "$dir/osd.$i/made"
    fi
    runs "$dir/run/osd.$i.pid" || ceph-osd -c "$conf" -i "$i" >/dev/null 2>>"$dir/log/start.log"
  done
  for ((i = 0; i < 300; i++)); do
    up=$(admin 10 osd stat 2>/dev/null | sed -n 's/.* \([0-9]*\) up.*/\1/p' || true)
    [[ $up == "$osds" ]] && return
    sleep 0.2
  done
  die "only ${up:-none} of $osds OSDs came up in a minute; look at $dir/log"
}

# Ends the daemons of these pid files, at once or (stop) in 5 s.
end() {
  local file pid i pids=()
  for file; do
    ! runs "$file" || pids+=("$(cat "$file")")
  done
  for pid in ${pids[@]+"${pids[@]}"}; do
    if [[ $command == kill ]]; then kill -9 "$pid"; else kill "$pid"; fi || true
  done
  for ((i = 0; i < 100; i++)); do
    for pid in ${pids[@]+"${pids[@]}"}; do
      ! kill -0 "$pid" 2>/dev/null || break
      pid=
    done
    [[ -n ${pid:-} ]] || break
    ((i < 50)) || kill -9 ${pids[@]+"${pids[@]}"} 2>/dev/null || true
    sleep 0.1
  done
  rm -f "$@"
}

case $command in
  start) start "$@" ;;
  pool)
    for pool in "$@"; do
      admin 60 osd pool create "$pool" 8 >/dev/null 2>&1 || die "cannot make the pool $pool"
      admin 60 osd pool application enable "$pool" tailcast >/dev/null 2>&1
    done ;;
  key)
    (($# == 3)) || usage
    (umask 077 && admin 60 auth get-or-create "client.$1" mon 'allow r' \
      osd "allow $3 pool=$2" -o "$dir/client.$1.keyring") ;;
  kill | stop)
    # An OSD that ends tells the monitor, and waits for its answer.
    end "$dir"/run/osd.*.pid
    end "$dir"/run/m*.pid ;;
  *) usage ;;
esac
