#include "tailcast/storage/rolled_format.h"

#include <cstdio>
#include <limits>

namespace tailcast::storage::rolled {
namespace {

constexpr size_t kFileIdBytes = 32;
constexpr std::string_view kManifestMagic = "TAC-roll";
constexpr size_t kNumberBytes = 8;
constexpr size_t kHeadBytes = kManifestMagic.size() + 2 * kNumberBytes;

bool IsFileId(std::string_view id) {
  return id.size() == kFileIdBytes &&
         id.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// A number that counts bytes or objects.
Result<int64_t> DecodeCount(std::string_view bytes, const char* what) {
  TAILCAST_ASSIGN_OR_RETURN(const uint64_t number, DecodeNumber(bytes));
  if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max() / 2)) {
    return DataLossError(std::string("impossible ") + what);
  }
  return static_cast<int64_t>(number);
}

Result<std::string> Attribute(const std::map<std::string, std::string>& attributes,
                              const char* name) {
  const auto it = attributes.find(name);
  if (it == attributes.end()) return DataLossError(std::string("no attribute ") + name);
  return it->second;
}

}  // namespace

std::string DrawFileId(Rng& rng) {
  char text[kFileIdBytes + 1];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(rng.Next()),
                static_cast<unsigned long long>(rng.Next()));
  return text;
}

std::string FolderObject(const std::string& folder) { return "d:" + folder; }

std::string ManifestObject(const std::string& file_id) { return file_id + ".m"; }

std::string AppendObject(const std::string& file_id, size_t number) {
  return file_id + "." + std::to_string(number);
}

std::string EncodeNumber(uint64_t number) {
  std::string bytes(kNumberBytes, '\0');
  for (size_t i = kNumberBytes; i-- > 0; number >>= 8) {
    bytes[i] = static_cast<char>(number & 0xff);
  }
  return bytes;
}

Result<uint64_t> DecodeNumber(std::string_view bytes) {
  if (bytes.size() != kNumberBytes) {
    return DataLossError("a number of " + std::to_string(bytes.size()) + " bytes");
  }
  uint64_t number = 0;
  for (const char c : bytes) number = number << 8 | static_cast<uint8_t>(c);
  return number;
}

std::string EncodeEntry(const Entry& entry) { return entry.file_id + entry.other; }

Result<Entry> DecodeEntry(std::string_view bytes) {
  if (bytes.size() <= kFileIdBytes || !IsFileId(bytes.substr(0, kFileIdBytes))) {
    return DataLossError("a folder's entry that names no file");
  }
  return Entry{std::string(bytes.substr(0, kFileIdBytes)), std::string(bytes.substr(kFileIdBytes))};
}

int64_t Manifest::sealed_bytes() const {
  int64_t sum = 0;
  for (const int64_t length : sealed) sum += length;
  return sum;
}

std::string EncodeManifestHead(int64_t roll_bytes) {
  return std::string(kManifestMagic) + EncodeNumber(kFormatVersion) + EncodeLength(roll_bytes);
}

Result<Manifest> DecodeManifest(const ObjectReply& reply) {
  Manifest manifest;
  TAILCAST_ASSIGN_OR_RETURN(const std::string epoch, Attribute(reply.attributes, kEpoch));
  TAILCAST_ASSIGN_OR_RETURN(const uint64_t number, DecodeNumber(epoch));
  manifest.epoch = Epoch{number};
  TAILCAST_ASSIGN_OR_RETURN(const std::string sealed, Attribute(reply.attributes, kSealed));
  TAILCAST_ASSIGN_OR_RETURN(const int64_t objects, DecodeCount(sealed, "number of objects"));
  const std::string_view bytes = reply.bytes;
  if (bytes.size() < kHeadBytes || !bytes.starts_with(kManifestMagic)) {
    return DataLossError("this is no manifest");
  }
  TAILCAST_ASSIGN_OR_RETURN(const uint64_t version,
                            DecodeNumber(bytes.substr(kManifestMagic.size(), kNumberBytes)));
  if (version != kFormatVersion) {
    return DataLossError("format version " + std::to_string(version) + "; this program reads " +
                         std::to_string(kFormatVersion));
  }
  TAILCAST_ASSIGN_OR_RETURN(
      manifest.roll_bytes,
      DecodeCount(bytes.substr(kHeadBytes - kNumberBytes, kNumberBytes), "roll length"));
  if (manifest.epoch == Epoch::kNone || manifest.roll_bytes < kRollBytesMin ||
      manifest.roll_bytes > kRollBytesMax) {
    return DataLossError("impossible epoch or roll length");
  }
  const std::string_view lengths = bytes.substr(kHeadBytes);
  if (lengths.size() % kNumberBytes != 0 ||
      lengths.size() / kNumberBytes != static_cast<size_t>(objects)) {
    return DataLossError(std::to_string(objects) + " objects are sealed, their lengths have " +
                         std::to_string(lengths.size()) + " bytes");
  }
  for (size_t at = 0; at < lengths.size(); at += kNumberBytes) {
    TAILCAST_ASSIGN_OR_RETURN(const int64_t length,
                              DecodeCount(lengths.substr(at, kNumberBytes), "length of an object"));
    if (length < manifest.roll_bytes || length > 2 * manifest.roll_bytes) {
      return DataLossError("an object was sealed with " + std::to_string(length) + " bytes");
    }
    manifest.sealed.push_back(length);
  }
  return manifest;
}

Result<AppendState> DecodeAppendState(const std::map<std::string, std::string>& attributes) {
  AppendState state;
  TAILCAST_ASSIGN_OR_RETURN(const std::string epoch, Attribute(attributes, kEpoch));
  TAILCAST_ASSIGN_OR_RETURN(const uint64_t number, DecodeNumber(epoch));
  state.epoch = Epoch{number};
  TAILCAST_ASSIGN_OR_RETURN(const std::string length, Attribute(attributes, kLength));
  TAILCAST_ASSIGN_OR_RETURN(state.length, DecodeCount(length, "length"));
  return state;
}

}  // namespace tailcast::storage::rolled
