// Layout of the rolled driver's objects, apart from who asks for them.
// docs/formats/primary_objects.md draws it; the proof of the order of steps is
// tla/FencingRolled.tla.
//
//   d:<folder>      keys f:<name>  -> file id, key      a file
//                        k:<key>   -> file id, name     the key is taken
//                        d:<name>                       a folder below
//                        x:<file id>                    objects that belong to no file (yet)
//   <file id>.m     the manifest: attributes e (epoch), n (objects that are sealed); their lengths
//   <file id>.<n>   append object n: attributes e (epoch), l (length); bytes
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/rng.h"
#include "tailcast/base/status.h"
#include "tailcast/storage/object_store.h"
#include "tailcast/storage/store.h"

namespace tailcast::storage::rolled {

inline constexpr int64_t kFormatVersion = 1;

// An object is rolled when it has this many bytes or more. An append is sent in pieces that are no
// larger, so an object stays below twice that (Ceph takes 128 MB).
inline constexpr int64_t kRollBytesMin = 1;
inline constexpr int64_t kRollBytesMax = int64_t{64} << 20;
inline constexpr int64_t kRollBytes = int64_t{32} << 20;

inline constexpr std::string_view kFilePrefix = "f:";
inline constexpr std::string_view kKeyPrefix = "k:";
inline constexpr std::string_view kFolderPrefix = "d:";
inline constexpr std::string_view kLoosePrefix = "x:";
// Values of loose objects' keys. Whoever creates a file gives its objects a name as long as they
// are kLooseNew; whoever removes them makes them kLooseDead first.
inline constexpr std::string_view kLooseNew = "1";
inline constexpr std::string_view kLooseDead = "2";

// Names of attributes.
inline constexpr const char* kEpoch = "e";
inline constexpr const char* kSealed = "n";
inline constexpr const char* kLength = "l";
inline constexpr const char* kFormat = "format";  // of the root folder

// The manifest's epoch while the file is being deleted: nobody raises it.
inline constexpr Epoch kEpochDeleted{UINT64_MAX};

// 32 hexadecimal digits, never used twice.
std::string DrawFileId(Rng& rng);

std::string FolderObject(const std::string& folder);
std::string ManifestObject(const std::string& file_id);
std::string AppendObject(const std::string& file_id, size_t number);

// 8 bytes, big-endian: they compare as the numbers do.
std::string EncodeNumber(uint64_t number);
Result<uint64_t> DecodeNumber(std::string_view bytes);
inline std::string EncodeEpoch(Epoch epoch) { return EncodeNumber(static_cast<uint64_t>(epoch)); }
inline std::string EncodeLength(int64_t length) {
  return EncodeNumber(static_cast<uint64_t>(length));
}

// The value of an f: or k: key: the id of a file, and its key or name.
struct Entry {
  std::string file_id;
  std::string other;  // of f:, the key; of k:, the name
};
std::string EncodeEntry(const Entry& entry);
Result<Entry> DecodeEntry(std::string_view bytes);  // DataLoss

struct Manifest {
  Epoch epoch = Epoch::kNone;
  int64_t roll_bytes = 0;
  std::vector<int64_t> sealed;  // lengths of objects 0, 1, ...; the next one is open

  size_t open() const { return sealed.size(); }
  int64_t sealed_bytes() const;
};
// What a look at the whole manifest gave. DataLoss.
Result<Manifest> DecodeManifest(const ObjectReply& reply);
// The bytes of a manifest that has no sealed object; each roll appends EncodeLength.
std::string EncodeManifestHead(int64_t roll_bytes);
// Enough for any manifest.
inline constexpr int64_t kManifestBytesMax = int64_t{4} << 20;

struct AppendState {
  Epoch epoch = Epoch::kNone;
  int64_t length = 0;
};
// Of the attributes of an append object. DataLoss.
Result<AppendState> DecodeAppendState(const std::map<std::string, std::string>& attributes);

}  // namespace tailcast::storage::rolled
