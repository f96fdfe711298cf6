// One suite that every driver of the fabric port passes. A driver's test instantiates it:
//
//   INSTANTIATE_TEST_SUITE_P(Fake, FabricConformance, testing::Values(FakeDriver()), DriverName);
//
// Include it in one source file per test program.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/scope.h"

#include "tailcast/fabric/fabric.h"

namespace tailcast::fabric {

// What every server of the suite exports: region 0 and 1, filled with PatternByte.
inline constexpr uint64_t kTestRegionBytes[] = {4 << 20, 64 << 10};
// Words from here on in region 1 are 0 at first; tests change them.
inline constexpr uint64_t kTestWordsAt = 32 << 10;
inline char PatternByte(RegionId region, uint64_t offset) {
  return static_cast<char>((offset * 0x9e3779b97f4a7c15ull >> 56) + region * 101 + offset % 7);
}
inline void FillPattern(RegionId region, std::span<char> memory) {
  for (uint64_t i = 0; i < memory.size(); ++i) {
    memory[i] = region == 1 && i >= kTestWordsAt ? char{0} : PatternByte(region, i);
  }
}
inline void StoreWord(char* where, uint64_t value) {
  __atomic_store_n(reinterpret_cast<uint64_t*>(where), value, __ATOMIC_SEQ_CST);
}

// A server that runs elsewhere: in a process of its own, or as good as. It echoes messages
// (channel_conformance.h).
class TestServer {
 public:
  virtual ~TestServer() = default;  // kills it
  virtual std::string address() const = 0;
  virtual void Kill() = 0;      // -9
  virtual void Stop() = 0;      // SIGSTOP: it does nothing more, though its memory may be readable
  virtual void Continue() = 0;  // SIGCONT
  // Changes a word of region 1 and notifies its watchers.
  virtual void SetAndNotify(uint64_t offset, uint64_t value) = 0;
};

// A reader that runs elsewhere and reads all the time.
class TestReader {
 public:
  virtual ~TestReader() = default;  // kills it
  // Waits for the next: "reading" when a connection works, "lost" when it does not any more;
  // anything else is wrong. "" when it is dead.
  virtual std::string NextEvent() = 0;
  virtual void Kill() = 0;      // -9
  virtual void Stop() = 0;      // SIGSTOP
  virtual void Continue() = 0;  // SIGCONT
};

// One driver, with a loop to turn. Exporters take readers for silent after about a second, and have
// a beat timeout of kTestBeatTimeout.
inline constexpr Duration kTestBeatTimeout = Duration::Millis(400);
class FabricWorld {
 public:
  virtual ~FabricWorld() = default;
  virtual EventLoop* loop() = 0;
  // Turns the loop until `done()` or for `limit` (of real or virtual time); returns done().
  virtual bool RunUntil(const std::function<bool()>& done, Duration limit) = 0;
  virtual std::unique_ptr<Exporter> MakeExporter() = 0;
  virtual std::unique_ptr<Connector> MakeConnector() = 0;
  virtual std::unique_ptr<TestServer> StartServer() = 0;
  // Null: readers of this driver can't be somewhere else.
  virtual std::unique_ptr<TestReader> StartReader(const std::string& address) {
    (void)address;
    return nullptr;
  }
  // Calls `write` again and again while the result lives: on a thread, or on a timer.
  virtual std::shared_ptr<void> KeepWriting(std::function<void()> write) = 0;
  // An address of this driver's form where nobody listens.
  virtual std::string DeadAddress() = 0;
};

struct FabricDriver {
  std::string name;
  std::function<std::unique_ptr<FabricWorld>()> make;
};
inline std::string DriverName(const testing::TestParamInfo<FabricDriver>& info) {
  return info.param.name;
}
inline void PrintTo(const FabricDriver& driver, std::ostream* os) { *os << driver.name; }

class FabricConformance : public testing::TestWithParam<FabricDriver> {
 protected:
  static constexpr Duration kLimit = Duration::Seconds(20);

  void SetUp() override { world_ = GetParam().make(); }

  // An exporter in this process with the suite's regions, listening.
  struct Local {
    std::unique_ptr<Exporter> exporter;
    std::vector<std::span<char>> memory;
    std::string address;
  };
  Local Export(const std::function<void(Exporter&)>& prepare = {}) {
    Local local;
    local.exporter = world_->MakeExporter();
    for (RegionId id = 0; id < 2; ++id) {
      auto memory = local.exporter->AddRegion(id, kTestRegionBytes[id]);
      EXPECT_TRUE(memory.ok()) << memory.status();
      FillPattern(id, *memory);
      local.memory.push_back(*memory);
    }
    if (prepare) prepare(*local.exporter);
    auto addresses = local.exporter->Listen();
    EXPECT_TRUE(addresses.ok()) << addresses.status();
    local.address = addresses->front();
    return local;
  }

  Result<std::unique_ptr<Endpoint>> TryConnect(Connector* connector, const std::string& address,
                                               Duration timeout = Duration::Seconds(10)) {
    std::optional<Result<std::unique_ptr<Endpoint>>> result;
    connector->Connect(address, timeout,
                       scope_.Bind([&](auto r) { result.emplace(std::move(r)); }));
    EXPECT_FALSE(result.has_value()) << "answered inside the call";
    EXPECT_TRUE(world_->RunUntil([&] { return result.has_value(); }, kLimit));
    return std::move(*result);
  }
  std::unique_ptr<Endpoint> Connect(Connector* connector, const std::string& address) {
    auto endpoint = TryConnect(connector, address);
    EXPECT_TRUE(endpoint.ok()) << endpoint.status();
    return endpoint.ok() ? std::move(endpoint).value() : nullptr;
  }

