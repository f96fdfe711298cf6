// The server's end of all message channels of one exporter: the gate before its handler, and the
// shm channels, which its loop reads itself. The doors find clients and hand them over.
//
// The gate (spec Channel: door). Close waits for a handler that runs; after it nothing is handled
// of the connections that were admitted before, also when the gate is open again.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "tailcast/base/scope.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/fabric/channel.h"
#include "tailcast/fabric/message_ring.h"
#include "tailcast/fabric/region_memory.h"

namespace tailcast::fabric {

// Threads: construction and destruction by the loop's (or while nobody turns it); the rest is said.
class MessageService {
 public:
  MessageService(ThreadLoop* loop, MessageHandler handler);
  ~MessageService();
  MessageService(const MessageService&) = delete;
  MessageService& operator=(const MessageService&) = delete;

  // Connections are admitted into one life of the gate; Close ends it. 0: it is closed.
  using Life = uint64_t;
  Life life() const;  // any thread
  void Close();       // any thread, not inside the handler
  void Open();        // any thread

  // Loop thread. False: that life is over, and nothing was done.
  bool Handle(Life life, std::string_view message, std::string& answer);

  // Any thread. Serves a client whose channel is `memory` (of kChannelBytes) until Remove. `broke`
  // is called on the loop with its number, once, if the client breaks the protocol. Returns that.
  uint64_t AddRings(Life life, Mapping memory, Callback<void(uint64_t)> broke);
  void RemoveRings(uint64_t id);

  ThreadLoop* loop() const { return loop_; }
  const Scope& scope() const { return scope_; }

 private:
  class Rings;

  ThreadLoop* const loop_;
  MessageHandler handler_;  // loop thread

  mutable std::mutex gate_;  // held while a message is handled
  Life life_ = 1;            // guarded by gate_
  bool open_ = true;         // guarded by gate_

  std::atomic<uint64_t> next_rings_{1};
  std::map<uint64_t, std::unique_ptr<Rings>> rings_;  // loop thread
  Scope scope_;
};

}  // namespace tailcast::fabric
