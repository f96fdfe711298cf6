// The first page of a primary file, and the names in its folder.
#include "tailcast/storage/posix_format.h"

#include <cstring>

#include "tailcast/base/check.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/fuzz/target.h"
#include "tailcast/storage/store_names.h"

namespace tailcast::storage::posix {
namespace {

constexpr size_t kCrcOffset = 508;
constexpr size_t kSectors[] = {0, kSlotOffsets[0], kSlotOffsets[1]};

bool SealHolds(std::string_view sector) {
  uint32_t crc = 0;
  std::memcpy(&crc, sector.data() + kCrcOffset, 4);
  return crc == Crc32c(sector.substr(0, kCrcOffset));
}

void TryPage(std::string_view page) {
  HasTombstone(page);
  const Result<Header> header = DecodeHeader(page);
  if (!header.ok()) {
    TAILCAST_CHECK(IsDataLoss(header.status()), "a damaged file, and nothing else");
    return;
  }
  TAILCAST_CHECK(page.size() >= static_cast<size_t>(kPageBytes) && SealHolds(page));
  TAILCAST_CHECK(header->epoch >= Epoch::kFirst && header->epoch <= kEpochMax);
  TAILCAST_CHECK(header->start >= 0 && header->start <= kLengthMax);
  TAILCAST_CHECK(header->name.size() <= kNameSizeMax && header->key.size() <= kNameSizeMax);
  const Result<Header> again = DecodeHeader(EncodePage(*header, {}, {}));
  TAILCAST_CHECK(again.ok() && *again == *header, "a header that decodes encodes to the same");
  int64_t newest = INT64_MAX;
  for (const Slot& slot : SlotsOf(page, *header)) {
    TAILCAST_CHECK(slot.file_id == header->file_id && slot.epoch == header->epoch,
                   "a slot of another file");
    TAILCAST_CHECK(slot.range_start >= header->start && slot.length > slot.range_start &&
                   slot.length <= kLengthMax);
    TAILCAST_CHECK(slot.length <= newest, "newest first");
    newest = slot.length;
    TAILCAST_CHECK(DecodeSlot(EncodeSlot(slot), *header) == slot, "a slot encodes to the same");
  }
  const std::string segment = SegmentName(header->name, header->file_id, header->epoch);
  if (header->epoch > Epoch::kFirst) {
    TAILCAST_CHECK(ParseSegmentName(segment, header->name, header->file_id) == header->epoch);
  }
}

void TryName(std::string_view text) {
  const std::string_view entry = text.substr(0, text.find('\n'));
  const std::string_view name = text.substr(std::min(text.size(), entry.size() + 1));
  if (const auto epoch = ParseSegmentName(entry, name, 0xab)) {
    TAILCAST_CHECK(*epoch > Epoch::kFirst && *epoch <= kEpochMax);
    TAILCAST_CHECK(SegmentName(name, 0xab, *epoch) == entry, "a segment's name is what it prints");
  }
  if (CheckFileName("name", name).ok()) {
    TAILCAST_CHECK(!name.empty() && name.size() <= kNameSizeMax && name.front() != '.' &&
                   name.find('/') == std::string_view::npos &&
                   name.find('\0') == std::string_view::npos);
  }
  if (CheckFolder(name).ok()) {
    TAILCAST_CHECK(("/" + std::string(name) + "/").find("/../") == std::string::npos,
                   "a folder outside of the store");
  }
}

}  // namespace
}  // namespace tailcast::storage::posix

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  tailcast::storage::posix::TryPage(bytes);
  tailcast::storage::posix::TryName(bytes);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned int seed) {
  using namespace tailcast;  // NOLINT(google-build-using-namespace)
  return fuzz::MutateAndRepair(data, size, size_max, seed, [](uint8_t* bytes, size_t count) {
    for (const size_t at : storage::posix::kSectors) {
      if (count < at + storage::posix::kSectorBytes) return;
      const char* const sector = reinterpret_cast<const char*>(bytes) + at;
      fuzz::StoreAt(bytes, at + storage::posix::kCrcOffset,
                    Crc32c({sector, storage::posix::kCrcOffset}));
    }
  });
}

std::vector<std::string> tailcast::fuzz::Seeds() {
  using namespace storage::posix;  // NOLINT(google-build-using-namespace)
  const auto page_of = [](storage::Epoch epoch) {
    const Header header = {
        .file_id = 0xab, .epoch = epoch, .start = 100, .name = "a.data", .key = "a"};
    std::string page = EncodePage(header, {epoch, 200}, {.attach = 5, .boot = 6});
    const Slot slots[] = {{0xab, epoch, 150, 100, 7}, {0xab, epoch, 200, 150, 8}};
    for (int i = 0; i < 2; ++i) {
      page.replace(static_cast<size_t>(kSlotOffsets[i]), kSectorBytes, EncodeSlot(slots[i]));
    }
    return page;
  };
  std::string deleted = page_of(storage::Epoch{3});
  deleted.replace(kTombstoneOffset, kSectorBytes, EncodeTombstone(0xab));
  return {page_of(storage::Epoch::kFirst), deleted,
          SegmentName("a.data", 0xab, storage::Epoch{12}) + "\na.data", ".claim-a\nstreams/a/b"};
}