  // For conditions that become true without an event on the loop: asks every few milliseconds.
  bool Eventually(const std::function<bool()>& done, Duration limit) {
    const MonotonicTime end = world_->loop()->Now() + limit;
    while (!world_->RunUntil(done, Duration::Millis(5))) {
      if (world_->loop()->Now() >= end) return false;
    }
    return true;
  }

  // Collects completions until `count` came; checks that none comes twice.
  std::map<uint64_t, ReadStatus> Collect(Endpoint* endpoint, size_t count) {
    std::map<uint64_t, ReadStatus> done;
    EXPECT_TRUE(world_->RunUntil(
        [&] {
          Completion batch[37];
          size_t n;
          while ((n = endpoint->Poll(batch)) > 0) {
            for (size_t i = 0; i < n; ++i) {
              EXPECT_TRUE(done.emplace(batch[i].token, batch[i].status).second)
                  << "read " << batch[i].token << " completed twice";
            }
          }
          return done.size() >= count;
        },
        kLimit))
        << done.size() << " of " << count << " reads completed";
    EXPECT_EQ(done.size(), count);
    return done;
  }
  ReadStatus ReadOne(Endpoint* endpoint, ReadDescriptor read) {
    read.token = 77;
    endpoint->Read({&read, 1});
    const auto done = Collect(endpoint, 1);
    return done.contains(77) ? done.at(77) : ReadStatus::kTimeout;
  }
  ReadStatus ReadWord(Endpoint* endpoint, uint64_t* value, uint64_t offset = 0) {
    return ReadOne(endpoint, {.region = 0,
                              .length = 8,
                              .offset = offset,
                              .destination = reinterpret_cast<char*>(value)});
  }
  static uint64_t PatternWord(uint64_t offset) {
    uint64_t word;
    char bytes[8];
    for (uint64_t i = 0; i < 8; ++i) bytes[i] = PatternByte(0, offset + i);
    std::memcpy(&word, bytes, 8);
    return word;
  }

  std::unique_ptr<FabricWorld> world_;
  Scope scope_;
};

TEST_P(FabricConformance, ReadsWhatTheServerHasAtAnyOffsetAndLength) {
  Local server = Export();
  auto connector = world_->MakeConnector();
  auto endpoint = Connect(connector.get(), server.address);
  ASSERT_NE(endpoint, nullptr);
  EXPECT_TRUE(endpoint->connected());
  ASSERT_EQ(endpoint->regions().size(), 2u);
  for (RegionId id = 0; id < 2; ++id) {
    EXPECT_EQ(endpoint->regions()[id].size, kTestRegionBytes[id]);
    EXPECT_NE(endpoint->regions()[id].generation, Generation::kNone);
  }
  std::vector<ReadDescriptor> reads;
  std::vector<std::string> buffers;
  const uint32_t lengths[] = {0, 1, 7, 8, 9, 63, 64, 511, 512, 513, 4096, 4099, 70001, 1 << 20};
  for (const uint32_t length : lengths) {
    for (const uint64_t offset : {0, 1, 5, 8, 4091}) {
      buffers.emplace_back(length + 16, '#');
      reads.push_back({.region = 0, .length = length, .offset = offset});
    }
    buffers.emplace_back(length + 16, '#');  // up to the region's very end
    reads.push_back({.region = 0, .length = length, .offset = kTestRegionBytes[0] - length});
  }
  for (size_t i = 0; i < reads.size(); ++i) {
    reads[i].destination = buffers[i].data() + 8;
    reads[i].token = i;
  }
  endpoint->Read(reads);
  for (const auto& [token, status] : Collect(endpoint.get(), reads.size())) {
    const ReadDescriptor& read = reads[token];
    ASSERT_EQ(status, ReadStatus::kOk) << read.length << " bytes at " << read.offset;
    for (uint32_t i = 0; i < read.length; ++i) {
      ASSERT_EQ(read.destination[i], PatternByte(0, read.offset + i))
          << "byte " << i << " of " << read.length << " at " << read.offset;
    }
    // Nothing beside the destination.
    EXPECT_EQ(buffers[token].substr(0, 8), "########");
    EXPECT_EQ(buffers[token].substr(8 + read.length), "########");
  }
}

TEST_P(FabricConformance, ReadsIntoMemoryThatTheEndpointRegistered) {
  Local server = Export();
  auto connector = world_->MakeConnector();
  auto endpoint = Connect(connector.get(), server.address);
  constexpr size_t kBytes = 2 << 20;
  // Twice: places in the one are no places in the other.
  const std::shared_ptr<char[]> memories[] = {endpoint->Allocate(kBytes),
                                              endpoint->Allocate(kBytes)};
  std::vector<ReadDescriptor> reads;
  std::vector<std::string> expected;
  for (const auto& memory : memories) {
    ASSERT_NE(memory, nullptr);
    ASSERT_EQ(std::count(memory.get(), memory.get() + kBytes, 0), static_cast<ptrdiff_t>(kBytes));
    size_t at = expected.size() + 1;  // at any place, and up to the very end
    expected.emplace_back(kBytes, '\0');
    for (const uint32_t length : {8u, 7u, 64u, 512u, 513u, 4096u, 4099u, 1u << 20, 0u}) {
      for (const uint64_t offset : {uint64_t{0}, uint64_t{5}, uint64_t{4088}}) {
        if (length > 4099 && offset != 5) continue;
        reads.push_back({.region = 0,
                         .length = length,
                         .offset = offset,
                         .destination = memory.get() + at,
                         .token = reads.size()});
        for (uint32_t i = 0; i < length; ++i) {
          expected.back()[at + i] = PatternByte(0, offset + i);
        }
        at += length + 3;
      }
    }
    const uint32_t rest = static_cast<uint32_t>(kBytes - at);
    ASSERT_LT(rest, kReadBytesMax);
    reads.push_back({.region = 0,
                     .length = rest,
                     .offset = 8,
                     .destination = memory.get() + at,
                     .token = reads.size()});
    for (uint32_t i = 0; i < rest; ++i) expected.back()[at + i] = PatternByte(0, 8 + i);
  }
  endpoint->Read(reads);
  for (const auto& [token, status] : Collect(endpoint.get(), reads.size())) {
    ASSERT_EQ(status, ReadStatus::kOk)
        << reads[token].length << " bytes at " << reads[token].offset;
  }
  endpoint = nullptr;  // what was read there stays as long as somebody holds it
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(std::memcmp(memories[i].get(), expected[i].data(), kBytes), 0);
  }
}

