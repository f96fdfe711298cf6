#include "tailcast/storage/posix_format.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "tailcast/base/check.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/base/strong.h"
#include "tailcast/storage/store_names.h"

namespace tailcast::storage::posix {
namespace {

constexpr uint64_t kHeaderMagic = 0x65676170'2d434154;  // "TAC-page"
constexpr uint64_t kSlotMagic = 0x746f6c73'2d434154;    // "TAC-slot"
constexpr uint32_t kFlagUnflushed = 1;
constexpr size_t kCrcOffset = 508;  // of every checksummed sector
constexpr size_t kHeaderNamesOffset = 48;
static_assert(kHeaderNamesOffset + 2 * kNameSizeMax <= kCrcOffset);

template <typename T>
void Put(std::string& to, size_t at, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) to[at + i] = static_cast<char>(value >> (8 * i));
}
template <typename T>
T Get(std::string_view from, size_t at) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value = static_cast<T>(value | static_cast<T>(static_cast<uint8_t>(from[at + i])) << (8 * i));
  }
  return value;
}

void Seal(std::string& sector) {
  Put<uint32_t>(sector, kCrcOffset, Crc32c(std::string_view(sector).substr(0, kCrcOffset)));
}
bool SealHolds(std::string_view sector) {
  return Get<uint32_t>(sector, kCrcOffset) == Crc32c(sector.substr(0, kCrcOffset));
}

}  // namespace

std::string EncodePage(const Header& header, CommitWord word, LifeTags tags) {
  TAILCAST_CHECK(header.name.size() <= kNameSizeMax && header.key.size() <= kNameSizeMax,
                 "names were checked before");
  std::string sector(kSectorBytes, '\0');
  Put<uint64_t>(sector, 0, kHeaderMagic);
  Put<uint32_t>(sector, 8, kFormatVersion);
  Put<uint32_t>(sector, 12, header.unflushed ? kFlagUnflushed : 0);
  Put<uint64_t>(sector, 16, header.file_id);
  Put<uint64_t>(sector, 24, Raw(header.epoch));
  Put<uint64_t>(sector, 32, static_cast<uint64_t>(header.start));
  Put<uint16_t>(sector, 40, static_cast<uint16_t>(header.name.size()));
  Put<uint16_t>(sector, 42, static_cast<uint16_t>(header.key.size()));
  sector.replace(kHeaderNamesOffset, header.name.size(), header.name);
  sector.replace(kHeaderNamesOffset + header.name.size(), header.key.size(), header.key);
  Seal(sector);
  std::string page = std::move(sector);
  page.resize(kPageBytes, '\0');
  Put<uint64_t>(page, kWordOffset, Pack(word));
  Put<uint64_t>(page, kAttachTagOffset, tags.attach);
  Put<uint64_t>(page, kBootTagOffset, tags.boot);
  Put<uint64_t>(page, kLiveMagicOffset, kLiveMagic);
  return page;
}

Result<Header> DecodeHeader(std::string_view page) {
  if (page.size() < static_cast<size_t>(kPageBytes)) {
    return DataLossError("the file has " + std::to_string(page.size()) +
                         " bytes, less than its first page; it is no primary file");
  }
  const std::string_view sector = page.substr(0, kSectorBytes);
  if (Get<uint64_t>(sector, 0) != kHeaderMagic) {
    return DataLossError("the first bytes are not those of a primary file");
  }
  const auto version = Get<uint32_t>(sector, 8);
  if (version != kFormatVersion) {
    return DataLossError("format version " + std::to_string(version) + ", this program reads " +
                         std::to_string(kFormatVersion));
  }
  if (!SealHolds(sector)) return DataLossError("the header's checksum does not match");
  Header header;
  header.unflushed = (Get<uint32_t>(sector, 12) & kFlagUnflushed) != 0;
  header.file_id = Get<uint64_t>(sector, 16);
  header.epoch = Epoch{Get<uint64_t>(sector, 24)};
  header.start = static_cast<int64_t>(Get<uint64_t>(sector, 32));
  const size_t name_size = Get<uint16_t>(sector, 40);
  const size_t key_size = Get<uint16_t>(sector, 42);
  if (header.epoch == Epoch::kNone || header.epoch > kEpochMax || header.start < 0 ||
      header.start > kLengthMax || name_size > kNameSizeMax || key_size > kNameSizeMax) {
    return DataLossError("the header has fields out of range");
  }
  header.name = sector.substr(kHeaderNamesOffset, name_size);
  header.key = sector.substr(kHeaderNamesOffset + name_size, key_size);
  return header;
}

