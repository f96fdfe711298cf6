// The verbs reader's decisions over a device that does what a test wants: late, never, wrong.
#include "tailcast/fabric/verbs_reads_core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "tailcast/base/rng.h"
#include "tailcast/fabric/remote_heartbeat.h"
#include "tailcast/fabric/verbs_wire.h"

namespace tailcast::fabric {
namespace {

constexpr Generation kGeneration{7};
constexpr Duration kBeatTimeout = Duration::Millis(100);
constexpr Duration kStallTimeout = Duration::Seconds(6);
constexpr Duration kTimeout = Duration::Seconds(1);

MonotonicTime At(int64_t millis) { return MonotonicTime() + Duration::Millis(1'000'000 + millis); }

// A server's memory and one queue pair to it.
class Device {
 public:
  explicit Device(uint64_t arena_bytes = 2 << 20) : arena(arena_bytes, '\0') {
    for (const uint64_t size : {uint64_t{4} << 20, uint64_t{4096}}) {
      std::string region(size, '\0');
      for (uint64_t i = 0; i < size; ++i) region[i] = static_cast<char>(i * 31 + size + i / 251);
      regions.push_back(std::move(region));
    }
    control.assign(VerbsControlBytes(regions.size()), '\0');
    SetGeneration(kGeneration);
  }
  std::vector<RegionInfo> infos() const {
    return {{regions[0].size(), kGeneration}, {regions[1].size(), kGeneration}};
  }
  void SetGeneration(Generation generation) {
    for (size_t i = 0; i < regions.size(); ++i) {
      std::memcpy(control.data() + control.size() - 8 * (i + 1), &generation, 8);
    }
  }
  void Beat(uint64_t stamp) { std::memcpy(control.data(), &stamp, 8); }

  void Post(std::span<const VerbsWork> works) {
    ++doorbells;
    ASSERT_EQ(works.back().region, kVerbsControl) << "a batch ends with the control page";
    for (const VerbsWork& work : works) {
      ASSERT_EQ(work.id, ++last_id) << "ids grow by one";
      ASSERT_EQ(work.signaled, &work == &works.back());
      if (work.memory == 0 || work.length <= kVerbsWordAtomicBytesMax) {
        ASSERT_EQ(work.offset % 8, 0u) << "words whole";
        ASSERT_EQ(work.length % 8, 0u);
      }
      ASSERT_LE(work.memory_offset + work.length, MemoryOf(work).size());
      // A place that a device may still write to is nobody else's.
      for (const VerbsWork& other : posted) {
        ASSERT_TRUE(work.memory != other.memory ||
                    work.memory_offset + work.length <= other.memory_offset ||
                    other.memory_offset + other.length <= work.memory_offset)
            << "work " << work.id << " lands on work " << other.id;
      }
      posted.push_back(work);
    }
  }
  // Carries out the next `count` works; their completions.
  std::vector<VerbsDone> Run(size_t count) {
    std::vector<VerbsDone> done;
    for (; count > 0 && !posted.empty(); --count) {
      const VerbsWork work = posted.front();
      posted.pop_front();
      const std::string& from = work.region == kVerbsControl ? control : regions[work.region];
      EXPECT_LE(work.offset + work.length, from.size());
      std::memcpy(MemoryOf(work).data() + work.memory_offset, from.data() + work.offset,
                  work.length);
      if (work.signaled) done.push_back({.id = work.id});
    }
    return done;
  }

  std::string& MemoryOf(const VerbsWork& work) { return work.memory == 0 ? arena : registered; }

