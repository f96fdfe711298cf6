// A cell with any number of consumers, as sums and averages: what they ask of the caches, what the
// caches' servers can give, who waits, who reads the file system instead, and when replicas are
// added. One step is a fraction of a second, of no matter how many consumers.
//
//   consumers ── reads each round ──▶ servers: reads/s, bytes/s ──▶ round, lag
//                                        ▲                            │ later than delay_max
//   writers ──── chunks, lengths ────────┘                            ▼
//   autoscaler: adds replicas when the busiest one is above a trigger    primary layer
//
// Consumers that keep up are one crowd, of which each gets the same share of the servers, as the
// turns of fabric/tcp_door.h and network cards give it. Those who begin behind the others are
// groups with a backlog of their own; they take what is left. Who gets less than he needs falls
// behind: his rounds become longer, which costs fewer reads for each byte, until that is not
// enough.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tailcast/scale/reading.h"

namespace tailcast::scale {

// Of a cache server. Beyond `reads_per_s` or `bytes_per_s` it does no more; above a trigger an
// autoscaler adds servers.
struct ServerLimits {
  double reads_per_s = 560e3;
  double bytes_per_s = 10e9 / 8;
  double trigger_reads_per_s = 400e3;
  double trigger_bytes_per_s = 4e9 / 8;
};

struct Autoscaler {
  bool on = false;
  double look_s = 10;              // apart
  double start_s = 20;             // until a new server serves: its start, its rest
  double copy_bytes_per_s = 50e6;  // that a new one takes of the others
  double aim = 0.95;               // of the trigger, that it adds servers for
  double idle = 0.7;  // of the trigger: below it for idle_s, it takes away those that it added
  double idle_s = 300;
};

struct CellSetup {
  ShardFlow flow;
  int shards = 1;               // of all streams that the cell gets
  int shards_per_consumer = 1;  // of those
  double poll_s = 0.1;
  // A consumer takes at most so many times the rate at which its shards grow; 0: as it can.
  double catch_up_factor = 0;
  int data_servers = 9;
  int metadata_servers = 6;
  ServerLimits limits;
  Autoscaler autoscaler;
  double keep_s = 60;                        // of the streams that lie in the data cache
  double read_s = 0.0005, write_s = 0.0005;  // a round of reads, or a write, of an idle cell
  double delay_max_s = 1;                    // Algorithm 1 of the paper
  double write_timeout_s = 0.25;
  double primary_reads_per_s = 1e6, primary_bytes_per_s = 20e9;  // that the primary layer gives
};

struct CellSample {
  double consumers = 0;
  int data_servers = 0, metadata_servers = 0;
  double read_bytes_per_s = 0;   // of chunks
  double reads_per_s = 0;        // of chunks, at all data servers
  double value_reads_per_s = 0;  // at all metadata servers
  double fallbacks_per_s = 0;    // reads of the primary layer
  double round_s = 0;            // of consumers that keep up; their polls at the least
  double lag_s = 0;              // by which they are behind what the cell has
  double write_s = 0;            // until what arrives can be read
  double behind_share = 0;       // of the consumers: those who catch up with a backlog of their own
  double behind_s = 0;           // by which those are behind, in the mean
  double late_share = 0;         // of bytes that come from the primary layer, delay_max_s later
};

// The busiest server's load where the mean one's is 1: placement is that of the real ring.
double HottestServer(int servers);

class CellModel {
 public:
  explicit CellModel(const CellSetup& setup);

  // From now on there are so many; who comes begins `behind_s` of the streams behind their ends.
  void SetConsumers(double count, double behind_s);
  // Bytes come at so many times the flow's rate; 0: nobody produces.
  void SetRate(double factor) { rate_ = factor; }
  // The consumers that are there have so much before them at once.
  void AddBacklog(double seconds);
  // So many of the data servers are gone, until others have their share again after `seconds`.
  void LoseServers(int count, double seconds);
  CellSample Step(double dt_s);

 private:
  struct Group {
    double count = 0;
    double backlog_bytes = 0;  // of each
  };
  struct Growth {
    int servers = 0;
    double ready_s = -1;  // < 0: none is under way
    double idle_since_s = -1;
  };
  double Hottest(int servers);  // HottestServer, which takes a while, is asked once
  // Of chunks whose write finds fewer than two of its three servers.
  double UnwritableShare(int servers, int lost);
  void Scale(Growth& growth, int& servers, int least, double load, double stored_bytes);
  double Round(double reads_per_s_max, double values_per_s_max, double least_s) const;
  // Bytes that the groups with a backlog get of what is left.
  double CatchUp(double left_bytes_per_s, double dt_s);

  const CellSetup setup_;
  double now_s_ = 0;
  bool looks_ = false;  // the autoscaler, in this step
  double rate_ = 1;
  double steady_ = 0;  // consumers that keep up
  double lag_s_ = 0;
  std::vector<Group> groups_;
  int data_servers_, metadata_servers_;
  Growth data_growth_, metadata_growth_;
  int lost_ = 0;
  double lost_until_s_ = 0;
  std::map<int, double> hottest_;
};

}  // namespace tailcast::scale