std::string EncodeTombstone(uint64_t file_id) {
  std::string sector(kSectorBytes, '\0');
  Put<uint64_t>(sector, 0, kTombstoneMagic);
  Put<uint64_t>(sector, 8, file_id);
  return sector;
}

bool HasTombstone(std::string_view page) {
  return page.size() >= static_cast<size_t>(kTombstoneOffset + 8) &&
         Get<uint64_t>(page, kTombstoneOffset) == kTombstoneMagic;
}

std::string EncodeSlot(const Slot& slot) {
  std::string sector(kSectorBytes, '\0');
  Put<uint64_t>(sector, 0, kSlotMagic);
  Put<uint64_t>(sector, 8, slot.file_id);
  Put<uint64_t>(sector, 16, Raw(slot.epoch));
  Put<uint64_t>(sector, 24, static_cast<uint64_t>(slot.length));
  Put<uint64_t>(sector, 32, static_cast<uint64_t>(slot.range_start));
  Put<uint32_t>(sector, 40, slot.range_crc);
  Seal(sector);
  return sector;
}

std::optional<Slot> DecodeSlot(std::string_view sector, const Header& header) {
  if (sector.size() < static_cast<size_t>(kSectorBytes)) return std::nullopt;
  sector = sector.substr(0, kSectorBytes);
  if (Get<uint64_t>(sector, 0) != kSlotMagic || !SealHolds(sector)) return std::nullopt;
  Slot slot;
  slot.file_id = Get<uint64_t>(sector, 8);
  slot.epoch = Epoch{Get<uint64_t>(sector, 16)};
  slot.length = static_cast<int64_t>(Get<uint64_t>(sector, 24));
  slot.range_start = static_cast<int64_t>(Get<uint64_t>(sector, 32));
  slot.range_crc = Get<uint32_t>(sector, 40);
  if (slot.file_id != header.file_id || slot.epoch != header.epoch ||
      slot.range_start < header.start || slot.length <= slot.range_start ||
      slot.length > kLengthMax) {
    return std::nullopt;
  }
  return slot;
}

std::vector<Slot> SlotsOf(std::string_view page, const Header& header) {
  std::vector<Slot> slots;
  for (const int64_t offset : kSlotOffsets) {
    if (page.size() < static_cast<size_t>(offset + kSectorBytes)) continue;
    if (auto slot = DecodeSlot(page.substr(static_cast<size_t>(offset)), header);
        slot.has_value()) {
      slots.push_back(*slot);
    }
  }
  std::sort(slots.begin(), slots.end(),
            [](const Slot& a, const Slot& b) { return a.length > b.length; });
  return slots;
}

std::string ClaimName(std::string_view key) { return ".claim-" + std::string(key); }

std::string SegmentPrefix(std::string_view name, uint64_t file_id) {
  char id[17];
  std::snprintf(id, sizeof id, "%016llx", static_cast<unsigned long long>(file_id));
  return "." + std::string(name) + "." + id + ".e";
}

std::string SegmentName(std::string_view name, uint64_t file_id, Epoch epoch) {
  if (epoch <= Epoch::kFirst) return std::string(name);
  return SegmentPrefix(name, file_id) + std::to_string(Raw(epoch));
}

bool IsClaim(std::string_view entry) { return entry.starts_with(".claim-"); }

bool IsSegmentOf(std::string_view entry, std::string_view name) {
  const size_t id_at = 1 + name.size() + 1;  // ".name."
  if (entry.size() < id_at + 16) return false;
  uint64_t id = 0;
  const char* begin = entry.data() + id_at;
  const auto parsed = std::from_chars(begin, begin + 16, id, 16);
  return parsed.ec == std::errc() && parsed.ptr == begin + 16 &&
         ParseSegmentName(entry, name, id).has_value();
}

bool MayBeSegment(std::string_view entry) {
  return entry.starts_with('.') && !IsClaim(entry) && entry.find(".e", 1) != std::string_view::npos;
}

std::optional<Epoch> ParseSegmentName(std::string_view entry, std::string_view name,
                                      uint64_t file_id) {
  const size_t digits = 1 + name.size() + 1 + 16 + 2;  // ".name.id.e"
  if (entry.size() <= digits || entry[0] != '.') return std::nullopt;
  uint64_t number = 0;
  const char* end = entry.data() + entry.size();
  const auto parsed = std::from_chars(entry.data() + digits, end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  const Epoch epoch{number};
  if (epoch <= Epoch::kFirst || epoch > kEpochMax || SegmentName(name, file_id, epoch) != entry) {
    return std::nullopt;
  }
  return epoch;
}

}  // namespace tailcast::storage::posix
