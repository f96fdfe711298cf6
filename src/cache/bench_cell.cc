#include "tailcast/cache/bench_cell.h"

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/thread_priority.h"
#include "tailcast/cache/test_cell.h"
#include "tailcast/fabric/connect.h"
#include "tailcast/rpc/grpc_rpc.h"

namespace tailcast::cache {
namespace {

constexpr int kServers = 3;
constexpr uint64_t kMetadataBytes = 256u << 20;  // a change takes a slot, and the old one rests
constexpr uint64_t kFillBatch = 256;

std::string NameOf(int server) { return "cache-" + std::to_string(server); }

std::string Join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
  return text;
}

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) words.push_back(word);
  return words;
}

std::optional<BenchCell> the_cell;

}  // namespace

BenchCell::BenchCell(const BenchOptions& options) {
  const std::string folder =
      std::filesystem::temp_directory_path() / ("tailcast_bench_" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  for (int i = 0; i < kServers; ++i) {
    Server& server = servers_.emplace_back();
    server.process = std::make_unique<BenchProcess>(std::vector<std::string>{
        "/proc/self/exe", "--serve", NameOf(i), folder, std::to_string(options.cache_mb << 20)});
  }
  for (Server& server : servers_) {
    std::istringstream line(server.process->ReadLine());
    std::string data, metadata;
    line >> server.rpc_address >> data >> metadata;
    TAILCAST_CHECK(!metadata.empty(), "a cache server did not start; it says why above");
    server.fabric_addresses[0] = Split(data);
    server.fabric_addresses[1] = Split(metadata);
  }
  Rng rng(1);
  for (uint32_t i = 0; i < kBenchChunk; ++i) value_ += static_cast<char>(rng.Next());
  Fill((options.cache_mb << 20) / kBenchChunk);
}

RingConfig BenchCell::Ring(std::string_view driver, int which) const {
  RingConfig ring;
  ring.configuration_id = ConfigurationId{1};
  for (size_t i = 0; i < servers_.size(); ++i) {
    std::vector<std::string> addresses = servers_[i].fabric_addresses[which];
    std::erase_if(addresses, [&](const std::string& address) {
      return !address.starts_with(std::string(driver) + ":");
    });
    ring.replicas.push_back(
        {NameOf(static_cast<int>(i)), servers_[i].rpc_address, addresses, kTestIncarnation});
  }
  return ring;
}

std::vector<pid_t> BenchCell::pids() const {
  std::vector<pid_t> pids;
  for (const Server& server : servers_) pids.push_back(server.process->pid());
  return pids;
}

uint64_t BenchCell::Take(uint64_t count) {
  std::lock_guard lock(numbers_);
  const uint64_t first = std::exchange(next_, next_ + count);
  under_way_.insert(first);
  return first;
}

void BenchCell::Written(uint64_t first) {
  std::lock_guard lock(numbers_);
  under_way_.erase(first);
  written_below_.store(under_way_.empty() ? next_ : *under_way_.begin(), std::memory_order_release);
}

void BenchCell::Fill(uint64_t chunks) {
  BenchClient client(*this, "shm");
  const Scope scope;
  for (uint64_t filled = 0; filled < chunks; filled += kFillBatch) {
    std::vector<Mutation> mutations;
    const uint64_t first = Take(kFillBatch);
    for (uint64_t i = 0; i < kFillBatch; ++i) {
      mutations.push_back({KeyOf(first + i), MergeRule::kLongerWins, false, value_});
    }
    // Filled faster than slots are rested, it is told that there is no room for a moment.
    for (bool written = false; !written;) {
      std::optional<Status> status;
      client.data().Mutate(mutations, Duration::Seconds(10),
                           scope.Bind([&](Status s) { status = std::move(s); }));
      client.RunUntil([&] { return status.has_value(); });
      TAILCAST_CHECK(status->ok() || IsResourceExhausted(*status), status->ToString());
      written = status->ok();
    }
    Written(first);
  }
}

BenchOptions& TheBenchOptions() {
  static BenchOptions options;
  return options;
}

BenchCell& TheBenchCell() {
  if (!the_cell.has_value()) the_cell.emplace(TheBenchOptions());
  return *the_cell;
}

void EndBenchCell() { the_cell.reset(); }

int ServeBenchCell(int argument_count, char** arguments) {
  TAILCAST_CHECK(argument_count == 3, "--serve NAME FOLDER BYTES");
  signal(SIGTERM, SIG_IGN);  // the end of the standard input says the same, and it can clean up
  const std::string name = arguments[0], folder = arguments[1];
  RunBeforeOthers();  // as `tailcast run --role cache`
  ThreadLoop loop;
  const auto rpc = rpc::MakeGrpcServer(loop);
  const auto connector = rpc::MakeGrpcConnectorBeside(*rpc);
  const auto options = [&](const char* kind) {
    TestServerOptions options;
    options.exporter.name = name;
    options.exporter.shm_socket_path = folder + "/" + name + "." + kind;
    options.exporter.tcp_listen = "127.0.0.1:0";
    options.server.name = name;
    return options;
  };
  TestServerOptions data_options = options("data");
  data_options.server.memory_bytes = std::stoull(arguments[2]);
  // A slot that was written anew rests for a second: unpaced writes want much room beside what is
  // read.
  data_options.server.core.collect_from = 0.5;
  TestServerOptions metadata_options = options("metadata");
  metadata_options.server.service = kMetadataService;
  metadata_options.server.memory_bytes = kMetadataBytes;
  metadata_options.server.value_bytes = 1024;
  TestServer data(loop, *rpc, *connector, data_options);
  TestServer metadata(loop, *rpc, *connector, metadata_options);
  const auto rpc_address = rpc->Start("127.0.0.1:0");
  TAILCAST_CHECK(rpc_address.ok(), rpc_address.status().ToString());
  const std::vector<std::string> data_addresses = data.Start(),
                                 metadata_addresses = metadata.Start();
  std::cout << *rpc_address << ' ' << Join(data_addresses) << ' ' << Join(metadata_addresses)
            << std::endl;
  // The benchmark ended, in whatever way.
  std::thread end([&] {
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    std::error_code gone;
    std::filesystem::remove_all(folder, gone);
    loop.Stop();
  });
  loop.Run();
  end.join();
  return 0;
}

BenchClient::BenchClient(BenchCell& cell, std::string_view driver)
    : cell_(cell), fabric_(fabric::MakeConnector(&loop_)), rpc_(rpc::MakeGrpcConnector(loop_)) {
  QuorumClientOptions options;
  data_ =
      std::make_unique<QuorumClient>(&loop_, fabric_.get(), rpc_.get(), options, cell.data(driver));
  options.service = kMetadataService;
  metadata_ = std::make_unique<QuorumClient>(&loop_, fabric_.get(), rpc_.get(), options,
                                             cell.metadata(driver));
  RunUntil([&] { return data_->ready_replicas() == 3 && metadata_->ready_replicas() == 3; });
}

BenchClient::~BenchClient() {
  data_.reset();
  metadata_.reset();
}

void BenchClient::RunUntil(const std::function<bool()>& done) {
  TAILCAST_CHECK(loop_.RunUntil(done, loop_.Now() + Duration::Seconds(600)), "timed out");
}

double BenchClient::failures() const {
  const auto failed = [](const ClientCounters& c) {
    return static_cast<double>(c.mutation_failures + c.misses + c.short_reads);
  };
  return failed(data_->counters()) + failed(metadata_->counters());
}

}  // namespace tailcast::cache
