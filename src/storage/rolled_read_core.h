// A reader of one file. It keeps the manifest as it last saw it: an old one shows a prefix of the
// file (spec FencingRolled: OldManifestHarmless). It reads the manifest again when the object that
// was open has the length at which objects are rolled, or is not there.
#pragma once

#include <memory>
#include <string>

#include "tailcast/storage/rolled_core.h"
#include "tailcast/storage/store.h"

namespace tailcast::storage::rolled {

// What a reader knows of its file; shared by its calls.
struct KnownFile {
  std::string file_id;
  Manifest manifest;
  // Size is told from it on: it grows only.
  FileSize shown;
};

// From the name to the file.
class FindCore {
 public:
  using Outcome = Result<std::shared_ptr<KnownFile>>;
  FindCore(std::string folder, std::string name);
  Next<Outcome> Begin();
  Next<Outcome> OnReply(const ObjectReply& reply);  // NotFound, and the store's

 private:
  enum class Stage : uint8_t { kEntry, kManifest, kRoot };
  const std::string folder_, name_;
  Stage stage_ = Stage::kEntry;
  const std::shared_ptr<KnownFile> file_ = std::make_shared<KnownFile>();
};

class SizeCore {
 public:
  using Outcome = Result<FileSize>;
  SizeCore(std::string name, std::shared_ptr<KnownFile> file);
  Next<Outcome> Begin();
  Next<Outcome> OnReply(const ObjectReply& reply);

 private:
  enum class Stage : uint8_t { kObject, kManifest, kRoot };
  Outcome Known(int64_t open_length, Epoch epoch);

  const std::string name_;
  const std::shared_ptr<KnownFile> file_;
  Stage stage_ = Stage::kObject;
  size_t asked_ = 0;           // number of the object
  int64_t object_length_ = 0;  // of it
  int rolls_left_ = kRacesMax;
};

// As SizeCore, after a look at each sealed object.
class CheckCore {
 public:
  using Outcome = Result<FileSize>;
  CheckCore(std::string name, std::shared_ptr<KnownFile> file);
  Next<Outcome> Begin();
  Next<Outcome> OnReply(const ObjectReply& reply);  // DataLoss: an object is gone, or was cut

 private:
  enum class Stage : uint8_t { kObject, kManifest, kRoot, kSize };
  Next<Outcome> Ask();

  const std::string name_;
  const std::shared_ptr<KnownFile> file_;
  SizeCore size_;
  Stage stage_ = Stage::kObject;
  size_t asked_ = 0;  // number of the object
};

class ReadCore {
 public:
  using Outcome = Result<std::string>;
  // Asks for no more than this at once.
  static constexpr int64_t kBytesMax = int64_t{4} << 20;

  // Neither is negative.
  ReadCore(std::string name, std::shared_ptr<KnownFile> file, int64_t offset, int64_t length);
  Next<Outcome> Begin();
  Next<Outcome> OnReply(ObjectReply reply);

 private:
  enum class Stage : uint8_t { kObject, kManifest, kRoot };

  const std::string name_;
  const std::shared_ptr<KnownFile> file_;
  const int64_t offset_, length_;
  Stage stage_ = Stage::kObject;
  size_t asked_ = 0;
  bool was_sealed_ = false;  // when it was asked
  bool was_absent_ = false;
  int rolls_left_ = kRacesMax;
};

}  // namespace tailcast::storage::rolled
