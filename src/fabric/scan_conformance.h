// What scan-and-read promises where a driver has it: further tests of the suite in
// fabric_conformance.h, for the same drivers.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tailcast/fabric/fabric_conformance.h"

namespace tailcast::fabric {

// A request says itself which ranges it means: their number, 3 regions, 3 lengths, 3 offsets.
inline ScanRequest AskFor(std::initializer_list<Range> ranges) {
  ScanRequest request{};
  request[0] = static_cast<char>(ranges.size());
  size_t i = 0;
  for (const Range& range : ranges) {
    request[1 + i] = static_cast<char>(range.region);
    const auto offset = static_cast<uint32_t>(range.offset);
    std::memcpy(request.data() + 4 + 4 * i, &range.length, 4);
    std::memcpy(request.data() + 16 + 4 * i, &offset, 4);
    ++i;
  }
  return request;
}
// The scanner of such requests; it looks at nothing and lies if it is told to.
inline ScanPlan TestScan(const ScanRequest& request, std::span<const std::span<const char>>) {
  ScanPlan plan;
  plan.count = static_cast<uint8_t>(request[0]);
  for (size_t i = 0; i < kScanRangesMax; ++i) {
    uint32_t offset;
    std::memcpy(&plan.ranges[i].length, request.data() + 4 + 4 * i, 4);
    std::memcpy(&offset, request.data() + 16 + 4 * i, 4);
    plan.ranges[i].offset = offset;
    plan.ranges[i].region = static_cast<uint8_t>(request[1 + i]);
  }
  return plan;
}

class ScanConformance : public FabricConformance {
 protected:
  // A scan with memory of its own for each range.
  struct Asked {
    ScanRead scan;
    std::string bytes[kScanRangesMax];

    void Ask(std::initializer_list<Range> ranges, uint64_t token, uint32_t room = 16) {
      scan.request = AskFor(ranges);
      scan.token = token;
      size_t i = 0;
      for (const Range& range : ranges) {
        bytes[i].assign(range.length + room, '#');
        scan.parts[i] = {bytes[i].data(), range.length + room};
        ++i;
      }
    }
    void ExpectFound(std::initializer_list<Range> ranges) const {
      ASSERT_EQ(scan.found.count, ranges.size());
      size_t i = 0;
      for (const Range& range : ranges) {
        EXPECT_EQ(scan.found.ranges[i].region, range.region);
        EXPECT_EQ(scan.found.ranges[i].offset, range.offset);
        ASSERT_EQ(scan.found.ranges[i].length, range.length);
        for (uint32_t b = 0; b < range.length; ++b) {
          ASSERT_EQ(bytes[i][b], PatternByte(range.region, range.offset + b)) << b;
        }
        EXPECT_EQ(bytes[i].substr(range.length), std::string(bytes[i].size() - range.length, '#'));
        ++i;
      }
    }
  };
  using Scans = std::vector<std::unique_ptr<Asked>>;

