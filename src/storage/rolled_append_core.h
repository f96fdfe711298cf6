// The writer of one file: appends to the open object, and rolls when that is full. One append at a
// time, one request at a time.
//
//   [object full] seal it in the manifest ---> create the next ---> the manifest is still mine?
//        |
//        v
//   append: guarded by epoch and length ---> done: applied
//        | refused: look at the object, and at the bytes at our place
//        +--> my epoch, with our bytes: applied (the request came twice)
//        +--> a later epoch, and other bytes or none at our place: fenced
//        +--> a later epoch, and bytes like ours: unknown
//
// The guard of the length is what makes a request that comes twice append once.
// Spec FencingRolled: AppendObject, RollSeal, RollCreate.
#pragma once

#include <string>

#include "tailcast/storage/rolled_core.h"
#include "tailcast/storage/rolled_takeover_core.h"
#include "tailcast/storage/store.h"

namespace tailcast::storage::rolled {

class AppendCore {
 public:
  using Outcome = AppendResult;
  AppendCore(std::string name, Ownership owned);

  // `bytes` at the committed length. Not while another append is under way, not after one that
  // ended neither applied nor with wrong offset.
  Next<Outcome> Append(std::string bytes);
  Next<Outcome> OnReply(const ObjectReply& reply);

  int64_t committed_length() const { return sealed_bytes_ + owned_.length; }
  Epoch epoch() const { return owned_.manifest.epoch; }

 private:
  enum class Stage : uint8_t {
    kSeal,
    kWhySealRefused,
    kCreate,
    kWhyCreateRefused,
    kConfirm,
    kAppend,
    kWhyAppendRefused,
    kWhyAbsent,
    kCleanUp,
    kRoot,
  };
  Next<Outcome> Ask(Stage stage, ObjectRequest request);
  Next<Outcome> Piece();
  Next<Outcome> Seal();
  Next<Outcome> Create();
  Next<Outcome> OnSealed();
  Next<Outcome> OnApplied();
  Next<Outcome> OnWhyAppendRefused(const ObjectReply& reply);
  Next<Outcome> OnManifestAfterCreate(const ObjectReply& reply);
  // The end of this append, and of the handle. Fenced is told as unknown if some of it is applied.
  Next<Outcome> Fenced(const std::string& why);
  Next<Outcome> Unknown(Status why);

  const std::string name_;
  Ownership owned_;
  int64_t sealed_bytes_;
  Stage stage_ = Stage::kAppend;
  // Of the append under way.
  std::string bytes_;
  size_t sent_ = 0;   // bytes of it that are applied
  size_t piece_ = 0;  // bytes of the request under way
};

}  // namespace tailcast::storage::rolled