// Reads are on their way when the connection ends, and the device may be in the middle of them.
TEST_P(FabricConformance, RegisteredMemoryMayBeGivenUpWithReadsOnTheirWay) {
  auto server = world_->StartServer();
  auto connector = world_->MakeConnector();
  for (const bool kill : {false, true}) {
    auto endpoint = Connect(connector.get(), server->address());
    std::shared_ptr<char[]> memory = endpoint->Allocate(1 << 20);
    std::vector<ReadDescriptor> reads;
    for (uint64_t i = 0; i < 200; ++i) {
      reads.push_back({.region = 0,
                       .length = 1 << 20,
                       .offset = 4096 * i,
                       .destination = memory.get(),
                       .token = i});
    }
    endpoint->Read(reads);
    if (kill) {
      server->Kill();
      Collect(endpoint.get(), reads.size());
    }
    memory = nullptr;
    endpoint = nullptr;
    world_->RunUntil([] { return false; }, Duration::Millis(50));
  }
}

TEST_P(FabricConformance, SeesTheServersWritesAndEveryRegion) {
  Local server = Export();
  auto connector = world_->MakeConnector();
  auto endpoint = Connect(connector.get(), server.address);
  uint64_t value = 0;
  for (uint64_t i = 1; i < 50; ++i) {
    StoreWord(server.memory[1].data() + kTestWordsAt, i);
    EXPECT_EQ(ReadOne(endpoint.get(), {.region = 1,
                                       .length = 8,
                                       .offset = kTestWordsAt,
                                       .destination = reinterpret_cast<char*>(&value)}),
              ReadStatus::kOk);
    EXPECT_EQ(value, i);
  }
}

TEST_P(FabricConformance, CompletesEachReadOfLargeBatchesExactlyOnce) {
  Local server = Export();
  auto connector = world_->MakeConnector();
  auto endpoint = Connect(connector.get(), server.address);
  constexpr size_t kReads = 10000;  // more than the server's credit
  std::vector<uint64_t> values(kReads);
  std::vector<ReadDescriptor> reads;
  for (size_t i = 0; i < kReads; ++i) {
    reads.push_back({.region = 0,
                     .length = 8,
                     .offset = i * 8,
                     .destination = reinterpret_cast<char*>(&values[i]),
                     .token = i});
  }
  endpoint->Read(reads);
  for (const auto& [token, status] : Collect(endpoint.get(), kReads)) {
    EXPECT_EQ(status, ReadStatus::kOk);
    EXPECT_EQ(values[token], PatternWord(token * 8));
  }
}

TEST_P(FabricConformance, CallsReadyWhenReadsCompleteLater) {
  Local server = Export();
  auto connector = world_->MakeConnector();
  auto endpoint = Connect(connector.get(), server.address);
  if (endpoint->capabilities().immediate) return;  // never calls it
  int calls = 0;
  std::map<uint64_t, ReadStatus> done;
  endpoint->SetReadyCallback(scope_.Bind([&] {
    ++calls;
    Completion batch[4];
    size_t n;
    while ((n = endpoint->Poll(batch)) > 0) {
      for (size_t i = 0; i < n; ++i) done.emplace(batch[i].token, batch[i].status);
    }
  }));
  std::vector<char> buffer(1 << 20);
  for (uint64_t round = 0; round < 20; ++round) {
    std::vector<ReadDescriptor> reads;
    for (uint64_t i = 0; i < 100; ++i) {
      // Good and bad ones together; the bad ones complete sooner.
      reads.push_back({.region = i % 10 == 3 ? 9u : 0u,
                       .length = 4096,
                       .offset = i * 4096,
                       .destination = buffer.data() + i * 4096,
                       .token = round * 100 + i});
    }
    endpoint->Read(reads);
    EXPECT_TRUE(world_->RunUntil([&] { return done.size() == (round + 1) * 100; }, kLimit));
  }
  EXPECT_GE(calls, 20);
}

