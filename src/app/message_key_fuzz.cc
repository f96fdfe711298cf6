// Where a message's key is, as a person says it, in messages from anywhere.
#include "tailcast/app/message_key.h"

#include "tailcast/base/check.h"
#include "tailcast/fuzz/target.h"

namespace tailcast::app {
namespace {

void Try(fuzz::Input& input) {
  const auto delimiter = static_cast<char>(input.Take<uint8_t>());
  const std::string field(input.Bytes(input.Take<uint8_t>() % 32));
  const std::string_view payload = input.Rest();
  const Result<MessageKey> key = MessageKey::Parse(field, delimiter);
  if (!key.ok()) {
    TAILCAST_CHECK(IsInvalidArgument(key.status()), "bad input, and nothing else");
    return;
  }
  const Result<std::string> value = key->Of(payload);
  if (!value.ok()) {
    TAILCAST_CHECK(IsInvalidArgument(value.status()));
    return;
  }
  const bool column =
      field.find_first_not_of("0123456789") == std::string::npos && field.size() <= 6;
  if (!column) return;
  TAILCAST_CHECK(payload.find(*value) != std::string_view::npos, "a field is part of its line");
  TAILCAST_CHECK(value->find(delimiter) == std::string::npos, "one field");
}

}  // namespace
}  // namespace tailcast::app

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tailcast::fuzz::Input input(data, size);
  tailcast::app::Try(input);
  return 0;
}

std::vector<std::string> tailcast::fuzz::Seeds() {
  return {std::string(",\x01") + "3" + "a,b,c,d\n",
          std::string(",\x04user{\"user\": \"x\", \"n\": 1}\n"),
          std::string(",\x08/user/id{\"user\": {\"id\": [1, null, true]}}\n"),
          std::string("\t\x01"
                      "1x\n"),
          std::string(",\x02~/{\"~/\": 1}"),
          // No member of an array, which the JSON library's own question for it does not survive.
          std::string(",\x02//[1, null]")};
}
