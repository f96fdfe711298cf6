// What readers that are killed, or stopped and woken, in the middle of their reads may do to a
// server and to other readers: nothing. For drivers whose world can start readers elsewhere; see
// fabric_conformance.h, which it belongs to.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "tailcast/fabric/fabric_conformance.h"

namespace tailcast::fabric {

class ReaderFaultConformance : public FabricConformance {
 protected:
  void SetUp() override {
    FabricConformance::SetUp();
    connector_ = world_->MakeConnector();
    server_ = Export();
  }
  // Of this process, which is the server's: what a reader holds of it.
  static ptrdiff_t OpenFiles() {
    using Folder = std::filesystem::directory_iterator;
    return std::distance(Folder("/proc/self/fd"), Folder());
  }
  void ReadHonestly(Endpoint* endpoint) {
    std::vector<char> buffer(64 * 4096);
    std::vector<ReadDescriptor> reads;
    for (uint64_t i = 0; i < 64; ++i) {
      reads.push_back({.region = 0,
                       .length = 4096,
                       .offset = i * 8192,
                       .destination = buffer.data() + i * 4096,
                       .token = i});
    }
    endpoint->Read(reads);
    for (const auto& [token, status] : Collect(endpoint, reads.size())) {
      EXPECT_EQ(status, ReadStatus::kOk);
      EXPECT_EQ(buffer[token * 4096], PatternByte(0, token * 8192));
    }
  }

  std::unique_ptr<Connector> connector_;
  Local server_;
};

TEST_P(ReaderFaultConformance, ReadersKilledInMidReadLeaveNothingBehindAndCostOthersNothing) {
  auto honest = Connect(connector_.get(), server_.address);
  ASSERT_NE(honest, nullptr);
  const ptrdiff_t before = OpenFiles();
  for (int i = 0; i < 6; ++i) {
    auto reader = world_->StartReader(server_.address);
    if (reader == nullptr) GTEST_SKIP() << "this driver's readers are not processes";
    ASSERT_EQ(reader->NextEvent(), "reading");
    ReadHonestly(honest.get());
    reader->Kill();
    ReadHonestly(honest.get());
  }
  EXPECT_TRUE(Eventually([&] { return OpenFiles() <= before; }, Duration::Seconds(10)))
      << OpenFiles() << " files, " << before << " before";
  EXPECT_TRUE(honest->connected());
  EXPECT_NE(Connect(connector_.get(), server_.address), nullptr);
}

TEST_P(ReaderFaultConformance, AReaderStoppedInMidReadHoldsNobodyUpAndTakesNoLaterBytes) {
  auto honest = Connect(connector_.get(), server_.address);
  ASSERT_NE(honest, nullptr);
  auto reader = world_->StartReader(server_.address);
  if (reader == nullptr) GTEST_SKIP() << "this driver's readers are not processes";
  ASSERT_EQ(reader->NextEvent(), "reading");
  reader->Stop();
  for (int i = 0; i < 50; ++i) ReadHonestly(honest.get());
  // It does not wait for the one that is stopped.
  server_.exporter->Invalidate();
  std::fill(server_.memory[0].begin(), server_.memory[0].end(), '#');
  server_.exporter->Renew();
  honest = Connect(connector_.get(), server_.address);
  ASSERT_NE(honest, nullptr);
  char byte = 0;
  EXPECT_EQ(ReadOne(honest.get(), {.region = 0, .length = 1, .offset = 7, .destination = &byte}),
            ReadStatus::kOk);
  EXPECT_EQ(byte, '#');
  // What it asked for before is stale, whenever it looks; then it begins anew.
  reader->Continue();
  EXPECT_EQ(reader->NextEvent(), "lost");
  EXPECT_EQ(reader->NextEvent(), "reading");
}

}  // namespace tailcast::fabric