TEST_P(FabricConformance, RefusesMoreReadsThanItsQueueHolds) {
  Local server = Export();
  auto connector = world_->MakeConnector();
  auto endpoint = Connect(connector.get(), server.address);
  std::vector<uint64_t> values(kQueuedReadsMax + 100);
  std::vector<ReadDescriptor> reads;
  for (size_t i = 0; i < values.size(); ++i) {
    reads.push_back({.region = 0,
                     .length = 8,
                     .offset = i,
                     .destination = reinterpret_cast<char*>(&values[i]),
                     .token = i});
  }
  endpoint->Read(reads);
  size_t overloaded = 0;
  for (const auto& [token, status] : Collect(endpoint.get(), reads.size())) {
    if (status == ReadStatus::kOverloaded) {
      EXPECT_GE(token, kQueuedReadsMax);
      ++overloaded;
    }
  }
  EXPECT_EQ(overloaded, 100u);
  uint64_t value;
  EXPECT_EQ(ReadWord(endpoint.get(), &value), ReadStatus::kOk);
}

TEST_P(FabricConformance, ReadsBeyondARegionAreOutOfRange) {
  Local server = Export();
  auto connector = world_->MakeConnector();
  auto endpoint = Connect(connector.get(), server.address);
  std::vector<char> buffer(kReadBytesMax + 8);
  const uint64_t size = kTestRegionBytes[0];
  const ReadDescriptor bad[] = {
      {.region = 2, .length = 8, .offset = 0},
      {.region = ~0u, .length = 8, .offset = 0},
      {.region = 0, .length = 8, .offset = size - 7},
      {.region = 0, .length = 1, .offset = size},
      {.region = 0, .length = 0, .offset = size + 1},
      {.region = 0, .length = 8, .offset = ~uint64_t{0} - 3},
      {.region = 0, .length = ~0u, .offset = 8},
      {.region = 0, .length = kReadBytesMax + 1, .offset = 0},
  };
  for (ReadDescriptor read : bad) {
    read.destination = buffer.data();
    EXPECT_EQ(ReadOne(endpoint.get(), read), ReadStatus::kOutOfRange)
        << "region " << read.region << ", " << read.length << " bytes at " << read.offset;
  }
  uint64_t value;
  EXPECT_EQ(ReadWord(endpoint.get(), &value), ReadStatus::kOk);
}

TEST_P(FabricConformance, NothingIsReadableAfterInvalidateUntilRenewedAndReconnected) {
  Local server = Export();
  auto connector = world_->MakeConnector();
  auto endpoint = Connect(connector.get(), server.address);
  uint64_t value = 0;
  EXPECT_EQ(ReadWord(endpoint.get(), &value), ReadStatus::kOk);
  const Generation generation = endpoint->regions()[0].generation;
  server.exporter->Invalidate();
  // Before the reader's loop could learn anything.
  const ReadStatus status = ReadWord(endpoint.get(), &value);
  EXPECT_TRUE(status == ReadStatus::kStaleRegion || status == ReadStatus::kUnreachable)
      << static_cast<int>(status);
  EXPECT_TRUE(Eventually([&] { return !endpoint->connected(); }, kLimit));
  EXPECT_TRUE(endpoint->regions().empty());
  const auto refused = TryConnect(connector.get(), server.address);
  EXPECT_EQ(refused.status().code(), StatusCode::kUnavailable) << refused.status();
  server.exporter->Renew();
  EXPECT_NE(ReadWord(endpoint.get(), &value), ReadStatus::kOk);  // the old one stays broken
  auto second = Connect(connector.get(), server.address);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(second->regions()[0].generation, generation);
  EXPECT_EQ(ReadWord(second.get(), &value), ReadStatus::kOk);
  EXPECT_NE(ReadWord(endpoint.get(), &value), ReadStatus::kOk);
}

TEST_P(FabricConformance, InvalidateInTheMiddleOfReadsNeverGivesLaterBytes) {
  auto connector = world_->MakeConnector();
  for (int round = 0; round < 10; ++round) {
    Local server = Export();
    auto endpoint = Connect(connector.get(), server.address);
    std::vector<char> buffer(256 * 4096);
    std::vector<ReadDescriptor> reads;
    for (uint64_t i = 0; i < 256; ++i) {
      reads.push_back({.region = 0,
                       .length = 4096,
                       .offset = i * 4096,
                       .destination = buffer.data() + i * 4096,
                       .token = i});
    }
    endpoint->Read(reads);
    server.exporter->Invalidate();
    for (char& c : server.memory[0]) c = '!';  // laid out anew
    for (const auto& [token, status] : Collect(endpoint.get(), reads.size())) {
      if (status != ReadStatus::kOk) continue;
      for (uint64_t i = 0; i < 4096; ++i) {
        ASSERT_EQ(buffer[token * 4096 + i], PatternByte(0, token * 4096 + i));
      }
    }
  }
}

TEST_P(FabricConformance, RegionsAreCheckedWhenTheyAreAdded) {
  auto exporter = world_->MakeExporter();
  EXPECT_TRUE(IsInvalidArgument(exporter->AddRegion(0, 0).status()));
  EXPECT_TRUE(IsInvalidArgument(exporter->AddRegion(0, 12).status()));
  EXPECT_TRUE(IsInvalidArgument(exporter->AddRegion(kRegionsMax, 4096).status()));
  auto memory = exporter->AddRegion(0, 4104);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory->size(), 4104u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % 4096, 0u);
  EXPECT_EQ((*memory)[4103], 0);
  EXPECT_TRUE(IsInvalidArgument(exporter->AddRegion(0, 4096).status()));
  ASSERT_TRUE(exporter->AddRegion(2, 4096).ok());
  EXPECT_TRUE(IsInvalidArgument(exporter->Listen().status()));  // 1 is missing
}

