// The writers that a reader's operations go to: one client for each, and one watch of its beats
// (rpc/beats.h). A writer that is stopped, or whose connection broke, loses all operations at once,
// idle ones too: each would have to find it out by itself, when its next bytes are late.
//
// Threads: everything on the loop. Internal to the module.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "tailcast/base/metrics.h"
#include "tailcast/base/scope.h"
#include "tailcast/rpc/beats.h"
#include "tailcast/rpc/rpc.h"

namespace tailcast::reader {

class WriterLinks {
 public:
  // `on_lost` is called for each operation of a writer that is lost, and may remove it. `silent`
  // counts such writers. Ports and counter outlive it.
  WriterLinks(EventLoop& loop, rpc::Connector& connector, Counter& silent,
              UniqueFunction<void(uint64_t operation, const Status& why)> on_lost)
      : loop_(loop), connector_(connector), silent_(silent), on_lost_(std::move(on_lost)) {}
  WriterLinks(const WriterLinks&) = delete;
  WriterLinks& operator=(const WriterLinks&) = delete;

  // A client for the operation's stream.
  std::shared_ptr<rpc::Client> Add(uint64_t operation, const std::string& address,
                                   const std::string& via);
  void Remove(uint64_t operation);
  // Unavailable: the beats of the operation's writer stopped, on a connection that holds.
  Status Check(uint64_t operation) const;

 private:
  using Address = std::pair<std::string, std::string>;  // and `via`
  struct Link {
    std::shared_ptr<rpc::Client> client;
    std::unique_ptr<rpc::BeatWatch> watch;
    std::set<uint64_t> operations;
    Status silent;             // why, while it is
    MonotonicTime idle_since;  // without operations
  };
  void OnSilent(const Address& address, const Status& why);
  void DropIdle();

  EventLoop& loop_;
  rpc::Connector& connector_;
  Counter& silent_;
  UniqueFunction<void(uint64_t, const Status&)> on_lost_;
  std::map<Address, std::unique_ptr<Link>> links_;
  std::map<uint64_t, Address> addresses_;  // by operation
};

}  // namespace tailcast::reader
