// Carries out what the core of one operation decides (operation_core.h): it has the stream to the
// writer and the reads under way, and decides nothing. Internal to the module.
//
// Threads: everything on the loop. Its owner retires it when on_ended runs: it may be inside one of
// its own callbacks. From then on its scope drops whatever is still to come.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tailcast/base/scope.h"
#include "tailcast/reader/operation_core.h"
#include "tailcast/rpc/rpc.h"
#include "tailcast/stream/chunk_key.h"
#include "tailcast/stream/ports.h"
#include "tailcast/stream/range_reader.h"

namespace tailcast::reader {

class OperationDriver {
 public:
  struct Hooks {
    UniqueFunction<void()> on_changed;  // its report has news
    UniqueFunction<void()> on_opened;   // the same: the writer has opened
    UniqueFunction<void()> on_ended;    // once; the stream is closed
  };

  // `ports`, `options` and `counters` outlive it.
  OperationDriver(const stream::CellPorts& ports, const ReaderOptions& options, Counters& counters,
                  std::shared_ptr<rpc::Client> client, stream::Operation operation, Hooks hooks);
  OperationDriver(const OperationDriver&) = delete;
  OperationDriver& operator=(const OperationDriver&) = delete;

  void Start();
  // The value of the operation's group in the metadata cache.
  void OnValue(const std::string& value);
  void OnSeal(int64_t data_length, int64_t index_length);
  // Once per poll interval.
  void OnTick(MonotonicTime now);
  void Stop(v1::FailureCause cause, const std::string& message);

  cache::Key group() const { return group_; }
  void Report(v1::OperationReport* out) const { core_.Report(ports_.loop->Now(), out); }
  Scope& scope() { return scope_; }

 private:
  // Gives the core one input, `input(core, now, effects)`, and carries out what it asks for.
  template <typename Input>
  void Give(Input input);
  void DoWorkLater();
  void DoWork();
  void StartRead(const CopyCore::Read& read);
  void AskSizes();
  void Close();
  void Send(const v1::CopyRequest& request);

  const stream::CellPorts& ports_;
  const ReaderOptions& options_;
  Hooks hooks_;
  OperationCore core_;
  const cache::Key group_;
  std::shared_ptr<rpc::Client> client_;
  std::unique_ptr<rpc::Stream> stream_;
  std::unique_ptr<stream::RangeReader> readers_[stream::kParts];
  bool work_posted_ = false;
  Scope scope_;
};

}  // namespace tailcast::reader
