#include "tailcast/writer/copy_messages.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/proto/copy.pb.h"

namespace tailcast::writer {
namespace {

using stream::Part;

constexpr int64_t kChunk = 512;

// The message that says what is wrong; "" if nothing is.
std::string Wrong(const v1::CopyRequest& request) {
  const auto parsed = ParseReaderMessage(request.SerializeAsString(), kChunk);
  if (parsed.ok()) return "";
  EXPECT_TRUE(IsInvalidArgument(parsed.status()));
  return parsed.status().message();
}

v1::CopyRequest Bytes(uint32_t part, int64_t position, std::string bytes) {
  v1::CopyRequest request;
  request.mutable_bytes()->set_part(part);
  request.mutable_bytes()->set_position(position);
  request.mutable_bytes()->set_bytes(std::move(bytes));
  return request;
}
v1::CopyRequest Jump(uint32_t part, int64_t position) {
  v1::CopyRequest request;
  request.mutable_jump()->set_part(part);
  request.mutable_jump()->set_position(position);
  return request;
}
v1::CopyRequest Heartbeat(int64_t as_of_us, int64_t data, int64_t index) {
  v1::CopyRequest request;
  request.mutable_heartbeat()->set_as_of_us(as_of_us);
  request.mutable_heartbeat()->set_data_length(data);
  request.mutable_heartbeat()->set_index_length(index);
  return request;
}

TEST(ParseReaderMessage, TakesWhatAReaderMaySend) {
  auto parsed = ParseReaderMessage(Bytes(1, 7, "abc").SerializeAsString(), kChunk);
  ASSERT_TRUE(parsed.ok());
  const BytesMessage& bytes = std::get<BytesMessage>(*parsed);
  EXPECT_EQ(bytes.part, Part::kIndex);
  EXPECT_EQ(bytes.position, 7);
  EXPECT_EQ(bytes.bytes, "abc");
  parsed = ParseReaderMessage(Jump(0, 1024).SerializeAsString(), kChunk);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(std::get<JumpMessage>(*parsed).position, 1024);
  parsed = ParseReaderMessage(Heartbeat(5, 6, 7).SerializeAsString(), kChunk);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(std::get<HeartbeatMessage>(*parsed).lengths, (Lengths{6, 7}));
  v1::CopyRequest seal;
  seal.mutable_seal()->set_data_length(3);
  parsed = ParseReaderMessage(seal.SerializeAsString(), kChunk);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(std::get<SealMessage>(*parsed).lengths, (Lengths{3, 0}));
}

TEST(ParseReaderMessage, NamesTheFieldThatIsWrong) {
  using ::testing::HasSubstr;
  EXPECT_THAT(Wrong(Bytes(2, 0, "a")), HasSubstr("bytes.part"));
  EXPECT_THAT(Wrong(Bytes(0, -1, "a")), HasSubstr("bytes.position"));
  EXPECT_THAT(Wrong(Bytes(0, 0, "")), HasSubstr("bytes.bytes"));
  EXPECT_THAT(Wrong(Bytes(0, 0, std::string((1 << 20) + 1, 'a'))), HasSubstr("bytes.bytes"));
  EXPECT_THAT(Wrong(Jump(2, 0)), HasSubstr("jump.part"));
  EXPECT_THAT(Wrong(Jump(0, -512)), HasSubstr("jump.position"));
  EXPECT_THAT(Wrong(Jump(0, 100)), HasSubstr("jump.position"));
  EXPECT_THAT(Wrong(Heartbeat(0, 1, 1)), HasSubstr("heartbeat"));
  EXPECT_THAT(Wrong(Heartbeat(1, -1, 1)), HasSubstr("heartbeat"));
  EXPECT_THAT(Wrong(Heartbeat(1, 1, -1)), HasSubstr("heartbeat"));
  EXPECT_THAT(Wrong({}), HasSubstr("no known kind"));
  v1::CopyRequest open;
  open.mutable_open();
  EXPECT_THAT(Wrong(open), HasSubstr("second `open`"));
  EXPECT_FALSE(ParseReaderMessage("\xff\xff\xff", kChunk).ok());
}

}  // namespace
}  // namespace tailcast::writer