TEST_P(FabricConformance, ConnectingToNobodyFails) {
  auto connector = world_->MakeConnector();
  EXPECT_TRUE(IsUnavailable(TryConnect(connector.get(), world_->DeadAddress()).status()));
  for (const char* bad : {"", "shm", "smoke:signals", "tcp:localhost", "tcp:localhost:99999",
                          "tcp:127.0.0.1:80#12", "shm:#zzzzzzzzzzzzzzzz"}) {
    EXPECT_FALSE(TryConnect(connector.get(), bad).ok()) << bad;
  }
  EXPECT_TRUE(IsInvalidArgument(TryConnect(connector.get(), "smoke:signals").status()));
  Local server = Export();
  std::string other = server.address;  // another incarnation at the same place
  other.back() = other.back() == '0' ? '1' : '0';
  EXPECT_TRUE(IsUnavailable(TryConnect(connector.get(), other).status()));
  EXPECT_NE(Connect(connector.get(), server.address.substr(0, server.address.rfind('#'))), nullptr);
}

TEST_P(FabricConformance, AServerKilledUnderReadsCompletesEachOnceAndIsUnreachableSoon) {
  auto server = world_->StartServer();
  auto connector = world_->MakeConnector();
  auto endpoint = Connect(connector.get(), server->address());
  ASSERT_NE(endpoint, nullptr);
  std::vector<char> buffer(1024 * 4096);
  std::vector<ReadDescriptor> reads;
  for (uint64_t i = 0; i < 1024; ++i) {
    reads.push_back({.region = 0,
                     .length = 4096,
                     .offset = i * 4096,
                     .destination = buffer.data() + i * 4096,
                     .token = i});
  }
  endpoint->Read(reads);
  server->Kill();
  for (const auto& [token, status] : Collect(endpoint.get(), reads.size())) {
    if (status == ReadStatus::kOk) {
      for (uint64_t i = token * 4096; i < (token + 1) * 4096; ++i) {
        ASSERT_EQ(buffer[i], PatternByte(0, i));
      }
    } else {
      ASSERT_EQ(status, ReadStatus::kUnreachable);
    }
  }
  EXPECT_TRUE(Eventually([&] { return !endpoint->connected(); }, Duration::Seconds(5)));
  uint64_t value;
  EXPECT_EQ(ReadWord(endpoint.get(), &value), ReadStatus::kUnreachable);
  EXPECT_TRUE(IsUnavailable(TryConnect(connector.get(), server->address()).status()));
}

TEST_P(FabricConformance, AStoppedServerIsNoticedAndForgivenWhenItGoesOn) {
  auto server = world_->StartServer();
  auto connector = world_->MakeConnector();
  auto endpoint = Connect(connector.get(), server->address());
  ASSERT_NE(endpoint, nullptr);
  endpoint->set_read_timeout(Duration::Millis(100));
  server->Stop();
  uint64_t value = 0;
  ReadStatus status = ReadStatus::kOk;
  // Memory may go on reading for as long as the heartbeat is young.
  EXPECT_TRUE(Eventually(
      [&] {
        status = ReadWord(endpoint.get(), &value);
        return status != ReadStatus::kOk;
      },
      Duration::Seconds(5)));
  EXPECT_TRUE(status == ReadStatus::kTimeout || status == ReadStatus::kUnreachable);
  server->Continue();
  EXPECT_TRUE(Eventually(
      [&] {
        if (!endpoint->connected()) {
          auto again = TryConnect(connector.get(), server->address());
          if (!again.ok()) return false;
          endpoint = std::move(again).value();
        }
        return ReadWord(endpoint.get(), &value) == ReadStatus::kOk;
      },
      Duration::Seconds(10)));
  EXPECT_EQ(value, PatternWord(0));
}

TEST_P(FabricConformance, ADestinationIsNotWrittenAfterATimeout) {
  auto server = world_->StartServer();
  auto connector = world_->MakeConnector();
  auto endpoint = Connect(connector.get(), server->address());
  ASSERT_NE(endpoint, nullptr);
  if (endpoint->capabilities().immediate) return;
  endpoint->set_read_timeout(Duration::Millis(30));
  server->Stop();
  std::vector<char> buffer(600 * 4099);
  std::vector<ReadDescriptor> reads;
  for (uint64_t i = 0; i < 600; ++i) {
    reads.push_back({.region = 0,
                     .length = 4099,
                     .offset = i * 4099,
                     .destination = buffer.data() + i * 4099,
                     .token = i});
  }
  endpoint->Read(reads);
  for (const auto& [token, status] : Collect(endpoint.get(), reads.size())) {
    // One-sided memory may read on; where an engine answers, it does not.
    EXPECT_TRUE(status == ReadStatus::kTimeout || status == ReadStatus::kOk);
  }
  std::fill(buffer.begin(), buffer.end(), '#');
  endpoint->set_read_timeout(Duration::Seconds(20));
  server->Continue();
  uint64_t value = 0;
  // Comes after the late answers. (A server stopped for long has to beat again first.)
  EXPECT_TRUE(
      Eventually([&] { return ReadWord(endpoint.get(), &value) == ReadStatus::kOk; }, kLimit));
  EXPECT_EQ(value, PatternWord(0));
  EXPECT_EQ(std::count(buffer.begin(), buffer.end(), '#'), static_cast<ptrdiff_t>(buffer.size()));
}