  std::vector<std::string> regions;
  std::string control;
  std::string arena, registered = std::string(1 << 20, '#');
  std::deque<VerbsWork> posted;
  uint64_t last_id = 0;
  int doorbells = 0;
};

class VerbsReadsCoreTest : public testing::Test {
 protected:
  explicit VerbsReadsCoreTest(uint32_t works_max = 128) : core_(Make(works_max)) {}
  VerbsReadsCore Make(uint32_t works_max) {
    return VerbsReadsCore({.regions = device_.infos(),
                           .works_max = works_max,
                           .beat_timeout = kBeatTimeout,
                           .stall_timeout = kStallTimeout},
                          device_.arena);
  }
  void Send(MonotonicTime now) {
    for (;;) {
      const auto batch = core_.NextBatch(now);
      if (batch.empty()) return;
      device_.Post(batch);
    }
  }
  void Run(MonotonicTime now, size_t works = ~size_t{0}) {
    for (const VerbsDone& done : device_.Run(works)) core_.OnDone(now, done);
    Send(now);
  }
  // Starts a read of a buffer of its own, with a margin of '#' at both ends.
  void Read(uint64_t token, RegionId region, uint64_t offset, uint32_t length, MonotonicTime now,
            Duration timeout = kTimeout) {
    std::string& buffer = buffers_[token];
    buffer.assign(length + 16, '#');
    asked_[token] = {.region = region,
                     .length = length,
                     .offset = offset,
                     .destination = buffer.data() + 8,
                     .token = token};
    core_.Read(now, timeout, {&asked_[token], 1});
  }
  // Takes what is complete; checks that nothing is twice and that good bytes are the server's.
  void Take() {
    Completion batch[7];
    size_t n;
    while ((n = core_.Poll(batch)) > 0) {
      for (size_t i = 0; i < n; ++i) {
        const uint64_t token = batch[i].token;
        ASSERT_TRUE(status_.emplace(token, batch[i].status).second) << token << " completed twice";
        const ReadDescriptor& read = asked_[token];
        const std::string& buffer = buffers_[token];
        ASSERT_EQ(buffer.substr(0, 8), "########");
        ASSERT_EQ(buffer.substr(buffer.size() - 8), "########");
        const std::string bytes = buffer.substr(8, read.length);
        if (batch[i].status == ReadStatus::kOk) {
          ASSERT_EQ(bytes, device_.regions[read.region].substr(read.offset, read.length));
        } else if (read.length < 1 << 20) {
          ASSERT_EQ(bytes, std::string(read.length, '#')) << "a failed read was written";
        }
      }
    }
  }