  Local ServeScans() {
    return Export([](Exporter& exporter) { exporter.SetScanner(TestScan); });
  }
  // Null: this driver does not scan.
  std::unique_ptr<Endpoint> ConnectForScans(Connector* connector, const std::string& address) {
    auto endpoint = Connect(connector, address);
    if (endpoint != nullptr && !endpoint->capabilities().scan) endpoint.reset();
    return endpoint;
  }
  static void Start(Endpoint* endpoint, const Scans& scans) {
    std::vector<ScanRead*> all;
    for (const auto& asked : scans) all.push_back(&asked->scan);
    endpoint->Scan(all);
  }
  ReadStatus ScanOne(Endpoint* endpoint, Asked& asked) {
    ScanRead* const scan = &asked.scan;
    endpoint->Scan({&scan, 1});
    const auto done = Collect(endpoint, 1);
    return done.contains(scan->token) ? done.at(scan->token) : ReadStatus::kTimeout;
  }
  // `count` scans of a word, a line and `bytes`.
  static Scans ChunkScans(size_t count, uint32_t bytes) {
    Scans scans;
    for (size_t i = 0; i < count; ++i) {
      scans.push_back(std::make_unique<Asked>());
      scans.back()->Ask({{1, 8, i % 1000 * 8}, {0, 64, i % 100 * 64}, {0, bytes, i % 500 * 4099}},
                        i);
    }
    return scans;
  }
  static void ExpectChunk(const Asked& asked, uint32_t bytes) {
    const uint64_t i = asked.scan.token;
    asked.ExpectFound({{1, 8, i % 1000 * 8}, {0, 64, i % 100 * 64}, {0, bytes, i % 500 * 4099}});
  }
};

TEST_P(ScanConformance, AScanBringsItsRangesInOrderAndNothingBesideThem) {
  Local server = ServeScans();
  auto connector = world_->MakeConnector();
  auto endpoint = ConnectForScans(connector.get(), server.address);
  if (endpoint == nullptr) return;
  for (const uint32_t length : {0u, 1u, 7u, 8u, 128u, 512u, 513u, 4096u, 4099u, 70001u, 1u << 20}) {
    Asked none, one, two, three;
    none.Ask({}, 1);
    EXPECT_EQ(ScanOne(endpoint.get(), none), ReadStatus::kOk);
    none.ExpectFound({});
    one.Ask({{0, length, 5}}, 2);
    EXPECT_EQ(ScanOne(endpoint.get(), one), ReadStatus::kOk);
    one.ExpectFound({{0, length, 5}});
    two.Ask({{1, 17, 3}, {0, length, kTestRegionBytes[0] - length}}, 3);
    EXPECT_EQ(ScanOne(endpoint.get(), two), ReadStatus::kOk);
    two.ExpectFound({{1, 17, 3}, {0, length, kTestRegionBytes[0] - length}});
    three.Ask({{0, length, 0}, {1, 0, 0}, {0, 64, 64}}, 4);
    EXPECT_EQ(ScanOne(endpoint.get(), three), ReadStatus::kOk);
    three.ExpectFound({{0, length, 0}, {1, 0, 0}, {0, 64, 64}});
  }
}

TEST_P(ScanConformance, RangesThatLieSideBySideInTheReadersMemoryArriveThere) {
  Local server = ServeScans();
  auto connector = world_->MakeConnector();
  auto endpoint = ConnectForScans(connector.get(), server.address);
  if (endpoint == nullptr) return;
  for (const uint32_t first : {128u, 127u, 4096u}) {
    std::string bytes(first + 64 + 5000, '#');
    ScanRead scan;
    scan.request = AskFor({{0, first, 0}, {0, 64, 8000}, {0, 5000, 100}});
    scan.parts = {
        {{bytes.data(), first}, {bytes.data() + first, 64}, {bytes.data() + first + 64, 5000}}};
    ScanRead* const one = &scan;
    endpoint->Scan({&one, 1});
    EXPECT_EQ(Collect(endpoint.get(), 1).at(0), ReadStatus::kOk);
    const auto expected = [&](uint32_t at) {
      if (at < first) return PatternByte(0, at);
      return at < first + 64 ? PatternByte(0, 8000 + at - first)
                             : PatternByte(0, 100 + at - first - 64);
    };
    for (uint32_t at = 0; at < bytes.size(); ++at) ASSERT_EQ(bytes[at], expected(at)) << at;
  }
}

TEST_P(ScanConformance, AScannersRangesAreCheckedAgainstTheRegions) {
  Local server = ServeScans();
  auto connector = world_->MakeConnector();
  auto endpoint = ConnectForScans(connector.get(), server.address);
  if (endpoint == nullptr) return;
  const auto size = static_cast<uint32_t>(kTestRegionBytes[0]);
  for (const Range& bad : {Range{2, 8, 0}, Range{200, 8, 0}, Range{0, 8, size - 7},
                           Range{0, 1, size}, Range{0, ~0u, 8}, Range{0, kReadBytesMax + 1, 0}}) {
    Asked asked;
    asked.Ask({{1, 8, 0}, bad, {1, 8, 0}}, 5, 0);
    EXPECT_EQ(ScanOne(endpoint.get(), asked), ReadStatus::kOutOfRange) << bad.offset;
  }
  Asked too_many;
  too_many.Ask({{1, 8, 0}}, 6);
  too_many.scan.request[0] = 4;
  EXPECT_EQ(ScanOne(endpoint.get(), too_many), ReadStatus::kOutOfRange);
  Asked good;
  good.Ask({{0, 8, size - 8}}, 7);
  EXPECT_EQ(ScanOne(endpoint.get(), good), ReadStatus::kOk);
}

TEST_P(ScanConformance, LargeBatchesAmongReadsCompleteEachExactlyOnce) {
  Local server = ServeScans();
  auto connector = world_->MakeConnector();
  auto endpoint = ConnectForScans(connector.get(), server.address);
  if (endpoint == nullptr) return;
  constexpr size_t kScans = 5000, kReads = 5000;  // each more than the server's credit
  const Scans scans = ChunkScans(kScans, 700);
  std::vector<uint64_t> words(kReads);
  std::vector<ReadDescriptor> reads;
  for (size_t i = 0; i < kReads; ++i) {
    reads.push_back({.region = 0,
                     .length = 8,
                     .offset = i * 8,
                     .destination = reinterpret_cast<char*>(&words[i]),
                     .token = kScans + i});
  }
  endpoint->Read(std::span(reads).first(kReads / 2));
  Start(endpoint.get(), scans);
  endpoint->Read(std::span(reads).subspan(kReads / 2));
  for (const auto& [token, status] : Collect(endpoint.get(), kScans + kReads)) {
    ASSERT_EQ(status, ReadStatus::kOk);
    if (token >= kScans) {
      EXPECT_EQ(words[token - kScans], PatternWord((token - kScans) * 8));
    } else {
      ExpectChunk(*scans[token], 700);
    }
  }
}

TEST_P(ScanConformance, MoreScansThanTheQueueHoldsAreOverloaded) {
  Local server = ServeScans();
  auto connector = world_->MakeConnector();
  auto endpoint = ConnectForScans(connector.get(), server.address);
  if (endpoint == nullptr) return;
  const Scans scans = ChunkScans(kQueuedReadsMax + 50, 8);
  Start(endpoint.get(), scans);
  size_t overloaded = 0;
  for (const auto& [token, status] : Collect(endpoint.get(), scans.size())) {
    overloaded += status == ReadStatus::kOverloaded ? 1 : 0;
  }
  EXPECT_EQ(overloaded, 50u);
}

TEST_P(ScanConformance, NothingIsScannedAfterInvalidate) {
  Local server = ServeScans();
  auto connector = world_->MakeConnector();
  auto endpoint = ConnectForScans(connector.get(), server.address);
  if (endpoint == nullptr) return;
  const Scans scans = ChunkScans(200, 4096);
  Start(endpoint.get(), scans);
  server.exporter->Invalidate();
  for (std::span<char> memory : server.memory) std::fill(memory.begin(), memory.end(), '!');
  for (const auto& [token, status] : Collect(endpoint.get(), scans.size())) {
    if (status == ReadStatus::kOk) ExpectChunk(*scans[token], 4096);
  }
  Asked late;
  late.Ask({{0, 8, 0}}, 1);
  const ReadStatus status = ScanOne(endpoint.get(), late);
  EXPECT_TRUE(status == ReadStatus::kStaleRegion || status == ReadStatus::kUnreachable);
  // Also one that finds nothing says nothing then.
  late.Ask({}, 2);
  EXPECT_NE(ScanOne(endpoint.get(), late), ReadStatus::kOk);
}

TEST_P(ScanConformance, AServerKilledUnderScansCompletesEachOnce) {
  auto server = world_->StartServer();
  auto connector = world_->MakeConnector();
  auto endpoint = ConnectForScans(connector.get(), server->address());
  if (endpoint == nullptr) return;
  const Scans scans = ChunkScans(1024, 4096);
  Start(endpoint.get(), scans);
  server->Kill();
  for (const auto& [token, status] : Collect(endpoint.get(), scans.size())) {
    if (status == ReadStatus::kOk) {
      ExpectChunk(*scans[token], 4096);
    } else {
      ASSERT_EQ(status, ReadStatus::kUnreachable);
    }
  }
}

TEST_P(ScanConformance, AfterATimeoutNeitherScanNorDestinationIsTouched) {
  auto server = world_->StartServer();
  auto connector = world_->MakeConnector();
  auto endpoint = ConnectForScans(connector.get(), server->address());
  if (endpoint == nullptr) return;
  endpoint->set_read_timeout(Duration::Millis(30));
  server->Stop();
  std::vector<char> buffer(600 * 4099);
  {
    std::vector<std::unique_ptr<ScanRead>> scans;
    std::vector<ScanRead*> all;
    for (uint32_t i = 0; i < 600; ++i) {
      scans.push_back(std::make_unique<ScanRead>());
      scans.back()->request = AskFor({{0, 4099, uint64_t{i} * 4099}});
      scans.back()->parts[0] = {buffer.data() + size_t{i} * 4099, 4099};
      scans.back()->token = i;
      all.push_back(scans.back().get());
    }
    endpoint->Scan(all);
    for (const auto& [token, status] : Collect(endpoint.get(), all.size())) {
      EXPECT_TRUE(status == ReadStatus::kTimeout || status == ReadStatus::kOk);
    }
  }
  std::fill(buffer.begin(), buffer.end(), '#');
  endpoint->set_read_timeout(Duration::Seconds(20));
  server->Continue();
  uint64_t value = 0;
  EXPECT_TRUE(
      Eventually([&] { return ReadWord(endpoint.get(), &value) == ReadStatus::kOk; }, kLimit));
  EXPECT_EQ(std::count(buffer.begin(), buffer.end(), '#'), static_cast<ptrdiff_t>(buffer.size()));
}

TEST_P(ScanConformance, AReleasedScanCompletesAndWritesNothing) {
  Local server = ServeScans();
  auto connector = world_->MakeConnector();
  auto endpoint = ConnectForScans(connector.get(), server.address);
  if (endpoint == nullptr) return;
  for (int round = 0; round < 40; ++round) {
    const Scans scans = ChunkScans(300, 4096);
    // Before they are sent, right after, and while they arrive.
    for (size_t i = 0; i < scans.size(); i += 3) endpoint->Release(scans[i]->scan);
    Start(endpoint.get(), scans);
    int turns = round % 8;
    world_->RunUntil([&] { return turns-- <= 0; }, Duration::Millis(1));
    std::vector<std::string> kept(scans.size());
    for (size_t i = 1; i < scans.size(); i += 3) {
      endpoint->Release(scans[i]->scan);
      kept[i] = scans[i]->bytes[2];  // perhaps it has come already
    }
    for (const auto& [token, status] : Collect(endpoint.get(), scans.size())) {
      ASSERT_EQ(status, ReadStatus::kOk);
      if (token % 3 == 0) {
        ASSERT_EQ(scans[token]->bytes[2], std::string(scans[token]->bytes[2].size(), '#'));
      } else if (token % 3 == 1) {
        ASSERT_EQ(scans[token]->bytes[2], kept[token]);
      } else {
        ExpectChunk(*scans[token], 4096);
      }
    }
  }
}

TEST_P(ScanConformance, AServerThatCeasesToBeatIsNotScanned) {
  Local server = ServeScans();
  auto connector = world_->MakeConnector();
  auto endpoint = ConnectForScans(connector.get(), server.address);
  if (endpoint == nullptr) return;
  Asked asked;
  asked.Ask({{0, 8, 0}}, 1);
  EXPECT_EQ(ScanOne(endpoint.get(), asked), ReadStatus::kOk);
  server.exporter->Beat();
  EXPECT_TRUE(Eventually([&] { return ScanOne(endpoint.get(), asked) == ReadStatus::kUnreachable; },
                         Duration::Seconds(10)));
  server.exporter->Beat();
  EXPECT_EQ(ScanOne(endpoint.get(), asked), ReadStatus::kOk);
}

TEST_P(ScanConformance, AnEndpointMayBeDestroyedWithScansOutstanding) {
  Local server = ServeScans();
  auto connector = world_->MakeConnector();
  for (int round = 0; round < 30; ++round) {
    auto endpoint = ConnectForScans(connector.get(), server.address);
    if (endpoint == nullptr) return;
    Scans scans = ChunkScans(200, 4096);
    Start(endpoint.get(), scans);
    int turns = round;
    world_->RunUntil([&] { return turns-- <= 0; }, Duration::Millis(1));
    endpoint.reset();
    scans.clear();  // a late write would be one to freed memory
  }
}

TEST_P(ScanConformance, AServerWithoutAScannerDoesNotScan) {
  Local server = Export();
  auto connector = world_->MakeConnector();
  auto endpoint = Connect(connector.get(), server.address);
  EXPECT_FALSE(endpoint->capabilities().scan);
}

}  // namespace tailcast::fabric