TEST_P(FabricConformance, AnEndpointMayBeDestroyedWithReadsAndWatchesOutstanding) {
  Local server = Export();
  auto connector = world_->MakeConnector();
  bool watched = false;
  for (int round = 0; round < 30; ++round) {
    auto endpoint = Connect(connector.get(), server.address);
    ASSERT_NE(endpoint, nullptr);
    auto buffer = std::make_unique<char[]>(200 * 4096);
    std::vector<ReadDescriptor> reads;
    for (uint64_t i = 0; i < 200; ++i) {
      reads.push_back({.region = 0,
                       .length = 4096,
                       .offset = i * 4096,
                       .destination = buffer.get() + i * 4096,
                       .token = i});
    }
    endpoint->Watch(1, kTestWordsAt, 0, Duration::Seconds(100),
                    scope_.Bind([&](WatchOutcome) { watched = true; }));
    endpoint->Read(reads);
    int turns = round;
    world_->RunUntil([&] { return turns-- <= 0; }, Duration::Millis(1));
    endpoint.reset();
    buffer.reset();  // a late write would be one to freed memory
  }
  uint64_t value;
  auto endpoint = Connect(connector.get(), server.address);
  EXPECT_EQ(ReadWord(endpoint.get(), &value), ReadStatus::kOk);
  StoreWord(server.memory[1].data() + kTestWordsAt, 1);
  server.exporter->Notify(1, kTestWordsAt);
  EXPECT_EQ(ReadWord(endpoint.get(), &value), ReadStatus::kOk);
  EXPECT_FALSE(watched);
}

TEST_P(FabricConformance, AnEndpointOutlivesItsConnectorAndConnectsInFlightAreDropped) {
  Local server = Export();
  auto connector = world_->MakeConnector();
  auto endpoint = Connect(connector.get(), server.address);
  bool called = false;
  connector->Connect(server.address, Duration::Seconds(1),
                     scope_.Bind([&](auto) { called = true; }));
  connector.reset();
  uint64_t value = 0;
  EXPECT_EQ(ReadWord(endpoint.get(), &value), ReadStatus::kOk);
  EXPECT_EQ(ReadWord(endpoint.get(), &value), ReadStatus::kOk);
  EXPECT_FALSE(called);
}

TEST_P(FabricConformance, AnEndpointMayBeDestroyedByItsOwnCallbacks) {
  Local server = Export();
  auto connector = world_->MakeConnector();
  auto endpoint = Connect(connector.get(), server.address);
  bool notified = false;
  endpoint->Watch(1, kTestWordsAt, 7, Duration::Seconds(10), scope_.Bind([&](WatchOutcome) {
    endpoint.reset();
    notified = true;
  }));
  EXPECT_TRUE(world_->RunUntil([&] { return notified; }, kLimit));
  auto second = Connect(connector.get(), server.address);
  if (second->capabilities().immediate) return;
  bool ready = false;
  auto token = std::make_shared<int>(0);
  second->SetReadyCallback(scope_.Bind([&, token] {
    second.reset();
    ready = *token == 0;  // the callback itself is still there
  }));
  uint64_t value;
  const ReadDescriptor read{.region = 0,
                            .length = 8,
                            .offset = 0,
                            .destination = reinterpret_cast<char*>(&value),
                            .token = 1};
  second->Read({&read, 1});
  EXPECT_TRUE(world_->RunUntil([&] { return ready; }, kLimit));
}

TEST_P(FabricConformance, ServesManyEndpointsAtOnce) {
  auto server = world_->StartServer();
  auto connector = world_->MakeConnector();
  constexpr size_t kEndpoints = 64;
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  for (size_t e = 0; e < kEndpoints; ++e) {
    endpoints.push_back(Connect(connector.get(), server->address()));
    ASSERT_NE(endpoints.back(), nullptr);
  }
  std::vector<std::vector<char>> buffers(kEndpoints, std::vector<char>(32 * 1000));
  for (size_t e = 0; e < kEndpoints; ++e) {
    std::vector<ReadDescriptor> reads;
    for (uint64_t i = 0; i < 32; ++i) {
      reads.push_back({.region = 0,
                       .length = 1000,
                       .offset = e * 4096 + i * 1000,
                       .destination = buffers[e].data() + i * 1000,
                       .token = i});
    }
    endpoints[e]->Read(reads);
  }
  for (size_t e = 0; e < kEndpoints; ++e) {
    for (const auto& [token, status] : Collect(endpoints[e].get(), 32)) {
      ASSERT_EQ(status, ReadStatus::kOk);
    }
    for (size_t i = 0; i < buffers[e].size(); ++i) {
      ASSERT_EQ(buffers[e][i], PatternByte(0, e * 4096 + i));
    }
  }
}

