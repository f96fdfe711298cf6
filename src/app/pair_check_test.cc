#include "tailcast/app/pair_check.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/base/crc32c.h"

namespace tailcast::app {
namespace {

using ::testing::HasSubstr;

class PairCheckTest : public ::testing::Test {
 protected:
  PairCheckTest() {
    for (int i = 0; i < 100; ++i) {
      const std::string payload = "message " + std::to_string(i);
      stream::IndexRecord{static_cast<int64_t>(data_.size()), static_cast<uint32_t>(payload.size()),
                          Crc32c(payload), 1000 + i}
          .AppendTo(index_);
      data_ += payload;
    }
    seal_.emplace();
    seal_->length[0] = static_cast<int64_t>(data_.size());
    seal_->length[1] = static_cast<int64_t>(index_.size());
  }
  PairCheck Check(size_t piece) const {
    PairCheck check(seal_, index_);
    for (size_t at = 0; at < data_.size() && !check.done(); at += piece) {
      check.OnData(std::string_view(data_).substr(at, piece));
    }
    check.OnEnd();
    return check;
  }
  // What is wrong with the files as they are, the data in pieces of this size.
  std::string Damage(size_t piece) const { return Check(piece).damage(); }
  std::string Missing(size_t piece) const { return Check(piece).missing(); }
  std::string data_, index_;
  std::optional<stream::Seal> seal_;
};

TEST_F(PairCheckTest, WhatIsWholeIsWell) {
  for (size_t piece : {1, 7, 64, 100000}) EXPECT_EQ(Damage(piece), "");
  data_ += "more, which nobody has acknowledged";
  index_ += "x";
  EXPECT_EQ(Damage(50), "");
}

TEST_F(PairCheckTest, EachFlippedBitIsFound) {
  for (size_t i = 0; i < data_.size(); ++i) {
    data_[i] ^= 1;
    EXPECT_THAT(Damage(64), HasSubstr("the payload of message ")) << i;
    data_[i] ^= 1;
  }
  for (size_t i = 0; i < index_.size(); ++i) {
    index_[i] ^= 1;
    EXPECT_THAT(Damage(64), HasSubstr("the index record of message " + std::to_string(i / 32)));
    index_[i] ^= 1;
  }
}

TEST_F(PairCheckTest, WhatIsNotThereYetIsNoDamage) {
  const std::string whole = data_;
  data_.resize(data_.size() - 1);
  EXPECT_EQ(Damage(64), "");
  EXPECT_EQ(Missing(64), "its data ends before message 99");
  data_.clear();
  EXPECT_EQ(Missing(64), "its data ends before message 0");
  data_ = whole;
  index_.resize(index_.size() - 1);
  EXPECT_EQ(Damage(64), "");
  EXPECT_EQ(Missing(64), "its index has 3199 bytes of 3200");
  data_[5] ^= 1;
  EXPECT_THAT(Damage(64), HasSubstr("the payload of message 0")) << "of what is there";
}

TEST_F(PairCheckTest, OfAFileThatIsStillWrittenAllThatIsThereCounts) {
  seal_.reset();
  EXPECT_EQ(Damage(64), "");
  data_ += "data of a message whose record is not there yet";
  index_.resize(index_.size() - 1);
  EXPECT_EQ(Damage(64) + Missing(64), "") << "a record that is being appended";
  data_[5] ^= 1;
  EXPECT_THAT(Damage(64), HasSubstr("the payload of message 0"));
  data_[5] ^= 1;
  index_[32] ^= 1;
  EXPECT_THAT(Damage(64), HasSubstr("the index record of message 1"));
  index_[32] ^= 1;
  data_.resize(100);
  EXPECT_EQ(Damage(64), "");
  EXPECT_THAT(Missing(64), HasSubstr("its data ends before message "));
}

TEST_F(PairCheckTest, AFileWithoutMessagesIsWell) {
  data_.clear();
  index_.clear();
  seal_.emplace();
  EXPECT_EQ(Damage(64), "");
  EXPECT_EQ(Missing(64), "");
}

}  // namespace
}  // namespace tailcast::app
