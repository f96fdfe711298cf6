#include "tailcast/writer/buffer_share.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace tailcast::writer {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kLeast = kMiB / 4, kMost = 16 * kMiB;

MonotonicTime At(int64_t ms) { return MonotonicTime() + Duration::Millis(ms); }

class BufferShareTest : public ::testing::Test {
 protected:
  // One that is behind: whatever it may send is on its way at once, and comes much later.
  int64_t Begin(MonotonicTime now) {
    holds_.push_back(std::make_unique<BufferShare::Hold>(share_));
    return Next(now, *holds_.back());
  }
  int64_t Next(MonotonicTime now, BufferShare::Hold& hold) {
    const int64_t window = share_.Window(now, kLeast, kMost, hold);
    hold.OnActive(now);
    hold.Set(hold.held(), stream::kParts * window - hold.held());
    return window;
  }
  MetricRegistry metrics_;
  Gauge& held_ = metrics_.GetGauge("tailcast_held_bytes", "For the test.");
  BufferShare share_{48 * kMiB, held_};
  std::vector<std::unique_ptr<BufferShare::Hold>> holds_;
};

TEST_F(BufferShareTest, WhoBeginsTogetherIsNotPromisedTheSameMemory) {
  EXPECT_EQ(Begin(At(0)), kMost);
  int64_t before = kMost;
  for (int i = 1; i < 200; ++i) {
    const int64_t window = Begin(At(0));
    ASSERT_LE(window, std::max(kLeast, before / 2));
    before = window;
  }
  EXPECT_EQ(before, kLeast);
  EXPECT_LE(share_.promised(), 48 * kMiB + 200 * stream::kParts * kLeast);
}

TEST_F(BufferShareTest, WhoIsBehindComesToAnEvenShare) {
  for (int i = 0; i < 4; ++i) Begin(At(0));
  for (int ms = 100; ms < 3000; ms += 100) {
    for (const auto& hold : holds_) Next(At(ms), *hold);
    ASSERT_LE(share_.promised(), 48 * kMiB);
  }
  for (const auto& hold : holds_) EXPECT_NEAR(Next(At(3000), *hold), 48 * kMiB / 9, kMiB / 8);
  while (holds_.size() > 1) holds_.pop_back();
  EXPECT_EQ(Next(At(3100), *holds_[0]), kMost) << "and takes what the others leave";
}

TEST_F(BufferShareTest, WhoIsSentNothingTakesNothingAndCountsAgainWhenItIs) {
  Begin(At(0));
  EXPECT_EQ(Begin(At(1999)), 16 * kMiB / 3);
  EXPECT_EQ(Next(At(2000), *holds_[1]), kMost);
  EXPECT_EQ(holds_[0]->bytes(), 0);
  holds_[0]->OnActive(At(2100));
  EXPECT_EQ(holds_[0]->bytes(), 2 * kMost);
  EXPECT_EQ(Next(At(2100), *holds_[1]), 16 * kMiB / 3);
  holds_[0]->Set(30 * kMiB, 0);
  EXPECT_EQ(Next(At(9000), *holds_[1]), 6 * kMiB) << "what it holds counts for ever";
  holds_.clear();
  EXPECT_EQ(share_.held() + share_.promised(), 0);
}

}  // namespace
}  // namespace tailcast::writer
