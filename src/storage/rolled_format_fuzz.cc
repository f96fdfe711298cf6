// What lies in the objects of the rolled driver: manifests, folders' entries, numbers; and the text
// that says where a primary layer is.
#include "tailcast/storage/rolled_format.h"

#include "tailcast/base/check.h"
#include "tailcast/fuzz/target.h"
#include "tailcast/storage/store_url.h"

namespace tailcast::storage::rolled {
namespace {

void OnlyDataLoss(const Status& status) {
  TAILCAST_CHECK(status.ok() || IsDataLoss(status), "a damaged object, and nothing else");
}

void TryManifest(fuzz::Input& input) {
  ObjectReply reply;
  const auto bytes = [&] { return std::string(input.Bytes(input.Take<uint8_t>() % 10)); };
  if (input.Take<uint8_t>() % 8 != 0) reply.attributes[kEpoch] = bytes();
  if (input.Take<uint8_t>() % 8 != 0) reply.attributes[kSealed] = bytes();
  if (input.Take<uint8_t>() % 8 != 0) reply.attributes[kLength] = bytes();
  OnlyDataLoss(DecodeAppendState(reply.attributes).status());
  reply.bytes = std::string(input.Rest());
  const Result<Manifest> manifest = DecodeManifest(reply);
  OnlyDataLoss(manifest.status());
  if (!manifest.ok()) return;
  TAILCAST_CHECK(manifest->roll_bytes >= kRollBytesMin && manifest->roll_bytes <= kRollBytesMax);
  std::string again = EncodeManifestHead(manifest->roll_bytes);
  int64_t sum = 0;
  for (const int64_t length : manifest->sealed) {
    TAILCAST_CHECK(length >= manifest->roll_bytes && length <= 2 * manifest->roll_bytes);
    sum += length;
    again += EncodeLength(length);
  }
  TAILCAST_CHECK(manifest->sealed_bytes() == sum);
  TAILCAST_CHECK(again == reply.bytes, "a manifest that decodes encodes to the same");
  TAILCAST_CHECK(EncodeEpoch(manifest->epoch) == reply.attributes[kEpoch]);
  TAILCAST_CHECK(EncodeNumber(manifest->open()) == reply.attributes[kSealed]);
}

void TryEntry(std::string_view bytes) {
  const Result<Entry> entry = DecodeEntry(bytes);
  OnlyDataLoss(entry.status());
  TAILCAST_CHECK(!entry.ok() || EncodeEntry(*entry) == bytes);
  const Result<uint64_t> number = DecodeNumber(bytes);
  OnlyDataLoss(number.status());
  TAILCAST_CHECK(!number.ok() || EncodeNumber(*number) == bytes);
}

void TryUrl(std::string_view text) {
  const Result<StoreUrl> url = ParseStoreUrl(text);
  if (!url.ok()) {
    TAILCAST_CHECK(IsInvalidArgument(url.status()), "bad input, and nothing else");
    return;
  }
  const Result<StoreUrl> again = ParseStoreUrl(url->ToString());
  TAILCAST_CHECK(again.ok() && again->ToString() == url->ToString(),
                 "what is read back is the same");
}

}  // namespace
}  // namespace tailcast::storage::rolled

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tailcast::storage::rolled;
  tailcast::fuzz::Input input(data, size);
  switch (input.Take<uint8_t>() % 3) {
    case 0:
      TryManifest(input);
      break;
    case 1:
      TryEntry(input.Rest());
      break;
    default:
      TryUrl(input.Rest());
  }
  return 0;
}

std::vector<std::string> tailcast::fuzz::Seeds() {
  using namespace storage::rolled;
  // As TryManifest takes it: each attribute is there, and has 8 bytes.
  const auto manifest = [](const std::vector<int64_t>& sealed) {
    std::string bytes(1, '\0');
    for (const uint64_t number : {uint64_t{7}, uint64_t{sealed.size()}, uint64_t{100}}) {
      bytes += std::string("\x01\x08", 2) + EncodeNumber(number);
    }
    bytes += EncodeManifestHead(1000);
    for (const int64_t length : sealed) bytes += EncodeLength(length);
    return bytes;
  };
  const std::string id(32, 'a');
  return {manifest({}),
          manifest({1000, 1999, 2000}),
          "\x01" + EncodeEntry({id, "key"}),
          "\x01" + EncodeNumber(77),
          "\x02posix:/srv/tailcast",
          "\x02posix+page-cache:/srv/tailcast",
          "\x02"
          "ceph:/etc/ceph/ceph.conf?pool=p&user=u&namespace=n&deadline_s=20&roll_bytes=1000"};
}
