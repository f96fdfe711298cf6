// The configuration of one process (`tailcast run --config FILE`). docs/config.md lists every key
// with its default and meaning; this struct is where they are read and checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/storage/store_url.h"

namespace tailcast::cell {

enum class Profile : uint8_t {
  kDefault,     // the paper's intervals
  kLowLatency,  // doorbells instead of polls
};

struct ProcessConfig {
  std::string cell;     // name of the cell, as in the topology
  std::string name;     // unique in the cell and the same after a restart
  std::string store;    // the cell's primary layer: "posix:/absolute/folder" or "ceph:..."
  bool durable = true;  // false: appends are acknowledged without fdatasync; they survive the death
                        // of processes, not of the machine. Only of posix
  // File of the key that the cell's processes and clients prove to have before a byte of a cache is
  // read or written ("/absolute/path"), or "none": whoever reaches a cache may.
  std::string cell_key;
  std::string scheduler;  // host:port of the cell's scheduler; the role scheduler listens there
  std::string listen = "127.0.0.1:0";   // host:port for rpc, all other roles
  std::string metrics = "127.0.0.1:0";  // host:port for Prometheus; "off": none
  std::string topology;                 // file; needed by the role scheduler
  std::string log = "info";
  Profile profile = Profile::kDefault;

  // The cache processes of the cell: who is on the rings. Needed by the role scheduler.
  std::vector<std::string> caches;
  // Cache processes that may be there without being in the rings, until these are changed to them.
  std::vector<std::string> spares;

  // cache
  int64_t data_cache_bytes = 256 << 20;
  int64_t metadata_cache_bytes = 16 << 20;
  Duration data_ttl = Duration::Seconds(60);
  Duration metadata_ttl = Duration::Seconds(int64_t{24} * 3600);
  int64_t repair_bytes_per_second = 25 << 20;  // that a cache which fills itself takes from others
  std::string fabric_listen = "127.0.0.1:0";   // tcp engine
  std::string fabric_rdma =
      "auto";                    // an RDMA device's address; auto: fabric_listen's, if it is one
  std::string run_dir = "/tmp";  // folder for unix sockets; short paths

  // reader
  Duration poll = Duration::Millis(50);

  // InvalidArgument with file, line, column and key; NotFound: the file.
  static Result<ProcessConfig> Load(const std::string& path);
  static Result<ProcessConfig> Parse(const std::string& text, const std::string& name);
  // The primary layer, durability included: what the registry tells clients, as text.
  storage::StoreUrl StoreUrl() const;
  // Where the tcp engine of one of a cache process' two caches listens: "data" at the port of
  // `fabric_listen`, "metadata" at the one behind it, each at any if that is 0.
  std::string FabricListen(std::string_view cache) const;
  // What Parse reads back as this.
  std::string ToYaml() const;
};

// "standard" or "low-latency".
Result<Profile> ParseProfile(const std::string& text);

// InvalidArgument: a cell_key that is neither "none" nor an absolute path.
Status CheckCellKey(const std::string& path_or_none);

}  // namespace tailcast::cell
