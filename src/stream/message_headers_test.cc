#include "tailcast/stream/message_headers.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace tailcast::stream {
namespace {

std::vector<Header> Of(const Headers& headers) { return {headers.begin(), headers.end()}; }

TEST(Headers, AreWhatWasEncodedInItsOrder) {
  const std::string large(60000, 'v');
  const std::string long_name(255, 'n');
  const std::vector<Header> given = {
      {"trace", "a-1"}, {"content type", std::string_view("\0\xff\n", 3)},
      {"empty", ""},    {"trace", "again"},
      {"größe", "é"},   {long_name, large}};
  const auto bytes = Headers::Encode(given);
  ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
  const auto headers = Headers::Decode(*bytes);
  ASSERT_TRUE(headers);
  EXPECT_EQ(Of(*headers), given);
  EXPECT_EQ(headers->Find("trace"), "a-1");
  EXPECT_EQ(headers->Find("empty"), "");
  EXPECT_EQ(headers->Find("Trace"), std::nullopt);
  EXPECT_EQ(headers->bytes(), *bytes);
}

TEST(Headers, NoneAreNoBytes) {
  EXPECT_EQ(*Headers::Encode({}), "");
  const auto none = Headers::Decode("");
  ASSERT_TRUE(none);
  EXPECT_TRUE(none->empty());
  EXPECT_EQ(none->begin(), none->end());
}

TEST(Headers, TheEncodingIsThatOfTheDocument) {
  EXPECT_EQ(*Headers::Encode(std::vector<Header>{{"id", "xyz"}, {"e", ""}}),
            std::string("\2id\3\0xyz\1e\0\0", 12));
  EXPECT_EQ((*Headers::Encode(std::vector<Header>{{"n", std::string(258, 'v')}})).substr(0, 4),
            std::string("\1n\2\1", 4));
}

TEST(Headers, NamesThatAreNoneAndTooManyBytesAreRefused) {
  const auto refused = [](const Header& header) {
    const std::vector<Header> headers = {{"fine", "x"}, header};
    const auto bytes = Headers::Encode(headers);
    return bytes.ok() ? "" : bytes.status().message();
  };
  const std::string wrong_name = "is not 1 to 255 bytes of UTF-8 without control characters";
  const std::string too_long(256, 'n');
  for (const std::string_view name :
       {std::string_view(""), std::string_view("a\nb"), std::string_view("\x7f"),
        std::string_view("\xff"), std::string_view("a\0b", 3), std::string_view(too_long)}) {
    EXPECT_EQ(refused({name, "v"}),
              "the name of header 2 (" + std::to_string(name.size()) + " bytes) " + wrong_name);
  }
  // The first one takes 1 + 4 + 2 + 1 bytes.
  const std::string fits(kHeadersBytesMax - 8 - 4, 'v');
  EXPECT_EQ(refused({"n", fits}), "");
  EXPECT_EQ(refused({"n", fits + "v"}),
            "a message's headers take at most 65535 bytes; header 2 is beyond that");
}

TEST(Headers, EveryOtherByteStringIsRefused) {
  const std::string bytes = *Headers::Encode(std::vector<Header>{{"id", "xyz"}, {"e", ""}});
  // Cut anywhere but between two headers.
  for (size_t size = 1; size < bytes.size(); ++size) {
    EXPECT_EQ(Headers::Decode(bytes.substr(0, size)).has_value(), size == 8) << size;
  }
  EXPECT_FALSE(Headers::Decode(bytes + "\1"));
  EXPECT_FALSE(Headers::Decode(std::string("\0\0\0", 3)));  // a name of no bytes
  EXPECT_FALSE(Headers::Decode(std::string("\1\n\0\0", 4)));
  EXPECT_FALSE(Headers::Decode(std::string("\1\xff\0\0", 4)));
}

}  // namespace
}  // namespace tailcast::stream
