#include "tailcast/app/demo_stream.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

namespace tailcast::app {

Result<Input> ReadInput(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return InvalidArgumentError("--input " + path + " is a folder; name a file");
  }
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) return ErrnoStatus(errno != 0 ? errno : EIO, "can't read --input " + path);
  std::stringstream text;
  text << in.rdbuf();
  Input input;
  input.bytes = std::move(text).str();
  for (size_t at = 0; at < input.bytes.size();) {
    const size_t newline = input.bytes.find('\n', at);
    at = newline == std::string::npos ? input.bytes.size() : newline + 1;
    input.ends.push_back(at);
  }
  if (input.ends.empty()) return InvalidArgumentError("--input " + path + " is empty");
  return input;
}

void SetAbove(Watchers& watchers, const copytree::Tree& tree) {
  for (auto& w : watchers) {
    int above = -1;
    for (const copytree::Edge& edge : tree.edges) {
      if (edge.to != w->cell) continue;
      for (const auto& other : watchers) {
        if (other->cell == edge.from && other->fabric == w->fabric) {
          above = static_cast<int>(other->index);
        }
      }
    }
    w->above = above;
  }
}

void Watch(Watcher& w, const Input& input, const DemoPace& pace, Arrivals& arrivals,
           std::atomic<bool>& stop) {
  const auto fail = [&](const std::string& error) {
    std::lock_guard lock(w.mu);
    w.error = error;
    w.state = "failed";
  };
  consumer::Options o;
  o.cell = w.scheduler;
  o.stream = kDemoStream;
  o.start = *consumer::StartPoint::Parse("beginning");
  o.profile = pace.low_latency ? consumer::Profile::kLowLatency : consumer::Profile::kDefault;
  o.fabric =
      w.fabric == "shm" ? consumer::FabricPreference::kShm : consumer::FabricPreference::kTcp;
  auto consumer = consumer::Consumer::Open(o);
  if (!consumer.ok()) return fail(consumer.status().message());
  size_t next = 0;
  while (!stop && next < input.size()) {
    const auto batch = (*consumer)->Poll(Duration::Millis(100));
    if (!batch.ok()) return fail(batch.status().message());
    const int64_t now = ReadWallClock().micros();
    std::lock_guard lock(w.mu);
    for (const consumer::Message& message : *batch) {
      if (next >= input.size() || message.payload != input[next]) {
        w.error = "message " + std::to_string(next) + " differs from the input's line " +
                  std::to_string(next + 1);
        w.state = "failed";
        return;
      }
      arrivals.OnArrival(w.index, next, now);
      const int above = w.above;
      const auto hop =
          above < 0 ? std::nullopt : arrivals.HopUs(static_cast<size_t>(above), next, now);
      if (hop) {
        w.hop.Record(*hop);
        w.recent_hop.Record(*hop);
      }
      ++next;
      w.bytes += static_cast<int64_t>(message.payload.size());
      w.delay.Record(now - message.time_us);
      w.recent.Record(now - message.time_us);
    }
    w.messages = static_cast<int64_t>(next);
    w.counters = (*consumer)->counters();
    w.state = consumer::ShardStateName((*consumer)->shard_status(0).state);
  }
  // Nothing may come after the last message.
  Result<std::span<const consumer::Message>> extra = std::span<const consumer::Message>();
  if (next == input.size()) extra = (*consumer)->Poll(Duration::Millis(200));
  std::lock_guard lock(w.mu);
  if (!extra.ok()) {
    w.error = extra.status().message();
  } else if (!extra->empty()) {
    w.error = "more messages than the input has";
  }
  w.done = next == input.size() && w.error.empty();
  w.state = w.done ? "identical" : "stopped";
}

void PublishAll(Publisher& p, const Input& input, const DemoPace& pace, const std::string& source,
                std::atomic<bool>& stop) {
  const auto fail = [&](const Status& status) {
    std::lock_guard lock(p.mu);
    p.error = status.message();
    p.done = true;
  };
  producer::Options o;
  o.cell = source;
  o.stream = kDemoStream;
  o.profile = pace.low_latency ? producer::Profile::kLowLatency : producer::Profile::kDefault;
  o.roll_bytes = pace.roll_bytes;
  auto producer = producer::Producer::Open(o);
  if (!producer.ok()) return fail(producer.status());
  const MonotonicTime start = ReadMonotonicClock();
  p.started = start;
  for (size_t i = 0; i < input.size() && !stop; ++i) {
    if (pace.megabytes_per_second > 0) {
      const int64_t begin = i == 0 ? 0 : static_cast<int64_t>(input.ends[i - 1]);
      const int64_t due =
          static_cast<int64_t>(static_cast<double>(begin) / pace.megabytes_per_second);
      for (Duration ahead;
           (ahead = Duration::Micros(due) - (ReadMonotonicClock() - start)) > Duration() &&
           !stop;) {
        // The pace that was asked for.
        std::this_thread::sleep_for(
            std::chrono::microseconds(std::min<int64_t>(ahead.micros(), 20000)));
      }
    }
    const Status status = (*producer)->Publish(input[i], [&p](const producer::Ack& ack) {
      if (ack.outcome == producer::AckOutcome::kDurable) {
        ++p.durable;
      } else {
        std::lock_guard lock(p.mu);
        if (p.error.empty()) p.error = ack.error.message();
      }
    });
    if (!status.ok()) return fail(status);
    p.published = static_cast<int64_t>(i) + 1;
  }
  const Status flushed = (*producer)->Flush(Duration::Seconds(60));
  const producer::Stats stats = (*producer)->stats();
  Status closed = (*producer)->Close(Duration::Seconds(60));
  if (!flushed.ok()) closed = flushed;
  {
    std::lock_guard lock(p.mu);
    p.stats = stats;
    if (!closed.ok() && p.error.empty()) p.error = closed.message();
  }
  p.done = true;
}

}  // namespace tailcast::app
