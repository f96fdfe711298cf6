// One operation of a ReaderAgent: its stream, its reads. Internal to the module.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tailcast/reader/lag_clock.h"
#include "tailcast/reader/reader_agent.h"
#include "tailcast/stream/chunk_key.h"
#include "tailcast/stream/range_reader.h"

namespace tailcast::reader {

class ReaderOperation : public std::enable_shared_from_this<ReaderOperation> {
 public:
  ReaderOperation(ReaderAgent& agent, uint64_t number, stream::Operation operation);

  void Start();
  // What the metadata cache knows of the file and of its successor.
  void OnMetadata(const stream::PairMetadata& metadata, const stream::PairMetadata& next);
  // Once per poll interval: retries, the primary layer's sizes, a silent writer.
  void Tick(MonotonicTime now);
  void OnSeal(int64_t data_length, int64_t index_length);
  void Stop(v1::FailureCause cause, const std::string& message);
  void Detach();

  bool running() const { return state_ == v1::OPERATION_RUNNING; }
  const stream::Operation& operation() const { return operation_; }
  cache::Key group() const { return group_; }
  int64_t seq() const { return operation_.target.file.stem.seq; }
  void Report(v1::OperationReport* out) const;

  uint64_t version = 0;  // of its last reported change

 private:
  void OnMessage(const std::string& bytes);
  void OnClosed(const Status& status);
  void End(v1::OperationState state, v1::FailureCause cause, std::string message);
  // Reads and sends what may be read and sent. Posted, once per turn.
  void Kick();
  void Work();
  void StartRead(const CopyCore::Read& read);
  void OnRead(const CopyCore::Read& read, const std::string& buffer, int64_t at,
              const stream::RangeResult& result);
  void Send(const v1::CopyRequest& request);
  void PollPrimary();
  void ApplySource(const SourceLengths& source);

  ReaderAgent* agent_;  // null after Detach
  const uint64_t number_;
  stream::Operation operation_;
  const cache::Key group_;
  CopyCore core_;
  LagClock lag_;
  std::shared_ptr<rpc::Client> client_;
  std::unique_ptr<rpc::Stream> stream_;
  std::unique_ptr<stream::RangeReader> readers_[stream::kParts];
  v1::OperationState state_ = v1::OPERATION_RUNNING;
  v1::FailureCause cause_ = v1::CAUSE_NONE;
  std::string message_;
  uint64_t superseding_term_ = 0;
  bool kicked_ = false;
  bool paused_ = false;          // after a read that brought nothing, until the next tick
  MonotonicTime heard_;          // from the writer, or nothing was owed
  MonotonicTime metadata_read_;  // the metadata cache knew the file
  MonotonicTime next_primary_poll_;
  int primary_polls_outstanding_ = 0;
};

}  // namespace tailcast::reader