TEST_P(FabricConformance, AnAlignedWordOfAShortReadIsNeverTorn) {
  Local server = Export();
  auto connector = world_->MakeConnector();
  auto endpoint = Connect(connector.get(), server.address);
  const uint32_t most = std::min(endpoint->capabilities().word_atomic_bytes_max, 512u);
  if (most == 0) GTEST_SKIP() << "it says so: capabilities().word_atomic_bytes_max";
  ASSERT_GE(most, 256u) << "the test's reads want room";
  char* words = server.memory[1].data() + kTestWordsAt;
  std::atomic<uint64_t> next{0};
  // Each word is one byte eight times; the values differ all the time.
  auto writing = world_->KeepWriting([&, words]() {
    const uint64_t first = ++next;
    for (uint64_t i = 0; i < 80; ++i) {
      StoreWord(words + i * 8, (first + i) % 255 * 0x0101010101010101ull);
    }
  });
  std::vector<char> buffer(size_t{64} * most);
  // Rounds count in which the writer ran, too: on a busy machine it may not for a while.
  int shared_rounds = 0;
  const MonotonicTime end = world_->loop()->Now() + kLimit / 4;
  for (uint64_t round = 0; shared_rounds < 200 && world_->loop()->Now() < end; ++round) {
    const uint64_t before = next;
    std::vector<ReadDescriptor> reads;
    for (uint64_t i = 0; i < 64; ++i) {
      reads.push_back({.region = 1,
                       .length = static_cast<uint32_t>(most - i * 3),
                       .offset = kTestWordsAt + (i * 5 + round) % 61,
                       .destination = buffer.data() + i * most,
                       .token = i});
    }
    endpoint->Read(reads);
    Collect(endpoint.get(), reads.size());
    shared_rounds += next != before;
    for (const ReadDescriptor& read : reads) {
      for (uint64_t at = (read.offset + 7) & ~uint64_t{7}; at + 8 <= read.offset + read.length;
           at += 8) {
        const char* word = read.destination + (at - read.offset);
        ASSERT_EQ(std::count(word, word + 8, word[0]), 8) << "word at " << at;
      }
    }
  }
  EXPECT_GT(shared_rounds, 0) << "the writer never ran beside a read";
}

TEST_P(FabricConformance, AServerThatCeasesToBeatIsUnreachableUntilItBeatsAgain) {
  Local server = Export();
  auto connector = world_->MakeConnector();
  auto endpoint = Connect(connector.get(), server.address);
  uint64_t value = 0;
  EXPECT_EQ(ReadWord(endpoint.get(), &value), ReadStatus::kOk);  // never beat: nobody minds
  server.exporter->Beat();
  EXPECT_TRUE(
      Eventually([&] { return ReadWord(endpoint.get(), &value) == ReadStatus::kUnreachable; },
                 Duration::Seconds(10)));
  EXPECT_TRUE(endpoint->connected());
  server.exporter->Beat();
  EXPECT_EQ(ReadWord(endpoint.get(), &value), ReadStatus::kOk);
}

TEST_P(FabricConformance, AWatchIsNotifiedWhenItsWordChanges) {
  auto server = world_->StartServer();
  auto connector = world_->MakeConnector();
  auto endpoint = Connect(connector.get(), server->address());
  ASSERT_NE(endpoint, nullptr);
  ASSERT_TRUE(endpoint->capabilities().watch);
  for (uint64_t i = 0; i < 20; ++i) {
    int notifications = 0, others = 0;
    WatchOutcome outcome = WatchOutcome::kTimeout;
    endpoint->Watch(1, kTestWordsAt, static_cast<uint32_t>(i), kLimit,
                    scope_.Bind([&](WatchOutcome o) {
                      outcome = o;
                      ++notifications;
                    }));
    const uint64_t other =
        endpoint->Watch(1, kTestWordsAt + 8, 0, kLimit, scope_.Bind([&](auto) { ++others; }));
    server->SetAndNotify(kTestWordsAt, i + 1);
    EXPECT_TRUE(world_->RunUntil([&] { return notifications > 0; }, kLimit));
    EXPECT_EQ(outcome, WatchOutcome::kChanged);
    uint64_t value = 0;
    EXPECT_EQ(ReadOne(endpoint.get(), {.region = 1,
                                       .length = 8,
                                       .offset = kTestWordsAt,
                                       .destination = reinterpret_cast<char*>(&value)}),
              ReadStatus::kOk);
    EXPECT_EQ(value, i + 1);
    EXPECT_EQ(notifications, 1);
    EXPECT_EQ(others, 0);
    endpoint->CancelWatch(other);
  }
}

TEST_P(FabricConformance, AWatchAnswersAtOnceWhenTheWordDiffersAlready) {
  Local server = Export();
  auto connector = world_->MakeConnector();
  auto endpoint = Connect(connector.get(), server.address);
  // Low half the same, high half not: no change.
  StoreWord(server.memory[1].data() + kTestWordsAt, 5ull << 32 | 3);
  int changed = 0, timed_out = 0;
  endpoint->Watch(1, kTestWordsAt, 2, kLimit,
                  scope_.Bind([&](WatchOutcome o) { changed += o == WatchOutcome::kChanged; }));
  endpoint->Watch(1, kTestWordsAt, 3, Duration::Millis(20),
                  scope_.Bind([&](WatchOutcome o) { timed_out += o == WatchOutcome::kTimeout; }));
  EXPECT_EQ(changed, 0);  // never inside the call
  EXPECT_TRUE(world_->RunUntil([&] { return changed == 1 && timed_out == 1; }, kLimit));
}

