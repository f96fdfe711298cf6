// Takes one file over: raises the epoch of its manifest, then that of its open object, so that
// every earlier writer's next append is refused, and learns the length.
//
//   entry ---> manifest ---> raise its epoch ---> raise the open object's ---> its length
//                 ^   read         | refused: somebody rolled or took over     (absent: create it)
//                 +----------------+
//
// The manifest first: from then on nobody else rolls, so the object that it calls open stays the
// open one. Paper §2.2, spec FencingRolled: FenceManifest, FenceObject.
#pragma once

#include <string>

#include "tailcast/storage/rolled_core.h"

namespace tailcast::storage::rolled {

// What a writer has that owns a file.
struct Ownership {
  std::string file_id;
  Manifest manifest;   // with the owner's epoch
  int64_t length = 0;  // of the open object
};

class TakeoverCore {
 public:
  using Outcome = Result<Ownership>;
  TakeoverCore(std::string folder, std::string name);
  Next<Outcome> Begin();
  // Errors as of Store::OpenFencing; DeadlineExceeded or Unavailable: it may or may not have
  // fenced.
  Next<Outcome> OnReply(const ObjectReply& reply);

 private:
  enum class Stage : uint8_t {
    kEntry,
    kManifest,
    kRaiseManifest,
    kRaiseObject,
    kCreateObject,
    kObject,
    kConfirm,
    kRoot,
  };
  Next<Outcome> Ask(Stage stage, ObjectRequest request);
  Next<Outcome> OnEntry(const ObjectReply& reply);
  Next<Outcome> OnManifest(const ObjectReply& reply);
  Next<Outcome> OnObject(const ObjectReply& reply);
  Next<Outcome> RaiseObject();
  Next<Outcome> Again();
  Status NotThere() const;
  std::string What() const;

  const std::string folder_;
  const std::string name_;
  Stage stage_ = Stage::kEntry;
  int races_left_ = kRacesMax;
  bool created_ = false;
  Ownership owned_;
};

}  // namespace tailcast::storage::rolled
