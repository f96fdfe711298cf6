// Takes one file over: raises the epoch of its manifest, then that of its open object, so that
// every earlier writer's next append is refused, and learns the length.
//
//   entry ---> manifest ---> raise its epoch --+-> raise the open object's --+--> its length
//                 ^   read         | refused   +-> look at it ---------------+    (absent: create it)
//                 +----------------+ somebody rolled or took over
//
// The manifest first: from then on nobody else rolls, so the object that it calls open stays the
// open one. The look is sent with the raise, and may land before it: then it has seen an earlier
// epoch, and tells nothing. Paper §2.2, spec FencingRolled: FenceManifest, LookWithFence,
// FenceObject.
#pragma once

#include <string>
#include <variant>

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
  using Step = std::variant<ObjectRequest, Two, Outcome>;
  TakeoverCore(std::string folder, std::string name);
  Step Begin();
  // Errors as of Store::OpenFencing; DeadlineExceeded or Unavailable: it may or may not have
  // fenced.
  Step OnReply(const ObjectReply& reply);
  Step OnReplies(const ObjectReply& raise, const ObjectReply& look);

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
  Step Ask(Stage stage, ObjectRequest request);
  Step OnEntry(const ObjectReply& reply);
  Step OnManifest(const ObjectReply& reply);
  Step OnObject(const ObjectReply& reply);
  Step RaiseObject();
  Step LookAtObject();
  Step Again();
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