  Device device_;
  VerbsReadsCore core_;
  std::map<uint64_t, std::string> buffers_;
  std::map<uint64_t, ReadDescriptor> asked_;
  std::map<uint64_t, ReadStatus> status_;
};

TEST_F(VerbsReadsCoreTest, ABatchIsOneDoorbellAndCompletesWithItsControlPage) {
  for (uint64_t i = 0; i < 5; ++i) Read(i, 0, i * 4096 + i, 4096, At(0));
  Send(At(0));
  EXPECT_EQ(device_.doorbells, 1);
  EXPECT_EQ(device_.posted.size(), 6u);
  Run(At(1), 5);
  Take();
  EXPECT_TRUE(status_.empty()) << "nobody knows yet whether the memory was still the same";
  Run(At(2), 1);
  Take();
  EXPECT_EQ(status_.size(), 5u);
  EXPECT_EQ(core_.outstanding(), 0u);
}

// As many as the cache's client has in a batch: no second doorbell and control page for the last.
TEST_F(VerbsReadsCoreTest, SixtyFourReadsAreOneBatch) {
  for (uint64_t i = 0; i < 64; ++i) Read(i, 0, i * 512, 512, At(0));
  Send(At(0));
  EXPECT_EQ(device_.doorbells, 1);
  EXPECT_EQ(device_.posted.size(), 65u);
  Run(At(1), 65);
  Take();
  EXPECT_EQ(status_.size(), 64u);
}

TEST_F(VerbsReadsCoreTest, AnEmptyReadLearnsWhetherTheServerIsThere) {
  Read(1, 0, 17, 0, At(0));
  Send(At(0));
  EXPECT_EQ(device_.posted.size(), 1u);
  device_.SetGeneration(Generation::kNone);
  Run(At(0));
  Take();
  EXPECT_EQ(status_.at(1), ReadStatus::kStaleRegion);
}

TEST_F(VerbsReadsCoreTest, BytesOfAnotherGenerationAreStale) {
  for (uint64_t i = 0; i < 3; ++i) Read(i, i % 2, 8 * i, 64, At(0));
  Send(At(0));
  Run(At(0), 2);
  device_.SetGeneration(Generation{8});  // between the bytes and the control page
  Run(At(0));
  Take();
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(status_.at(i), ReadStatus::kStaleRegion);
}

TEST_F(VerbsReadsCoreTest, AReadThatTimedOutIsWrittenNoMoreAndItsPlaceIsQuarantined) {
  Read(1, 0, 0, 4096, At(0), Duration::Millis(10));
  Send(At(0));
  EXPECT_EQ(core_.OnTime(At(0)), At(10));
  core_.OnTime(At(10));
  Take();
  EXPECT_EQ(status_.at(1), ReadStatus::kTimeout);
  EXPECT_EQ(core_.timeouts(), 1u);
  // The device holds on to its place: Post checks that nobody gets it.
  for (uint64_t i = 2; i < 40; ++i) Read(i, 0, i * 8192, 60'000, At(20));
  Send(At(20));
  EXPECT_GT(core_.outstanding(), 2u);
  while (core_.outstanding() > 0) Run(At(30));
  Take();
  EXPECT_EQ(buffers_[1], std::string(4096 + 16, '#')) << "written after its time-out";
  for (uint64_t i = 2; i < 40; ++i) EXPECT_EQ(status_.at(i), ReadStatus::kOk);
}

TEST_F(VerbsReadsCoreTest, ReadsLandStraightInRegisteredMemoryUnlessTheirWordsWouldBeTorn) {
  core_.AddMemory(device_.registered);
  const struct {
    uint64_t offset;
    uint32_t length;
    bool straight;
  } cases[] = {{0, 8, true},   {4096, 512, true}, {1, 8, false}, {8, 7, false},  {0, 0, true},
               {3, 513, true}, {5, 4096, true},   {4, 4, false}, {8, 4099, true}};
  uint64_t token = 0;
  char* place = device_.registered.data() + 3;
  for (const auto& one : cases) {
    asked_[token] = {.region = 0,
                     .length = one.length,
                     .offset = one.offset,
                     .destination = place,
                     .token = token};
    core_.Read(At(0), kTimeout, {&asked_[token], 1});
    place += one.length + 1;
    ++token;
  }
  Send(At(0));
  size_t i = 0;
  for (const auto& one : cases) {
    if (one.length == 0) continue;
    EXPECT_EQ(device_.posted.at(i).memory, one.straight ? 1u : 0u)
        << one.offset << ' ' << one.length;
    ++i;
  }
  Run(At(1));
  std::string expected(device_.registered.size(), '#');
  size_t at = 3;
  for (const auto& one : cases) {
    expected.replace(at, one.length, device_.regions[0], one.offset, one.length);
    at += one.length + 1;
  }
  EXPECT_EQ(device_.registered, expected);
  Completion completions[9];
  ASSERT_EQ(core_.Poll(completions), 9u);
  for (const Completion& one : completions) EXPECT_EQ(one.status, ReadStatus::kOk);
  // Half in it and half beside it is beside it.
  asked_[0] = {.region = 0, .length = 8, .offset = 0, .token = 0};
  asked_[0].destination = device_.registered.data() + device_.registered.size() - 7;
  core_.Read(At(2), kTimeout, {&asked_[0], 1});
  Send(At(2));
  EXPECT_EQ(device_.posted.front().memory, 0u);
  core_.Break();
}

TEST_F(VerbsReadsCoreTest, AReadThatWaitsForRoomTimesOutToo) {
  for (uint64_t i = 0; i < 10; ++i) Read(i, 0, i, 1 << 20, At(0), Duration::Millis(10));
  Send(At(0));
  core_.OnTime(At(10));
  Take();
  EXPECT_EQ(status_.size(), 10u);
  Run(At(11));
  EXPECT_EQ(core_.outstanding(), 0u);
}

TEST_F(VerbsReadsCoreTest, AQueuePairThatMakesNoProgressIsTakenForDead) {
  Read(1, 0, 0, 8, At(0));
  Send(At(0));
  core_.OnTime(At(1000));
  Take();
  EXPECT_EQ(status_.at(1), ReadStatus::kTimeout);
  EXPECT_FALSE(core_.broken());
  Read(2, 0, 0, 8, At(5500));
  Send(At(5500));
  EXPECT_EQ(core_.OnTime(At(5999)), At(6000));
  core_.OnTime(At(6000));
  EXPECT_TRUE(core_.broken());
  Read(3, 0, 0, 8, At(6000));
  Take();
  EXPECT_EQ(status_.at(2), ReadStatus::kUnreachable);
  EXPECT_EQ(status_.at(3), ReadStatus::kUnreachable);
  Run(At(7000));  // it was not dead after all: nobody cares
  Take();
  EXPECT_EQ(status_.size(), 3u);
}

TEST_F(VerbsReadsCoreTest, ALostKeyIsStaleForItsReadAndTheEndOfAll) {
  for (uint64_t i = 0; i < 4; ++i) Read(i, 0, i * 64, i == 1 ? 0 : 64, At(0));
  Send(At(0));
  core_.OnDone(At(0), {.id = 2, .status = VerbsStatus::kRemoteAccess});  // of read 2: 1 has none
  core_.OnDone(At(0), {.id = 3, .status = VerbsStatus::kBroken});
  Take();
  for (uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(status_.at(i), i == 2 ? ReadStatus::kStaleRegion : ReadStatus::kUnreachable) << i;
  }
}

TEST_F(VerbsReadsCoreTest, CompletionsThatNobodyWaitsForAreIgnored) {
  core_.OnDone(At(0), {.id = 1});
  core_.OnDone(At(0), {.id = 99, .status = VerbsStatus::kBroken});
  Read(1, 0, 0, 8, At(0));
  Send(At(0));
  Run(At(0));
  core_.OnDone(At(0), {.id = 2});
  core_.OnDone(At(0), {.id = 1, .status = VerbsStatus::kBroken});
  Take();
  EXPECT_EQ(status_.at(1), ReadStatus::kOk);
  EXPECT_FALSE(core_.broken());
}

TEST_F(VerbsReadsCoreTest, AServerThatCeasesToBeatIsUnreachableUntilItBeatsAgain) {
  const auto read = [&](uint64_t token, int64_t posted, int64_t done) {
    Read(token, 0, 0, 8, At(posted));
    Send(At(posted));
    Run(At(done));
    Take();
    return status_.at(token);
  };
  EXPECT_EQ(read(1, 0, 1), ReadStatus::kOk);
  EXPECT_EQ(read(2, 500, 501), ReadStatus::kOk) << "it never beat";
  device_.Beat(1);
  EXPECT_EQ(read(3, 600, 601), ReadStatus::kOk);
  EXPECT_EQ(read(4, 700, 701), ReadStatus::kOk);
  EXPECT_EQ(read(5, 701, 5000), ReadStatus::kOk) << "old when it was looked at, not when fetched";
  EXPECT_EQ(read(6, 5001, 5002), ReadStatus::kUnreachable);
  device_.Beat(2);
  EXPECT_EQ(read(7, 5003, 5004), ReadStatus::kOk);
}

// Any mixture of reads, in any order of events: each completes once, with the right bytes or none,
// and places in the arena are never shared (Device::Post).
TEST_F(VerbsReadsCoreTest, EachReadCompletesOnceWhateverHappens) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Rng rng(seed);
    device_ = Device(VerbsReadsCore::kArenaBytesMin + rng.Below(1 << 20) / 64 * 64);
    VerbsReadsCore core({.regions = device_.infos(),
                         .works_max = static_cast<uint32_t>(2 + rng.Below(100)),
                         .beat_timeout = kBeatTimeout,
                         .stall_timeout = kStallTimeout},
                        device_.arena);
    std::map<uint64_t, std::string> buffers;
    std::map<uint64_t, ReadDescriptor> asked;
    std::map<uint64_t, ReadStatus> status;
    int64_t now = 0;
    uint64_t token = 0;
    const auto send = [&] {
      for (;;) {
        const auto batch = core.NextBatch(At(now));
        if (batch.empty()) return;
        device_.Post(batch);
      }
    };
    const auto settle = [&](size_t works) {
      for (const VerbsDone& done : device_.Run(works)) core.OnDone(At(now), done);
      send();
      Completion completion;
      while (core.Poll({&completion, 1}) == 1) {
        ASSERT_TRUE(status.emplace(completion.token, completion.status).second);
        const ReadDescriptor& read = asked.at(completion.token);
        const std::string bytes = buffers.at(completion.token);
        if (completion.status == ReadStatus::kOk) {
          ASSERT_EQ(bytes, device_.regions[read.region].substr(read.offset, read.length));
        } else {
          buffers.at(completion.token) = bytes + "!";  // seen below if it is written later
        }
      }
    };
    for (int step = 0; step < 300; ++step) {
      now += static_cast<int64_t>(rng.Below(3));
      for (uint64_t i = rng.Below(6); i > 0; --i) {
        const RegionId region = rng.Chance(0.2) ? 1 : 0;
        const uint64_t size = device_.regions[region].size();
        const uint32_t length = static_cast<uint32_t>(
            rng.Chance(0.05) ? rng.Below(std::min<uint64_t>(size, 1 << 20) + 1) : rng.Below(4096));
        buffers[token].assign(length, '#');
        asked[token] = {.region = region,
                        .length = length,
                        .offset = rng.Below(size - length + 1),
                        .destination = buffers[token].data(),
                        .token = token};
        core.Read(At(now), Duration::Millis(static_cast<int64_t>(1 + rng.Below(50))),
                  {&asked[token], 1});
        ++token;
      }
      send();
      if (rng.Chance(0.1)) core.OnTime(At(now));
      settle(rng.Below(8));
    }
    settle(~size_t{0});
    while (core.outstanding() > 0) settle(~size_t{0});
    ASSERT_EQ(status.size(), token) << "seed " << seed;
    for (const auto& [which, what] : status) {
      if (what == ReadStatus::kOk) continue;
      ASSERT_EQ(what, ReadStatus::kTimeout);
      ASSERT_EQ(buffers[which], std::string(asked[which].length, '#') + "!") << "seed " << seed;
    }
  }
}

TEST(RemoteHeartbeatTest, IsJudgedByItsChangeNotByItsTime) {
  RemoteHeartbeat heartbeat(Duration::Millis(100));
  EXPECT_TRUE(heartbeat.Observe(0, At(0), At(1)));
  EXPECT_TRUE(heartbeat.Observe(0, At(5000), At(5001)));
  EXPECT_TRUE(heartbeat.Observe(1, At(6000), At(6001))) << "a stamp of a clock far behind ours";
  EXPECT_TRUE(heartbeat.Observe(1, At(6101), At(9000)));
  EXPECT_FALSE(heartbeat.Observe(1, At(6102), At(6103)));
  EXPECT_TRUE(heartbeat.Observe(uint64_t{1} << 60, At(9000), At(9001)));
}

TEST(VerbsWireTest, AnOfferComesBackAsItWasSent) {
  VerbsOffer offer;
  offer.head = {.version = kVerbsVersion,
                .port = 4791,
                .token = {1, 2},
                .beat_timeout_us = 400'000,
                .stall_timeout_us = 6'000'000,
                .reads_max = 16,
                .reserved = 0,
                .control = {.address = 64, .key = 3, .reserved = 0},
                .host = "10.0.0.1"};
  offer.regions = {{.address = 1 << 20, .key = 5, .reserved = 0}};
  const std::string body = EncodeVerbsOffer(offer);
  const auto back = DecodeVerbsOffer(body, 1);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(EncodeVerbsOffer(*back), body);
}

TEST(VerbsWireTest, AsManyReadsAreOnTheWireAsBothDevicesCan) {
  EXPECT_EQ(VerbsReadDepth(16, 16), 16);
  EXPECT_EQ(VerbsReadDepth(3, 16), 3);
  EXPECT_EQ(VerbsReadDepth(16, 3), 3);
  // Of a byte, and never none.
  EXPECT_EQ(VerbsReadDepth(1000, 0xffffffff), 255);
  EXPECT_EQ(VerbsReadDepth(1000, 7), 7);
  EXPECT_EQ(VerbsReadDepth(0, 16), 1);
  EXPECT_EQ(VerbsReadDepth(-1, 0), 1);
}

TEST(VerbsWireTest, AHelloIsFoundBeforeWhatDevicesFillUpWith) {
  const VerbsHello hello{.magic = kVerbsMagic, .token = {1, 2}};
  std::string bytes(reinterpret_cast<const char*>(&hello), sizeof(hello));
  EXPECT_FALSE(DecodeVerbsHello({}).has_value());
  EXPECT_FALSE(DecodeVerbsHello(std::string_view(bytes).substr(1)).has_value());
  for (const size_t size : {sizeof(hello), size_t{56}}) {
    bytes.resize(size, '?');
    const auto decoded = DecodeVerbsHello(bytes);
    ASSERT_TRUE(decoded.has_value()) << size;
    EXPECT_EQ(decoded->token, hello.token);
  }
  bytes[0] ^= 1;
  EXPECT_FALSE(DecodeVerbsHello(bytes).has_value());
}

TEST(VerbsWireTest, AnOfferThatDoesNotAddUpIsNone) {
  VerbsOffer good;
  good.head.version = kVerbsVersion;
  good.head.port = 1;
  good.head.reads_max = 1;
  good.head.stall_timeout_us = 1'000'000;
  good.regions.resize(2);
  const auto decodes = [](const VerbsOffer& offer, size_t regions) {
    return DecodeVerbsOffer(EncodeVerbsOffer(offer), regions).has_value();
  };
  EXPECT_TRUE(decodes(good, 2));
  EXPECT_FALSE(decodes(good, 1));
  EXPECT_FALSE(decodes(good, 3));
  EXPECT_FALSE(DecodeVerbsOffer("", 0).has_value());
  VerbsOffer none;
  none.head.version = kVerbsVersion;
  EXPECT_TRUE(decodes(none, 0));  // which says why there is none
  const auto with = [&](auto change) {
    VerbsOffer offer = good;
    change(offer.head);
    return decodes(offer, 2);
  };
  EXPECT_FALSE(with([](VerbsOfferHead& h) { h.version = 2; }));
  EXPECT_FALSE(with([](VerbsOfferHead& h) { h.port = 0; }));
  EXPECT_FALSE(with([](VerbsOfferHead& h) { h.port = 65536; }));
  EXPECT_FALSE(with([](VerbsOfferHead& h) { h.reads_max = 0; }));
  EXPECT_FALSE(with([](VerbsOfferHead& h) { h.stall_timeout_us = 0; }));
  EXPECT_FALSE(with([](VerbsOfferHead& h) { h.beat_timeout_us = ~uint64_t{0}; }));
  EXPECT_FALSE(with([](VerbsOfferHead& h) { std::memset(h.host, 'x', sizeof(h.host)); }));
}

}  // namespace
}  // namespace tailcast::fabric