TEST_P(FabricConformance, ManyWatchesOfOneWordAreAllNotifiedOnce) {
  Local server = Export();
  auto connector = world_->MakeConnector();
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  for (int e = 0; e < 8; ++e) endpoints.push_back(Connect(connector.get(), server.address));
  std::vector<int> notifications(16, 0);
  for (size_t w = 0; w < 16; ++w) {
    endpoints[w / 2]->Watch(1, kTestWordsAt, 0, kLimit, scope_.Bind([&, w](WatchOutcome o) {
      EXPECT_EQ(o, WatchOutcome::kChanged);
      ++notifications[w];
    }));
  }
  // A hundred changes, any number of notifications, one answer each.
  for (uint64_t i = 1; i <= 100; ++i) {
    StoreWord(server.memory[1].data() + kTestWordsAt, i);
    server.exporter->Notify(1, kTestWordsAt);
  }
  EXPECT_TRUE(world_->RunUntil(
      [&] {
        return std::all_of(notifications.begin(), notifications.end(), [](int n) { return n > 0; });
      },
      kLimit));
  uint64_t value;
  for (auto& endpoint : endpoints) EXPECT_EQ(ReadWord(endpoint.get(), &value), ReadStatus::kOk);
  EXPECT_EQ(notifications, std::vector<int>(16, 1));
}

TEST_P(FabricConformance, ACancelledWatchIsNotCalled) {
  Local server = Export();
  auto connector = world_->MakeConnector();
  auto endpoint = Connect(connector.get(), server.address);
  bool called = false, sentinel = false;
  const uint64_t a =
      endpoint->Watch(1, kTestWordsAt, 0, kLimit, scope_.Bind([&](auto) { called = true; }));
  const uint64_t b =
      endpoint->Watch(1, kTestWordsAt, 9, kLimit, scope_.Bind([&](auto) { called = true; }));
  EXPECT_NE(a, b);
  EXPECT_NE(a, 0u);
  endpoint->CancelWatch(a);
  endpoint->CancelWatch(b);
  endpoint->CancelWatch(b);
  endpoint->CancelWatch(12345);
  endpoint->Watch(1, kTestWordsAt, 0, kLimit, scope_.Bind([&](auto) { sentinel = true; }));
  StoreWord(server.memory[1].data() + kTestWordsAt, 1);
  server.exporter->Notify(1, kTestWordsAt);
  EXPECT_TRUE(world_->RunUntil([&] { return sentinel; }, kLimit));
  EXPECT_FALSE(called);
}

TEST_P(FabricConformance, WatchesAreCappedAndRefusedNotLost) {
  Local server = Export();
  auto connector = world_->MakeConnector();
  auto endpoint = Connect(connector.get(), server.address);
  constexpr int kWatches = 6000;  // above every driver's cap
  std::map<WatchOutcome, int> outcomes;
  int answers = 0;
  for (int i = 0; i < kWatches; ++i) {
    endpoint->Watch(1, kTestWordsAt + 8, 0, kLimit, scope_.Bind([&](WatchOutcome o) {
      ++outcomes[o];
      ++answers;
    }));
  }
  EXPECT_TRUE(world_->RunUntil([&] { return outcomes[WatchOutcome::kRefused] > 0; }, kLimit));
  StoreWord(server.memory[1].data() + kTestWordsAt + 8, 1);
  server.exporter->Notify(1, kTestWordsAt + 8);
  EXPECT_TRUE(world_->RunUntil([&] { return answers == kWatches; }, kLimit));
  EXPECT_GT(outcomes[WatchOutcome::kChanged], 0);
  EXPECT_EQ(outcomes[WatchOutcome::kChanged] + outcomes[WatchOutcome::kRefused], kWatches);
  for (const uint64_t bad : {uint64_t{4}, kTestRegionBytes[1], ~uint64_t{7}}) {
    WatchOutcome outcome = WatchOutcome::kTimeout;
    bool answered = false;
    endpoint->Watch(1, bad, 0, kLimit,
                    scope_.Bind([&](WatchOutcome o) { outcome = o, answered = true; }));
    EXPECT_TRUE(world_->RunUntil([&] { return answered; }, kLimit));
    EXPECT_EQ(outcome, WatchOutcome::kRefused);
  }
}

TEST_P(FabricConformance, WatchesOfAServerThatDiesOrInvalidatesAreUnreachable) {
  auto connector = world_->MakeConnector();
  Local local = Export();
  auto remote = world_->StartServer();
  auto a = Connect(connector.get(), local.address);
  auto b = Connect(connector.get(), remote->address());
  int answered = 0;
  const auto expect_unreachable = [&](WatchOutcome o) {
    EXPECT_EQ(o, WatchOutcome::kUnreachable);
    ++answered;
  };
  a->Watch(1, kTestWordsAt, 0, kLimit, scope_.Bind(expect_unreachable));
  b->Watch(1, kTestWordsAt, 0, kLimit, scope_.Bind(expect_unreachable));
  local.exporter->Invalidate();
  remote->Kill();
  EXPECT_TRUE(world_->RunUntil([&] { return answered == 2; }, Duration::Seconds(10)));
  b->Watch(1, kTestWordsAt, 0, kLimit, scope_.Bind(expect_unreachable));
  EXPECT_TRUE(world_->RunUntil([&] { return answered == 3; }, kLimit));
}

}  // namespace tailcast::fabric
