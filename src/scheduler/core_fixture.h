// A scheduler's core of cell "a" with two readers, two writers in cell "b" and one in "c", for
// tests that drive it input by input.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/process_incarnation.h"
#include "tailcast/scheduler/scheduler_core.h"
#include "tailcast/stream/term.h"

namespace tailcast::scheduler {

inline MonotonicTime At(int64_t ms) { return MonotonicTime::FromMicros(ms * 1000); }
inline stream::Term TermOf(uint64_t tree, uint64_t scheduler, uint32_t attempt) {
  return {stream::TreeVersion{tree}, stream::SchedulerIncarnation{scheduler}, attempt};
}
inline constexpr std::optional<int64_t> kOpen[2] = {};

class SchedulerCoreTest : public ::testing::Test {
 protected:
  static v1::StreamConfig Stream(const std::vector<std::pair<std::string, std::string>>& edges,
                                 uint64_t tree_version = 1) {
    v1::StreamConfig s;
    s.set_name("s");
    s.set_incarnation(7);
    s.set_shards(1);
    s.set_chunk_size(4096);
    s.set_source("a");
    s.set_tree_version(tree_version);
    for (const auto& [from, to] : edges) {
      auto* edge = s.add_tree();
      edge->set_from(from);
      edge->set_to(to);
    }
    return s;
  }
  static stream::Stem File(int64_t seq) {
    return {seq, 1000 + seq, (seq - 1) * 100, (seq - 1) * 2};
  }
  const stream::ShardId shard_{{"s", stream::StreamIncarnation{7}}, 0};

  void Workers(MonotonicTime now = At(0)) {
    core_.OnReaders(now,
                    {{"r0", "a:1", ProcessIncarnation{1}}, {"r1", "a:2", ProcessIncarnation{2}}});
    core_.OnWriters(now, "b", "via:1",
                    {{"w0", "b:1", ProcessIncarnation{1}}, {"w1", "b:2", ProcessIncarnation{2}}});
    core_.OnWriters(now, "c", "", {{"w0", "c:1", ProcessIncarnation{1}}});
  }
  // What was started since the last call.
  std::vector<stream::Operation> Started(MonotonicTime now) {
    core_.DoWork(now, out_);
    std::vector<stream::Operation> all;
    for (auto& [reader, operations] : out_.start) {
      for (auto& o : operations) {
        reader_of_[o.id] = reader;
        all.push_back(o);
      }
    }
    stopped_ = out_.stop;
    asked_ = out_.progress;
    listed_ = out_.list;
    out_ = Effects();
    return all;
  }
  void Report(MonotonicTime now, const stream::Operation& o, v1::OperationState state,
              v1::FailureCause cause = v1::CAUSE_NONE,
              const stream::Term& superseding = stream::Term(), bool opened = false) {
    v1::OperationReport report;
    stream::ToProto(o, report.mutable_operation());
    report.set_state(state);
    report.set_opened(opened);
    report.set_cause(cause);
    report.set_superseding_term(superseding.Pack());
    if (state == v1::OPERATION_DONE) {
      report.set_data_length(100);
      report.set_index_length(64);
      report.set_source_data_length(100);
      report.set_source_index_length(64);
    }
    core_.OnReport(now, reader_of_.at(o.id), report, out_);
  }
  stream::Operation Only(const std::vector<stream::Operation>& operations, stream::Layer layer) {
    for (const stream::Operation& o : operations) {
      if (o.target.layer == layer) return o;
    }
    ADD_FAILURE() << "no operation of the layer";
    return stream::Operation();
  }

  SchedulerCore core_{{.cell = "a", .incarnation = stream::SchedulerIncarnation{5}}, 1};
  Effects out_;
  std::map<stream::OperationId, std::string> reader_of_;
  std::map<std::string, std::vector<stream::OperationId>> stopped_;
  std::set<std::pair<stream::ShardId, std::string>> asked_;
  std::set<stream::ShardId> listed_;
};

}  // namespace tailcast::scheduler
