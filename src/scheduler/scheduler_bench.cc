// What a second of a cell's life costs the scheduler's core: 2,000 idle streams and 200 active
// ones, to one cell, with 4 readers that report twice a second, a new file of each active stream
// every 16 seconds, and what is shed. And what a cell that was away costs: a notice while it lacks
// many files of a shard, and its catching up.
//
// scheduler_scheduler_bench. Expect less than 10 ms for a second; the goal is 20 % of a core
// together with reading and writing the calls. A notice is a matter of microseconds however many
// files are lacking, and catching up takes twice as long for twice as many.
#include <benchmark/benchmark.h>

#include <map>
#include <string>
#include <vector>

#include "tailcast/scheduler/copy_set.h"
#include "tailcast/scheduler/operation_table.h"
#include "tailcast/scheduler/scheduler_core.h"
#include "tailcast/scheduler/worker_table.h"

namespace tailcast::scheduler {
namespace {

constexpr int kStreams = 2200, kActive = 200, kReaders = 4;

v1::StreamConfig Stream(int n) {
  v1::StreamConfig s;
  s.set_name("s" + std::to_string(n));
  s.set_incarnation(7);
  s.set_shards(1);
  s.set_chunk_size(4096);
  s.set_source("a");
  s.set_tree_version(1);
  auto* edge = s.add_tree();
  edge->set_from("a");
  edge->set_to("b");
  return s;
}

std::vector<WorkerInfo> WorkersNamed(const std::string& prefix) {
  std::vector<WorkerInfo> workers;
  for (int i = 0; i < kReaders; ++i) {
    workers.push_back({prefix + std::to_string(i), "a:1", ProcessIncarnation{1}});
  }
  return workers;
}

void BM_ASecondOf2000IdleAnd200ActiveStreams(benchmark::State& state) {
  SchedulerCore core({.cell = "a", .incarnation = stream::SchedulerIncarnation{5}}, 1);
  MonotonicTime now = MonotonicTime::FromMicros(1);
  Effects out;
  struct Running {
    stream::Operation operation;
    int64_t sent = 0;
  };
  std::map<stream::OperationTarget, Running> active;
  std::map<std::string, std::vector<stream::OperationTarget>> by_reader;
  const auto go = [&] {
    core.DoWork(now, out);
    for (auto& [reader, operations] : out.start) {
      core.OnStarted(reader, operations);
      for (const stream::Operation& o : operations) {
        if (std::stoi(o.target.file.shard.stream.name.substr(1)) >= kActive) continue;
        if (active.try_emplace(o.target, Running{o}).second) by_reader[reader].push_back(o.target);
      }
    }
    out = Effects();
  };
  const auto file = [](int64_t seq) {
    return stream::Stem{seq, 1000 + seq, (seq - 1) * 100, (seq - 1) * 2};
  };
  constexpr std::optional<int64_t> kOpen[2] = {};
  const auto notice = [&](int n, int64_t seq) {
    core.OnNotice(now, {{{"s" + std::to_string(n), stream::StreamIncarnation{7}}, 0}, file(seq)},
                  kOpen, out);
  };
  core.OnReaders(now, WorkersNamed("r"));
  core.OnWriters(now, "b", "", WorkersNamed("w"));
  for (int n = 0; n < kStreams; ++n) {
    core.OnStream(now, Stream(n), out);
    notice(n, 1);
    go();
  }
  std::vector<int64_t> seq(kActive, 1);
  int64_t second = 0;
  for (auto _ : state) {
    ++second;
    for (int half = 0; half < 2; ++half) {
      now = now + Duration::Millis(500);
      for (auto& [reader, targets] : by_reader) {
        for (const stream::OperationTarget& target : targets) {
          const auto it = active.find(target);
          if (it == active.end()) continue;
          const bool done =
              target.file.stem.seq + 1 <
              seq[static_cast<size_t>(std::stoi(target.file.shard.stream.name.substr(1)))];
          v1::OperationReport report;
          stream::ToProto(it->second.operation, report.mutable_operation());
          report.set_state(done ? v1::OPERATION_DONE : v1::OPERATION_RUNNING);
          report.set_opened(true);
          report.set_sent_bytes(it->second.sent += 100'000);
          report.set_source_data_length(100);
          report.set_source_index_length(64);
          report.set_data_length(100);
          report.set_index_length(64);
          core.OnReport(now, reader, report, out);
          if (done) active.erase(it);
        }
        std::erase_if(targets, [&](const auto& target) { return !active.contains(target); });
        go();
      }
    }
    for (int n = static_cast<int>(second % 16); n < kActive; n += 16) {
      notice(n, ++seq[static_cast<size_t>(n)]);
      go();
    }
    if (second % 5 == 0) {
      core.Shed(now);
      go();
    }
  }
  state.counters["operations"] = static_cast<double>(core.unfinished());
  state.counters["shed"] = static_cast<double>(core.counters().shed);
}
BENCHMARK(BM_ASecondOf2000IdleAnd200ActiveStreams)->Unit(benchmark::kMillisecond);

// A shard of many files, of which b is believed to have none.
class CellAway {
 public:
  explicit CellAway(int64_t files) {
    set_.OnStream(now_, Stream(1), out_);
    std::vector<stream::Stem> stems;
    for (int64_t seq = 1; seq <= files; ++seq) stems.push_back(File(seq));
    set_.OnListing(now_, shard_, 1, stems, out_);
  }
  void Notice(int64_t seq) {
    constexpr std::optional<int64_t> kSealed[stream::kParts] = {100, 64};
    set_.OnNotice(now_, {shard_, File(seq)}, kSealed, out_);
  }
  // It says what it has, `page` files at a time: nothing.
  void Answers(int64_t files, int64_t page) {
    for (int64_t seq = page; seq < files + page; seq += page) {
      set_.OnProgress(now_, shard_, "b", 1, {}, {}, seq);
      set_.AskDue(now_, out_);
      benchmark::DoNotOptimize(set_.NextQuestion());
    }
  }
  // False: nobody wants it.
  bool Copy(int64_t seq) {
    const auto row = operations_.Find({{shard_, File(seq)}, stream::Layer::kPrimary, "b"});
    if (row == operations_.end()) return false;
    operations_.Start(row, stream::TreeVersion{1}, {"r0", "w0", "b:1", ""}, {});
    set_.OnCopied(row, 100, 64);
    return true;
  }

 private:
  static stream::Stem File(int64_t seq) {
    return {seq, 1000 + seq, (seq - 1) * 100, (seq - 1) * 2};
  }

  const MonotonicTime now_ = MonotonicTime::FromMicros(1);
  const stream::ShardId shard_{stream::IdOf(Stream(1)), 0};
  WorkerTable workers_{WorkerOptions{}};
  OperationTable operations_{{}, workers_, 1};
  CopySet set_{{.cell = "a"}, operations_};
  Effects out_;
};

void BM_ANoticeWhileACellIsAway(benchmark::State& state) {
  CellAway away(state.range(0));
  for (auto _ : state) away.Notice(state.range(0));
}
BENCHMARK(BM_ANoticeWhileACellIsAway)->Arg(1000)->Arg(99000)->Unit(benchmark::kMicrosecond);

void BM_ACellCatchesUp(benchmark::State& state) {
  const int64_t files = state.range(0);
  for (auto _ : state) {
    CellAway away(files);
    away.Answers(files, 64);
    for (int64_t seq = 1; seq < files; ++seq) {
      if (!away.Copy(seq)) return state.SkipWithError("a file that nobody wants");
    }
  }
}
BENCHMARK(BM_ACellCatchesUp)
    ->Arg(2000)
    ->Arg(4000)
    ->Arg(8000)
    ->Arg(99000)
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);

}  // namespace
}  // namespace tailcast::scheduler
