// A damaged file is taken aside: its writers are fenced, its name and key are free again, and its
// objects are loose, as those of a deleted file are: they are there for people until the next
// deletion in the folder.
//
//   who has the name -> manifest: e to all ones -> its open object: e to all ones -> folder: f: and
//                                                                   k: go, x: is set
//
// Of a manifest that cannot be read nobody knows the open object: then all are fenced, up to the
// first that is not there.
#pragma once

#include <string>

#include "tailcast/storage/rolled_core.h"

namespace tailcast::storage::rolled {

class QuarantineCore {
 public:
  using Outcome = Status;
  QuarantineCore(std::string folder, std::string name);
  Next<Outcome> Begin();
  // Errors as of Store::Quarantine.
  Next<Outcome> OnReply(const ObjectReply& reply);

 private:
  enum class Stage : uint8_t { kEntry, kManifest, kMark, kFence, kUnlink, kRoot };
  Next<Outcome> Ask(Stage stage, ObjectRequest request);
  Next<Outcome> OnEntry(const ObjectReply& reply);
  Next<Outcome> OnManifest(const ObjectReply& reply);
  Next<Outcome> Fence();
  Next<Outcome> Unlink();
  Next<Outcome> Again();
  std::string What() const;

  const std::string folder_, name_;
  Stage stage_ = Stage::kEntry;
  int races_left_ = kRacesMax;
  std::string entry_;  // of the folder, as read
  Entry file_;
  bool readable_ = false;  // the manifest
  size_t object_ = 0;      // that is fenced now
};

}  // namespace tailcast::storage::rolled
