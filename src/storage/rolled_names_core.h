// Who has a key, who has a name, and how both go. A folder is one object whose keys are its files,
// so that a file appears, and goes, in one step.
//
// A file's objects are made before its name, and removed after it. In between they are *loose*: the
// folder says so under x:<file id>, so that what a dead process left is found. Whoever deletes in
// the folder removes what is loose there, also that of a creation that is still under way, which
// then notices at its last step and begins anew.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tailcast/base/rng.h"
#include "tailcast/storage/rolled_core.h"
#include "tailcast/storage/rolled_takeover_core.h"

namespace tailcast::storage::rolled {

class CreateCore {
 public:
  using Outcome = Result<Ownership>;
  // `rng` draws the file's id; it outlives the core.
  CreateCore(std::string folder, std::string name, std::string key, int64_t roll_bytes, Rng* rng);
  Next<Outcome> Begin();
  // Errors as of Store::CreateExclusive; DeadlineExceeded or Unavailable: it may be there or not.
  Next<Outcome> OnReply(const ObjectReply& reply);

 private:
  enum class Stage : uint8_t {
    kLoose,    // our objects are announced
    kFolders,  // the folder is not there: made from the root downwards
    kManifest,
    kObject,
    kName,     // the file is there
    kWho,      // ... or not: who has the key?
    kCleanUp,  // our objects are removed, before the error is told
    kRoot,
  };
  Next<Outcome> Ask(Stage stage, ObjectRequest request);
  Next<Outcome> Announce();
  Next<Outcome> MakeFolder();
  Next<Outcome> Name();
  Next<Outcome> OnWho(const ObjectReply& reply);
  Next<Outcome> CleanUp(Status then);
  Next<Outcome> CleanUpNext();
  std::string What() const;

  const std::string folder_, name_, key_;
  const int64_t roll_bytes_;
  Rng* const rng_;
  Stage stage_ = Stage::kLoose;
  int races_left_ = kRacesMax;
  std::string file_id_;
  std::vector<std::string> folders_;  // from the one below the root downwards
  size_t folders_made_ = 0;
  size_t cleaned_ = 0;
  Status then_;
};

// Removes the objects of one file that has no name any more.
class PurgeCore {
 public:
  using Outcome = Status;
  PurgeCore(std::string folder, std::string file_id);
  Next<Outcome> Begin();
  Next<Outcome> OnReply(const ObjectReply& reply);

 private:
  enum class Stage : uint8_t { kManifest, kMark, kObjects, kRemoveManifest, kNotLoose };
  Next<Outcome> Ask(Stage stage, ObjectRequest request);
  Next<Outcome> NextObject();

  const std::string folder_, file_id_;
  Stage stage_ = Stage::kManifest;
  int races_left_ = kRacesMax;
  size_t objects_left_ = 0;
};

// Which file has a name now: its id.
class IdentifyCore {
 public:
  using Outcome = Result<std::string>;
  IdentifyCore(std::string folder, std::string name);
  Next<Outcome> Begin();
  Next<Outcome> OnReply(const ObjectReply& reply);

 private:
  const std::string folder_, name_;
  bool asked_root_ = false;
};

class DeleteCore {
 public:
  using Outcome = Status;
  // Loose objects that it removes besides, at most; each of which may be a large file.
  static constexpr size_t kLooseMax = 16;

  // `only`: another file's name is left alone.
  DeleteCore(std::string folder, std::string name, std::optional<std::string> only = std::nullopt);
  Next<Outcome> Begin();
  // Errors as of Store::Delete.
  Next<Outcome> OnReply(const ObjectReply& reply);

 private:
  enum class Stage : uint8_t {
    kEntry,
    kUnlink,
    kPurge,
    kLoose,
    kClaim,
    kWhyNotClaimed,
    kPurgeLoose,
    kRoot
  };
  Next<Outcome> Ask(Stage stage, ObjectRequest request);
  Next<Outcome> Purge(Stage stage, const std::string& file_id);
  Next<Outcome> OnPurge(Next<Outcome> next);
  Next<Outcome> NextLoose();
  Next<Outcome> OnClaim(const ObjectReply& reply);
  Status NotThere() const;

  const std::string folder_, name_;
  const std::optional<std::string> only_;
  Stage stage_ = Stage::kEntry;
  int races_left_ = kRacesMax;
  bool unlinked_ = false;  // or somebody else has, after we found it
  std::string file_id_;
  std::vector<std::string> loose_;
  std::optional<PurgeCore> purge_;
};

// The names in a folder, sorted: of its files, or of the folders directly below.
class ListCore {
 public:
  using Outcome = Result<std::vector<std::string>>;
  enum class Kind : uint8_t { kFiles, kFolders };
  ListCore(std::string folder, Kind kind);
  Next<Outcome> Begin();
  Next<Outcome> OnReply(const ObjectReply& reply);

 private:
  ObjectRequest Page(std::string after) const;

  const std::string folder_;
  const std::string prefix_;
  bool asked_root_ = false;
  std::vector<std::string> names_;
};

}  // namespace tailcast::storage::rolled
